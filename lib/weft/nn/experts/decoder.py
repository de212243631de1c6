"""The small decoder with experts in some of its blocks."""

from dataclasses import dataclass

from torch import Tensor, nn

from weft.nn.experts.layer import SwitchMLP
from weft.nn.transformer import Attention, Block, Config, Embedding, Head, causal
from weft.plan.arguments import sizes, whole
from weft.plan.experts import capacity


class SwitchBlock(Block):
    """A block whose MLP is one of many: each expert has the hidden width of the block's own."""

    def __init__(
        self,
        config: Config,
        experts: int,
        k: int = 1,
        factor: float | None = None,
        attention: Attention = causal,
    ):
        super().__init__(config, attention)
        self.experts = SwitchMLP(config.width, self.up.out_features, experts, k, factor)
        del self.up, self.down

    def mlp(self, x_BTD: Tensor) -> Tensor:
        return self.experts(x_BTD)


@dataclass(frozen=True)
class ExpertsConfig(Config):
    """A Config whose every `every`-th block has `experts`, of which a token goes to k.

    weft.nn.transformer.stages makes its stages. `factor` is that of an expert's capacity; nothing
    is dropped if None.
    """

    experts: int = 8
    k: int = 1
    factor: float | None = None
    every: int = 2

    def __post_init__(self):
        super().__post_init__()
        sizes(experts=self.experts, every=self.every)
        capacity(0, self.experts, 1.0 if self.factor is None else self.factor, self.k)

    def block(self, i: int, attention: Attention) -> Block:
        """Block i, from 0 on: the last of each `every` has experts."""
        if (i + 1) % self.every:
            return super().block(i, attention)
        return SwitchBlock(self, self.experts, self.k, self.factor, attention)


def decoder(
    config: Config,
    experts: int,
    k: int = 1,
    factor: float | None = None,
    every: int = 2,
    attention: Attention = causal,
) -> nn.Sequential:
    """weft.nn.transformer's decoder whose every `every`-th block has experts, as Switch's 2nd."""
    sparse = {"experts": experts, "k": k, "factor": factor, "attention": attention}
    blocks = [
        Block(config, attention) if i % whole("every", every) else SwitchBlock(config, **sparse)
        for i in range(1, config.layers + 1)
    ]
    return nn.Sequential(Embedding(config), *blocks, Head(config))
