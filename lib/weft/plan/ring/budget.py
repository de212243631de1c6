"""What a rank of a context group has to have room for in a training step.

Nothing of a long sequence lies there for long but layers' inputs and, where attention is not
computed twice, its outputs. Two moments compete for the rest: backward through a layer, which is
made again, and the loss. Weights and their gradients pass by as with ZeRO's stage 3.
"""

from dataclasses import replace
from typing import NamedTuple, SupportsIndex

from weft.plan.arguments import instance, sizes, whole
from weft.plan.memory import model_states, passing
from weft.plan.ring.alive import alive
from weft.plan.ring.layouts import checked, lengths
from weft.plan.shape import ModelShape


class Budget(NamedTuple):
    """Bytes on the fullest rank; `layer` and `loss` are there one after the other."""

    kept: int
    states: float
    weights: int
    layer: int
    loss: int
    reserve: int

    @property
    def total(self) -> float:
        """The most at once."""
        return self.kept + self.states + self.weights + self.reserve + max(self.layer, self.loss)


def budget(
    shape: ModelShape,
    T: SupportsIndex,
    n: SupportsIndex,
    devices: SupportsIndex,
    method: str = "ulysses",
    *,
    attention_kept: bool = True,
    chunk: SupportsIndex | None = None,
) -> Budget:
    """The bytes of a rank where a sequence of T tokens is on n of all `devices`.

    bf16, one sequence in a group, mixed precision, states in shares of 1 / devices. Each layer's
    input is kept and, if `attention_kept`, what attention gave out, with its fp32 log-sum-exp.
    `layer` has what else one layer keeps, once it is computed again, with the larger of the
    gradients in its MLP and what its attention has alive; `weights` two layers' or the
    vocabulary's, gathered, and gradients of as many; `loss` the last hidden states and their
    gradient, and of `chunk` tokens, or of all, logits and their gradient in fp32.

    >>> from weft.plan.shape import SHAPES
    >>> for n in (1, 2, 4, 8):
    ...     each = budget(SHAPES["llama3-8b"], 131072, n, 16, chunk=2048)
    ...     print(*(f"{x / 1e9:.1f}" for x in (*each, each.total)))
    69.3 8.0 3.0 28.5 4.2 2.1 110.9
    34.6 8.0 3.0 14.2 3.2 2.1 62.0
    17.3 8.0 3.0 7.1 2.6 2.1 37.6
    8.7 8.0 3.0 3.6 2.4 2.1 25.4
    """
    instance(ModelShape, shape=shape)
    T, n = checked(T, n)
    (devices,) = sizes(devices=devices)
    if devices % n:
        raise ValueError(f"devices is {devices}, must be a multiple of n = {n}")
    C = max(lengths(T, n, "contiguous"))
    chunk = C if chunk is None else min(C, whole("chunk", chunk))
    row = 2 * shape.width
    output = 2 * shape.heads * shape.value_width + 4 * shape.heads  # and log-sum-exps
    each = row + output * bool(attention_kept)
    how = {"stage": 3, "recompute": "full", "attention": "flash"}
    once = passing(replace(shape, seq=C), 1, **how)
    heads = shape.heads, shape.groups, shape.key_width
    attending = alive(T, n, *heads, method, backward=True, V=shape.value_width)
    up = 2 if shape.gated else 1
    layer = once.recomputed + row * C - each * C + max(2 * (1 + up) * shape.passed * C, attending)
    return Budget(
        kept=shape.layers * each * C,
        states=model_states(shape.params, devices, 3).total,
        weights=once.gathered + once.reduced,
        layer=layer,
        loss=2 * row * C + passing(replace(shape, seq=chunk), 1, **how).logits,
        reserve=once.reserve,
    )
