"""Griffin's two mixers, with what each keeps of the tokens before.

    RecurrentBlock    gelu(linear(x)) * RG-LRU(convolution(linear(x))), then a linear
                      keeps the last inputs of the convolution, and one number for each channel
    LocalAttention    softmax attention over the last `window` tokens
                      keeps the keys and values of these in a ring: token t in slot t % window

Both are called with tokens [B, T, D], their first position and the state, None before the first,
and give [B, T, D] and the state after them. One token and the state is decoding; all tokens and
None is training.

Dims: B batch, T time, D width, R width of the recurrence, H heads (of attention, and blocks of the
gates), G kv heads, K width of one head, W window.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, gelu, pad, softplus

from weft.plan.griffin import C
from weft.ref.attention import attention
from weft.ref.griffin import scan

Scan = Callable[..., tuple[Tensor, Tensor]]  # a, x, initial, final=True: all states, the last
STEEPEST = 1000.0  # the most that the square root's derivative may be


class BoundedRoot(torch.autograd.Function):
    """The square root, with a derivative of at most STEEPEST.

    It would be infinite where a gate is shut so far that a rounds to 1, and with it
    the gradient of all weights before.
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sqrt()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * (0.5 / x.sqrt()).clamp(max=STEEPEST)


def rg_lru(
    x: Tensor,
    input_gate: Tensor,
    recurrence_gate: Tensor,
    a_param: Tensor,
    initial: Tensor | None = None,
    scan: Scan = scan,
) -> tuple[Tensor, Tensor]:
    """weft.ref.griffin.rg_lru as a model trains it: any scan, and a root with a bounded slope.

    x and gates [B, T, R], a_param [R], initial [B, R] give all states [B, T, R] and the last, in
    fp32 at least. Without `initial` the first token has no past, and is not scaled.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    log_a = -C * recurrence_gate.to(wide) * softplus(a_param.to(wide))
    scale = BoundedRoot.apply(-torch.expm1(2 * log_a))
    if initial is None:
        scale = torch.cat([torch.ones_like(scale[:, :1]), scale[:, 1:]], 1)
        initial = scale.new_zeros(x.shape[0], x.shape[2])
    return scan(log_a.exp(), scale * (input_gate * x).to(wide), initial, final=True)


class Gate(nn.Module):
    """A sigmoid of a linear that is block-diagonal: each block of channels sees itself alone."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        size = width // blocks
        self.weight = nn.Parameter(torch.randn(blocks, size, size) / size**0.5)
        self.bias = nn.Parameter(torch.zeros(blocks, size))

    def forward(self, x_BTR: Tensor) -> Tensor:
        x = x_BTR.unflatten(-1, self.bias.shape)
        return (torch.einsum("bthi,hij->bthj", x, self.weight) + self.bias).sigmoid().flatten(-2)


class RecurrentBlock(nn.Module):
    """A gated branch times a recurrent one; the state is (last inputs [B, R, 3], h [B, R])."""

    def __init__(self, width: int, recurrent: int, blocks: int, taps: int = 4, scan: Scan = scan):
        super().__init__()
        self.taps, self.scan = taps, scan
        self.y, self.x = nn.Linear(width, recurrent), nn.Linear(width, recurrent)
        self.taps_weight = nn.Parameter(torch.randn(recurrent, 1, taps) / taps**0.5)
        self.taps_bias = nn.Parameter(torch.zeros(recurrent))
        self.input_gate = Gate(recurrent, blocks)
        self.recurrence_gate = Gate(recurrent, blocks)
        kept = torch.empty(recurrent).uniform_(0.9**2, 0.999**2).sqrt()  # a, at a gate of 1
        self.a_param = nn.Parameter((-kept.log() / C).expm1().log())
        self.out = nn.Linear(recurrent, width)

    def forward(
        self, x_BTD: Tensor, first: int = 0, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = self.x(x_BTD).transpose(1, 2)  # [B, R, T]
        before, h = (None, None) if state is None else state
        x = pad(x, (self.taps - 1, 0)) if before is None else torch.cat([before, x], -1)
        kept = x[..., x.shape[-1] - (self.taps - 1) :]
        x = conv1d(x, self.taps_weight, self.taps_bias, groups=x.shape[1]).transpose(1, 2)
        gates = self.input_gate(x), self.recurrence_gate(x)
        o, h = rg_lru(x, *gates, self.a_param, h, self.scan)
        gated = gelu(self.y(x_BTD), approximate="tanh")
        return self.out(o.to(x.dtype) * gated), (kept, h)


class LocalAttention(nn.Module):
    """Attention over the last `window` tokens; keys and values [B, W, G, K] each are its state.

    Positions are told to q and k by rotating half of each head, each pair of channels by the
    position times a rate of its own. A ring needs no order: a key carries its position.
    """

    def __init__(
        self, width: int, heads: int, kv_heads: int, window: int, theta: float = 10000.0,
        rotated: float = 0.5,
    ):  # fmt: skip
        super().__init__()
        size = width // heads
        self.heads, self.window = heads, window
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * size, bias=False)
        self.v = nn.Linear(width, kv_heads * size, bias=False)
        self.out = nn.Linear(width, width)
        turned = int(size * rotated)
        rates = theta ** -(torch.arange(0, turned, 2).double() / turned)
        self.register_buffer("rates", rates, persistent=False)

    def forward(
        self, x_BTD: Tensor, first: int = 0, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        T, W = x_BTD.shape[1], self.window
        position = torch.arange(first, first + T, device=x_BTD.device)
        q = self.turned(self.q(x_BTD).unflatten(-1, (self.heads, -1)), position)
        G = self.k.out_features * self.heads // self.q.out_features
        k, v = (one(x_BTD).unflatten(-1, (G, -1)) for one in (self.k, self.v))
        k = self.turned(k, position)
        held = 0 if state is None else min(first, W)
        if held:
            slots = torch.arange(first - held, first, device=k.device) % W
            k, v = (
                torch.cat([old[:, slots], new], 1) for old, new in zip(state, (k, v), strict=True)
            )
        back = position[:, None] - torch.arange(first - held, first + T, device=k.device)
        o = attention(q, k, v, mask=(back >= 0) & (back < W))
        return self.out(o.flatten(-2)), self.ring(k, v, first + T)

    def turned(self, x_BTHK: Tensor, position_T: Tensor) -> Tensor:
        """Channels i and i + half of the first ones rotated by position times rate i."""
        half = len(self.rates)
        angle = (position_T[:, None] * self.rates)[:, None]  # [T, 1, half]
        cos, sin = angle.cos().to(x_BTHK.dtype), angle.sin().to(x_BTHK.dtype)
        a, b, rest = x_BTHK.split([half, half, x_BTHK.shape[-1] - 2 * half], -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def ring(self, k: Tensor, v: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """The last `window` keys and values, of which the last stands at position end - 1."""
        W = self.window
        held = min(W, k.shape[1])
        slots = torch.arange(end - held, end, device=k.device) % W
        rings = []
        for x in (k, v):
            ring = x.new_zeros(x.shape[0], W, *x.shape[2:])
            rings.append(ring.index_copy(1, slots, x[:, x.shape[1] - held :]))
        return tuple(rings)
