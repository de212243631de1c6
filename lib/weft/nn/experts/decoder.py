"""The small decoder with experts in some of its blocks."""

from torch import Tensor, nn

from weft.nn.experts.layer import SwitchMLP
from weft.nn.transformer import Attention, Block, Config, Embedding, Head, causal
from weft.plan.arguments import whole


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
