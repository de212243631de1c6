"""A small decoder whose mixing layer is passed in, and the layers: softmax and linear attention.

A mixer is called with some tokens and the state before them, and gives the state after them as
well. So one function trains, with all tokens and no state, and decodes, with one token and what
was kept. Softmax keeps all keys and values; each other rule keeps one matrix for each head.

Dims: B batch, T time, D width, H heads, K key width, V = D / H value width, N vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, gelu, layer_norm, logsigmoid, normalize, pad

from weft.nn.transformer import Config, Embedding, Head
from weft.plan.arguments import chosen
from weft.plan.linear import DECODER_RULES
from weft.ref import linear, retention
from weft.ref.attention import attention

Mixed = tuple[Tensor, Any]  # [B, T, D], and the state after the last token


def mix(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    beta: Tensor | None = None,
    initial: Tensor | None = None,
    final: bool = False,
    kernel: Callable[..., Any] | None = None,
) -> Any:
    """weft.ref.linear's rule that goes with what is given, chunked: delta, gated, or the plain one.

    The plain one is without features and normaliser. `kernel` takes the place of `chunked`.
    """
    state = {"initial": initial, "final": final}
    if beta is not None:
        return (kernel or linear.delta.chunked)(q, k, v, beta, log_decay, **state)
    if log_decay is not None:
        return (kernel or linear.gated.chunked)(q, k, v, log_decay, **state)
    plain = {"feature": "identity", "normalize": False}
    return (kernel or linear.chunked)(q, k, v, **plain, **state)


class SoftmaxMixer(nn.Module):
    """Softmax attention; the state is all keys and values so far, [B, S, H, K or V] each."""

    def __init__(self, config: Config, key_width: int | None = None):
        super().__init__()
        self.heads = config.heads
        self.qk, self.v, self.out = _projections(config, key_width)

    def forward(self, x_BTD: Tensor, state: tuple[Tensor, Tensor] | None = None) -> Mixed:
        q, k, v = _split(self, x_BTD)
        if state is not None:
            k, v = (torch.cat(both, 1) for both in zip(state, (k, v), strict=True))
        return self.out(attention(q, k, v, causal=True).flatten(-2)), (k, v)


class LinearMixer(nn.Module):
    """Attention with a state [B, H, K, V], by one of DECODER_RULES.

    "linear" has features 1 + elu and divides by their sum, for which the state has one more
    column. The others divide nothing; each head's output is normalised to mean 0 and variance 1.
    "decay" fades by retention's fixed factors; "gate" by sigmoids of the token, which begin as
    these factors; the two deltas replace what is under a key, which they make a unit vector.

    `form` computes the rule, with the face of `mix`.
    """

    def __init__(
        self,
        config: Config,
        rule: str = "linear",
        key_width: int | None = None,
        form: Callable[..., Any] = mix,
    ):
        super().__init__()
        self.rule, self.form = chosen("rule", rule, DECODER_RULES), form
        self.heads = config.heads
        self.qk, self.v, self.out = _projections(config, key_width)
        kept = torch.tensor(retention.DECAYS(config.heads))
        if rule == "decay":
            self.register_buffer("log_decay", kept.log())
        if rule in ("gate", "gated_delta"):
            self.gate = nn.Linear(config.width, config.heads)
            nn.init.zeros_(self.gate.weight)
            self.gate.bias = nn.Parameter(kept.logit())
        if rule in ("delta", "gated_delta"):
            self.beta = nn.Linear(config.width, config.heads)

    def forward(self, x_BTD: Tensor, state: Tensor | None = None) -> Mixed:
        q, k, v = _split(self, x_BTD)
        g = b = None
        if self.rule == "linear":
            q, k, v = elu(q) + 1, elu(k) + 1, pad(v, (0, 1), value=1.0)
        if self.rule == "decay":
            g = self.log_decay.expand(*x_BTD.shape[:2], -1)
        if self.rule in ("gate", "gated_delta"):
            g = logsigmoid(self.gate(x_BTD))
        if self.rule in ("delta", "gated_delta"):
            q, k, b = normalize(q, dim=-1), normalize(k, dim=-1), self.beta(x_BTD).sigmoid()
        o, state = self.form(q, k, v, log_decay=g, beta=b, initial=state, final=True)
        if self.rule == "linear":
            o = o[..., :-1] / o[..., -1:]
        else:
            o = layer_norm(o, o.shape[-1:])
        return self.out(o.flatten(-2)), state


def _projections(config: Config, key_width: int | None) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    width, H = config.width, config.heads
    keys = H * (key_width or width // H)
    qk = nn.Linear(width, 2 * keys, bias=False)
    return qk, nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)


def _split(mixer: nn.Module, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q and k [B, T, H, K], v [B, T, H, V]."""
    flat = *mixer.qk(x_BTD).chunk(2, dim=-1), mixer.v(x_BTD)
    return tuple(x.unflatten(-1, (mixer.heads, -1)) for x in flat)


class MixerBlock(nn.Module):
    """The mixer, then an MLP, each added to what it read."""

    def __init__(self, config: Config, mixer: nn.Module):
        super().__init__()
        width, hidden = config.width, config.hidden or 4 * config.width
        self.norm_mixer, self.mixer = nn.LayerNorm(width), mixer
        self.norm_mlp = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x_BTD: Tensor, state: Any = None) -> Mixed:
        y, state = self.mixer(self.norm_mixer(x_BTD), state)
        x_BTD = x_BTD + y
        return x_BTD + self.down(gelu(self.up(self.norm_mlp(x_BTD)))), state


class MixerDecoder(nn.Module):
    """Scores for the token after each one, by blocks around `mixer(config)`.

    `model(tokens [B, T])` gives [B, T, N]; the first of the tokens stands at position `first`.
    `.step(token [B], state)` gives ([B, N], state) for one more token, from no state at first:
    the state is the position and, of each block, what its mixer keeps.
    """

    def __init__(self, config: Config, mixer: Callable[[Config], nn.Module] = LinearMixer):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.blocks = nn.ModuleList(MixerBlock(config, mixer(config)) for _ in range(config.layers))
        self.head = Head(config)

    def forward(self, tokens_BT: Tensor, first: int = 0) -> Tensor:
        return self._run(tokens_BT, (first, [None] * len(self.blocks)))[0]

    def step(self, token_B: Tensor, state: tuple[int, list] | None = None) -> Mixed:
        """Scores [B, N] for the token after this one, and the state for the next step."""
        scores, state = self._run(token_B[:, None], state or (0, [None] * len(self.blocks)))
        return scores[:, 0], state

    def _run(self, tokens_BT: Tensor, state: tuple[int, list]) -> Mixed:
        (first, before), end = state, state[0] + tokens_BT.shape[1]
        if end > self.config.seq:
            raise ValueError(f"tokens end at {end}, must end within seq = {self.config.seq}")
        positions = torch.arange(first, end, device=tokens_BT.device)
        x_BTD, after = self.embedding.tokens(tokens_BT) + self.embedding.positions(positions), []
        for block, kept in zip(self.blocks, before, strict=True):
            x_BTD, kept = block(x_BTD, kept)
            after.append(kept)
        return self.head(x_BTD), (end, after)
