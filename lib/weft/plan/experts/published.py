"""The models of Switch Transformer's table 9, as printed and as counted."""

from dataclasses import dataclass
from types import MappingProxyType

from weft.plan.arguments import instance, positive, sizes, whole

VOCAB, HEAD = 32128, 64  # of all T5s: words, and the width of a head


@dataclass(frozen=True)
class SwitchModel:
    """An encoder and a decoder of `layers` layers each; every `every`-th MLP is `experts` of them.

    `printed` are the table's parameters and `flops` its FLOPs for a sequence. Experts = 1 is a
    dense T5.
    """

    layers: int
    width: int
    hidden: int
    heads: int
    gated: bool
    experts: int
    every: int
    printed: float
    flops: float

    def __post_init__(self):
        sizes(
            layers=self.layers, width=self.width, hidden=self.hidden, heads=self.heads,
            experts=self.experts, every=self.every,
        )  # fmt: skip
        instance(bool, gated=self.gated)
        positive(printed=self.printed, flops=self.flops)

    def params(self, experts: int | None = None) -> int:
        """Parameters with that many experts in a layer, the model's own if None; no norms.

        The decoder's layers have two attentions. Embeddings are shared with the logits.
        """
        experts = self.experts if experts is None else whole("experts", experts)
        attention = 4 * self.width * self.heads * HEAD
        sparse = 2 * self.layers // self.every
        routers = sparse * self.width * experts if experts > 1 else 0
        mlps = 2 * self.layers + sparse * (experts - 1)
        fixed = VOCAB * self.width + 3 * self.layers * attention
        return fixed + mlps * self.expert + routers

    @property
    def expert(self) -> int:
        """Parameters of one expert."""
        return (3 if self.gated else 2) * self.width * self.hidden


# Fedus et al. 2022, table 9; 1571B in full
SWITCHES = MappingProxyType(
    {
        name: SwitchModel(*row)
        for name, *row in (
            ("T5-Base", 12, 768, 2048, 12, True, 1, 1, 0.2e9, 124e9),
            ("T5-XXL", 24, 4096, 10240, 64, True, 1, 1, 11e9, 6.3e12),
            ("Switch-Base", 12, 768, 2048, 12, True, 128, 2, 7e9, 124e9),
            ("Switch-Large", 24, 1024, 2816, 16, True, 128, 2, 26e9, 425e9),
            ("Switch-XXL", 24, 4096, 10240, 64, True, 64, 2, 395e9, 6.3e12),
            ("Switch-C", 15, 2080, 6144, 32, False, 2048, 1, 1571e9, 890e9),
        )
    }
)
