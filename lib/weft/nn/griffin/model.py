"""Griffin and Hawk, whole: scores for the next token, from all tokens or from one and a state.

Dims: B batch, T time, D width, N vocabulary.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from weft.nn.griffin.mixers import LocalAttention, RecurrentBlock, Scan
from weft.ref.griffin import scan

KINDS = ("recurrent", "attention")


@dataclass(frozen=True)
class GriffinConfig:
    """Sizes: `layers` of `width`, mixing by the kinds in `pattern`, over and over.

    `recurrent` is the width of the recurrence, `hidden` of the MLP, `heads` those of attention
    and the blocks of the gates, `window` how many tokens attention sees, `taps` how many the
    convolution does, `soft_cap` what scores stay below. `recurrent` is `width` if None, and
    `hidden` three times it. ValueError names what does not fit.
    """

    layers: int = 3
    width: int = 64
    heads: int = 4
    kv_heads: int = 1
    vocab: int = 256
    window: int = 32
    recurrent: int | None = None
    hidden: int | None = None
    taps: int = 4
    pattern: tuple[str, ...] = ("recurrent", "recurrent", "attention")
    soft_cap: float = 30.0
    theta: float = 10000.0
    rotated: float = 0.5
    epsilon: float = 1e-6

    def __post_init__(self):
        for name in ("layers", "width", "heads", "kv_heads", "vocab", "window", "taps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        for kind in self.pattern:
            if kind not in KINDS:
                raise ValueError(f"pattern has {kind!r}, must have {' and '.join(KINDS)} alone")
        for name, whole in (("width", self.width), ("recurrent", self.recurrent or self.width)):
            if whole % self.heads:
                raise ValueError(f"{name} is {whole}, must be a multiple of heads = {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads is {self.kv_heads}, must divide heads = {self.heads}")

    @property
    def kinds(self) -> list[str]:
        """Of each layer, what it mixes by."""
        return [self.pattern[i % len(self.pattern)] for i in range(self.layers)]


class RMSNorm(nn.Module):
    """x / root of its mean square, times 1 + weight; in fp32 at least."""

    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.zeros(width)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return (wide * (1 + self.weight)).to(x.dtype)


class GriffinBlock(nn.Module):
    """A mixer, then an MLP with a gate, each added to what it read."""

    def __init__(self, config: GriffinConfig, kind: str, scan: Scan):
        super().__init__()
        width, hidden = config.width, config.hidden or 3 * config.width
        recurrent = config.recurrent or width
        self.norm_mixer = RMSNorm(width, config.epsilon)
        if kind == "recurrent":
            self.mixer = RecurrentBlock(width, recurrent, config.heads, config.taps, scan)
        else:
            sizes = config.heads, config.kv_heads, config.window, config.theta, config.rotated
            self.mixer = LocalAttention(width, *sizes)
        self.norm_mlp = RMSNorm(width, config.epsilon)
        self.gate, self.up = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x_BTD: Tensor, first: int = 0, state: Any = None) -> tuple[Tensor, Any]:
        y, state = self.mixer(self.norm_mixer(x_BTD), first, state)
        x_BTD = x_BTD + y
        y = self.norm_mlp(x_BTD)
        return x_BTD + self.down(gelu(self.gate(y), approximate="tanh") * self.up(y)), state


class Griffin(nn.Module):
    """Two recurrent layers, then one of local attention: De et al. 2024's Griffin.

    `model(tokens [B, T])` gives scores [B, T, N] for the token after each. `.step(token [B],
    state)` gives ([B, N], state) for one more token, from no state at first. The state is the
    position and what each mixer keeps: its size does not depend on the position. `scan` is
    weft.ref.griffin.scan, or a function with its face.
    """

    def __init__(self, config: GriffinConfig, scan: Scan = scan):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.blocks = nn.ModuleList(GriffinBlock(config, kind, scan) for kind in config.kinds)
        self.norm = RMSNorm(config.width, config.epsilon)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.run(tokens_BT, None)[0]

    def step(self, token_B: Tensor, state: tuple[int, list] | None = None) -> tuple[Tensor, Any]:
        """Scores [B, N] for the token after this one, and the state for the next step."""
        scores, state = self.run(token_B[:, None], state)
        return scores[:, 0], state

    def run(self, tokens_BT: Tensor, state: tuple[int, list] | None) -> tuple[Tensor, Any]:
        """Scores of some tokens after those that made the state, and the state after them."""
        first, before = state or (0, [None] * len(self.blocks))
        # Published weights were trained with this root rounded to bf16.
        root = torch.tensor(self.config.width**0.5, dtype=torch.bfloat16).item()
        x_BTD, after = self.embedding(tokens_BT) * root, []
        for block, kept in zip(self.blocks, before, strict=True):
            x_BTD, kept = block(x_BTD, first, kept)
            after.append(kept)
        scores, cap = self.norm(x_BTD) @ self.embedding.weight.T, self.config.soft_cap
        return (scores / cap).tanh() * cap, (first + tokens_BT.shape[1], after)


class Hawk(Griffin):
    """Griffin without its attention: every layer is recurrent, whatever the config's pattern."""

    def __init__(self, config: GriffinConfig, scan: Scan = scan):
        super().__init__(replace(config, pattern=("recurrent",)), scan)
