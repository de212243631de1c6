"""The sizes of RetNet's paper, and of the Transformers beside them."""

from dataclasses import dataclass
from types import MappingProxyType

from weft.plan.arguments import sizes
from weft.plan.linear import STATE, state_bytes


@dataclass(frozen=True)
class RetentionModel:
    """A RetNet of `layers` of `width`, with `heads` keys of width / heads and values twice as wide.

    A Transformer of as many layers and the same width has as many parameters: RetNet's values and
    gate are twice as wide, and its MLP is half as wide. Sun et al. 2023, section 3.1.
    """

    layers: int
    width: int
    heads: int

    def __post_init__(self):
        _, width, heads = sizes(layers=self.layers, width=self.width, heads=self.heads)
        if width % heads:
            raise ValueError(f"width is {width}, must be a multiple of heads = {heads}")

    @property
    def K(self) -> int:
        """The width of a key."""
        return self.width // self.heads

    @property
    def V(self) -> int:
        """The width of a value."""
        return 2 * self.K

    @property
    def params(self) -> int:
        """Parameters of all layers, 12 L D^2; embeddings are not counted.

        >>> RETNETS["6.7b"].params
        6442450944
        """
        return 12 * self.layers * self.width**2

    def state(self, size: int = STATE) -> int:
        """Bytes of one sequence's states, `size` an element, however long it is.

        >>> RETNETS["6.7b"].state() / 2**20
        256.0
        """
        return state_bytes(self.heads, self.K, self.V, self.layers, size)

    def cache(self, share: float = 1.0, size: int = 2) -> float:
        """Bytes of a token's keys and values in the Transformer beside it.

        `share` is kv heads over heads: 1 as in the paper, 1 / 4 for 8 kv heads of 32.

        >>> RETNETS["6.7b"].cache() / 2**10, RETNETS["6.7b"].cache(1 / 4) / 2**10
        (512.0, 128.0)
        """
        (size,) = sizes(size=size)
        if not (isinstance(share, int | float) and 0 < share <= 1):
            raise ValueError(f"share is {share!r}, must be above 0 and at most 1")
        return 2 * self.layers * self.width * share * size


RETNETS = MappingProxyType(
    {
        "1.3b": RetentionModel(24, 2048, 8),
        "2.7b": RetentionModel(32, 2560, 10),
        "6.7b": RetentionModel(32, 4096, 16),
    }
)
