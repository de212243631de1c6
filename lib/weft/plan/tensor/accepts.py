"""What the layers between two cut matrices accept, and what is known of a part of a vocabulary."""

from typing import Any, NamedTuple

from weft.plan.arguments import amount, whole
from weft.plan.tensors import ranked, tensor


class VocabularyPart(NamedTuple):
    """Of each token's scores for some words: all that the cross-entropy has to know of them.

    All [..], in fp32 or wider.
    """

    most: Any  # the largest score, -inf where there are no words
    sums: Any  # of exp(score - most)
    target: Any  # the target's score, 0 where it is not among these words

    @property
    def lse(self) -> Any:
        """The log of the sum of all exponentials."""
        return self.most + self.sums.log()

    @property
    def loss(self) -> Any:
        """Each token's cross-entropy in nats, if these words are the whole vocabulary."""
        return self.lse - self.target


def check_norm(x: Any, weight: Any, bias: Any, residual: Any, eps: float) -> None:
    """x [.., D], weight [D], bias [D] or None, residual as x or None; or what is wrong."""
    D = _rows("x", x)[-1]
    tensor("weight", weight, "[D] of x", (D,), beside=("x", x))
    if bias is not None:
        tensor("bias", bias, "[D] of x", (D,), beside=("x", x))
    if residual is not None:
        tensor("residual", residual, "[.., D] as x", x.shape, beside=("x", x))
        _alike("residual", residual, "x", x)
    amount("eps", eps)


def check_swiglu(gate: Any, up: Any) -> None:
    """gate and up [.., F] of one dtype on one device; or what is wrong."""
    _rows("gate", gate)
    tensor("up", up, "[.., F] as gate", gate.shape, beside=("gate", gate))
    _alike("up", up, "gate", gate)


def check_part(scores: Any, targets: Any, first: int = 0, last: int | None = None) -> int:
    """How many words scores [.., N] have, `first` to `last` - 1 of the vocabulary: N if None.

    Columns behind them are padding. `targets` [..] are int64.
    """
    *rows, N = _rows("scores", scores)
    dims = f"[..] of scores {list(scores.shape)}"
    tensor("targets", targets, dims, rows, dtypes=("int64",), beside=("scores", scores))
    first = whole("first", first, 0)
    if last is None:
        return N
    last = whole("last", last, 0)
    if not first <= last <= first + N:
        raise ValueError(
            f"last is {last}, must be from first = {first} to {first + N}, where scores end"
        )
    return last - first


def check_words(name: str, words: Any, total: int) -> None:
    """ValueError unless all are from 0 to total - 1."""
    if words.numel() and not (int(words.min()) >= 0 and int(words.max()) < total):
        raise ValueError(
            f"{name} are from {int(words.min())} to {int(words.max())}, must be from 0 to "
            f"{total - 1}"
        )


def _rows(name: str, value: Any) -> tuple[int, ...]:
    """The sizes of a floating tensor of any number of rows, none included, in any dims."""
    dims = max(2, len(getattr(value, "shape", ())))
    return ranked(name, value, ".. " * (dims - 1) + "D", empty="..")


def _alike(name: str, value: Any, other: str, like: Any) -> None:
    if value.dtype != like.dtype:
        raise ValueError(f"{name} is {value.dtype}, must be {like.dtype}, as {other}")
