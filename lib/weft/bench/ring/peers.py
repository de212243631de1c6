"""One attention, forward and backward, of a sequence over ranks: ours beside its peers.

The peers are a plain all-gather of keys and values, differentiable by torch's own collectives and
computed by its scaled_dot_product_attention, and torch's context parallelism. All are given the
same sequence in the same run and take turns; outputs and gradients have to be equal first.

torch 2.13's context parallelism has no causal attention on a processor, nor the backward of flash
attention there; all pairs by its "math" attention run. So that is measured, and we beside it; why
the causal one is missing stands in the record's title.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from weft.bench.clock import AllRanks
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.plan.ring import METHODS
from weft.run.ring import attention, shard, unshard
from weft.run.world import World, launch

OURS, GATHER, CONTEXT_PARALLEL = "weft, ring", "torch, all-gather", "torch, context_parallel"


class RingSizes(NamedTuple):
    """What is run: tokens, heads of a width, ranks, and how often."""

    T: int = 2048
    H: int = 8
    G: int = 8
    K: int = 64
    ranks: int = 2
    warmup: int = 1
    repeats: int = 15


FULL = RingSizes()


def steps(run: BenchRun, sizes: RingSizes = FULL) -> Found:
    """Seconds of forward and backward of everybody, and ours over each peer's, round by round."""
    run.progress(0.0, 1.0, f"{sizes.ranks} ranks, {sizes.T} tokens")
    times, refusal = launch(_measured, sizes.ranks, sizes, timeout=1800)[0]
    results = []
    for name, everybody in times.items():
        found = {who: Measurement.of(name, who, "s", taken) for who, taken in everybody.items()}
        results += found.values()
        results += [found[OURS].over(found[who]) for who in found if who.startswith("torch")]
    form = f"{sizes.T} tokens, {sizes.H} heads on {sizes.G} of width {sizes.K}, fp32"
    note = f"; torch's context_parallel, causal: {refusal}" if refusal else ""
    return f"Attention, forward and backward, over {sizes.ranks} ranks: {form}{note}", results


STEP = BenchJob("ring-step", steps)


# --- on a rank ------------------------------------------------------------------------------------


class Contestant(NamedTuple):
    """A function of this rank's q, k and v [B, T/n, H, K] that gives its o, in some layout."""

    attend: Callable[..., Tensor]
    layout: str
    within: Callable[[], AbstractContextManager] = nullcontext

    def step(self, world: World, sizes: RingSizes) -> Callable[[], list[Tensor]]:
        """What is timed: o and the gradients of q, k and v."""
        dice = torch.Generator().manual_seed(0)
        heads = sizes.H, sizes.G, sizes.G, sizes.H
        whole = [torch.randn(1, sizes.T, h, sizes.K, generator=dice) for h in heads]
        *inputs, do = (shard(x, world, self.layout) for x in whole)
        inputs = [x.requires_grad_() for x in inputs]

        def once() -> list[Tensor]:
            with self.within():
                o = self.attend(*inputs)
                return [o.detach(), *torch.autograd.grad((o * do).sum(), inputs)]

        return once


def _measured(world: World, sizes: RingSizes) -> tuple[dict[str, dict], str]:
    """Everybody's samples, causal and not, and why torch's context parallelism is not in both."""
    times, refusal = {}, ""
    for name, causal in (("causal", True), ("all pairs", False)):
        some = _contestants(world, causal)
        calls = {who: one.step(world, sizes) for who, one in some.items()}
        try:
            calls[CONTEXT_PARALLEL]()
        except (NotImplementedError, RuntimeError) as error:
            refusal = refusal or f"{str(error).splitlines()[0]:.160}"
            del calls[CONTEXT_PARALLEL]
        results = {
            who: [unshard(x, world, some[who].layout) for x in call()]
            for who, call in calls.items()
        }
        for who, found in results.items():
            torch.testing.assert_close(found, results[OURS], rtol=1e-3, atol=1e-4, msg=who)
        times[name] = AllRanks(world, sizes.warmup, sizes.repeats).samples(calls)
    return times, refusal


def _contestants(world: World, causal: bool) -> dict[str, Contestant]:
    """Ours by every method, the contiguous ring where it differs, and the peers."""
    ours = {f"weft, {method}": ("zigzag", method) for method in METHODS}
    if causal:
        ours["weft, ring, contiguous"] = "contiguous", "ring"
    how = {"world": world, "causal": causal}
    some = {
        who: Contestant(partial(attention, layout=layout, method=method, **how), layout)
        for who, (layout, method) in ours.items()
    }
    some[GATHER] = Contestant(partial(_gather, world, causal), "zigzag")
    mesh = dist.DeviceMesh.from_group(world.group(), world.device.type)
    within = partial(_context_parallel, mesh)
    some[CONTEXT_PARALLEL] = Contestant(partial(_attend, causal), "contiguous", within)
    return some


def _gather(world: World, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As Llama 3: all keys and values gathered, and each piece of the queries against a prefix."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    group, n = world.group(), world.size
    gather = getattr(functional, "all_gather_single_autograd", None)  # torch 2.13's name
    gather = gather or functional.all_gather_tensor_autograd
    whole = []
    for x in (k, v):
        every = gather(x.contiguous(), 2, group)
        pieces = every.chunk(2 * n, 2)
        order = [*pieces[::2], *reversed(pieces[1::2])]  # rank r has pieces r and 2n - 1 - r
        whole.append(torch.cat(order, 2))
    k, v = whole
    if not causal:
        return scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)
    c, done = q.shape[2] // 2, []
    for piece, x in zip((world.rank, 2 * n - 1 - world.rank), q.chunk(2, 2), strict=True):
        end = (piece + 1) * c
        mask = torch.ones(c, end, dtype=torch.bool).tril(end - c)
        prefix = k[:, :, :end], v[:, :, :end]
        done.append(scaled_dot_product_attention(x, *prefix, attn_mask=mask, enable_gqa=True))
    return torch.cat(done, 2).transpose(1, 2)


def _attend(causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What torch's context parallelism rewrites to work over ranks."""
    heads = (x.transpose(1, 2) for x in (q, k, v))
    rewritten = torch.nn.functional.scaled_dot_product_attention  # which our own import is not
    return rewritten(*heads, is_causal=causal).transpose(1, 2)


@contextmanager
def _context_parallel(mesh: dist.DeviceMesh) -> Iterator[None]:
    """torch's own. It deals out the buffers that it is given, and wants one; ours are dealt out."""
    from torch.distributed.tensor.experimental import context_parallel

    one = {"buffers": [torch.zeros(2 * mesh.size())], "buffer_seq_dims": [0]}
    with context_parallel(mesh, **one), sdpa_kernel(SDPBackend.MATH):
        yield
