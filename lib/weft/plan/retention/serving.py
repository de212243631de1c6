"""What serving keeps and moves: weights once, and for each sequence states or a cache."""

from dataclasses import dataclass
from math import floor, inf

from weft.plan.arguments import amount, amounts, instance, positive, whole
from weft.plan.linear import STATE
from weft.plan.retention.models import RetentionModel


@dataclass(frozen=True)
class ServedModel:
    """Bytes that a server keeps: `weights`, and of each sequence `state` and, a token, `token`.

    A decoding step reads the weights once for all sequences, reads and writes each one's states,
    and reads each one's cache. What a step adds to a cache, and activations, are not counted.
    """

    weights: float
    state: float = 0
    token: float = 0

    def __post_init__(self):
        amounts(weights=self.weights, state=self.state, token=self.token)

    def bytes(self, batch: int, tokens: int, page: int = 1) -> float:
        """Bytes of `batch` sequences with so many tokens each; a cache is kept in whole pages."""
        batch, tokens, page = _counts(batch, tokens, page)
        return self.weights + batch * (self.state + self.token * page * -(-tokens // page))

    def moved(self, batch: int, tokens: int) -> float:
        """Bytes that a step moves, which makes one more token of each sequence."""
        batch, tokens, _ = _counts(batch, tokens, 1)
        return self.weights + batch * (2 * self.state + self.token * tokens)

    def most(self, memory: float, tokens: int, page: int = 1) -> float:
        """The most sequences of so many tokens that have room; inf where they take none."""
        (memory,) = positive(memory=memory)
        each = self.bytes(1, tokens, page) - self.weights
        return max(0, floor((memory - self.weights) / each)) if each else inf

    def rate(self, batch: int, tokens: int, bandwidth: float) -> float:
        """The most tokens in a second of all sequences together, if bytes alone take time."""
        moved = self.moved(batch, tokens)
        return whole("batch", batch) * amount("bandwidth", bandwidth, above=True) / moved


def of_states(model: RetentionModel, size: int = STATE, weight: int = 2) -> ServedModel:
    """What a RetNet keeps: states of `size` bytes an element, weights of `weight` bytes each."""
    instance(RetentionModel, model=model)
    return ServedModel(whole("weight", weight) * model.params, state=model.state(size))


def of_cache(
    model: RetentionModel, share: float = 1.0, size: int = 2, weight: int = 2
) -> ServedModel:
    """What the Transformer beside it keeps; `share` is kv heads over heads.

    >>> from weft.plan.retention import RETNETS
    >>> paper = of_cache(RETNETS["6.7b"]), of_states(RETNETS["6.7b"])
    >>> round(paper[0].bytes(8, 8192) / paper[1].bytes(8, 8192), 1)
    3.1
    """
    instance(RetentionModel, model=model)
    return ServedModel(whole("weight", weight) * model.params, token=model.cache(share, size))


def _counts(batch: int, tokens: int, page: int) -> tuple[int, int, int]:
    return whole("batch", batch), whole("tokens", tokens, least=0), whole("page", page)
