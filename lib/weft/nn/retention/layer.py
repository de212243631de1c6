"""Multi-scale retention: heads that forget at different rates, normalised, and gated.

    o_n = gate_n * norm(sum_{m <= n} decay^(n - m) (q_n . k_m) v_m / divisor_n)

q and k are rotated by their positions, so that their product knows how far apart they are. The
norm takes each head's output at each token alone, so a divisor before it changes nothing but
what the norm's epsilon does. The paper's divisor keeps the numbers near 1; here every form
computes it: the sum of a row of scores is what retention gives for values that are all 1.

Dims: B batch, T time, D width, H heads, K = D / H key width, V value width of one head.
"""

from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, silu

from weft.plan.arguments import amount, chosen, sizes
from weft.ref import retention

FORMS = ("parallel", "recurrent", "chunked")
State = tuple[int, Tensor]  # the position of the next token, and [B, H, K, V + 1]


def rotate(x_BTHK: Tensor, first: int = 0) -> Tensor:
    """Turn each pair of neighbours (x_2i, x_2i+1) by its position times 10000^(-i / (K/2 - 1)).

    The products of rotated queries and keys depend on the distance of their positions alone.
    `first` is the position of the first token. The slowest pair turns by 1/10000 a token, where
    RoPE's turns by 10000^(2/K - 1): the exponents here reach the end of [0, 1].
    """
    T, K = x_BTHK.shape[1], x_BTHK.shape[3]
    wide = torch.promote_types(x_BTHK.dtype, torch.float32)
    options = {"dtype": wide, "device": x_BTHK.device}
    speeds_K = 10000 ** -torch.linspace(0, 1, K // 2, **options)
    angles_THK = torch.arange(first, first + T, **options).view(-1, 1, 1) * speeds_K
    sin, cos = angles_THK.sin(), angles_THK.cos()
    even, odd = x_BTHK[..., ::2], x_BTHK[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1)
    return turned.flatten(-2).to(x_BTHK.dtype)


class MultiScaleRetention(nn.Module):
    """Retention with H decays: [B, T, D] to [B, T, D], in one of FORMS, and all give the same.

    `initial` is the state before the first token; with `final` there is a second result, the
    state after the last. The state is (position, [B, H, K, V + 1]), and its last column sums the
    keys, for the divisor. Each form goes on from the state that another left.

    Parameters have torchscale's names and sizes: values and gate of `value_width`, D if None.
    Sun et al. 2023, section 2.2 and equation 8.
    """

    def __init__(self, width: int, heads: int, value_width: int | None = None, eps: float = 1e-6):
        super().__init__()
        width, heads, wide = sizes(width=width, heads=heads, value_width=value_width or width)
        if width % (2 * heads):
            raise ValueError(f"width is {width}, must be a multiple of 2 heads, {2 * heads}")
        if wide % heads:
            raise ValueError(f"value_width is {wide}, must be a multiple of heads = {heads}")
        self.heads, self.eps = heads, amount("eps", eps)
        self.scale = (width // heads) ** -0.5
        self.decays = retention.DECAYS(heads)
        self.q_proj, self.k_proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.v_proj, self.g_proj = (nn.Linear(width, wide, bias=False) for _ in range(2))
        self.out_proj = nn.Linear(wide, width, bias=False)
        for each in (self.q_proj, self.k_proj, self.v_proj, self.g_proj):
            nn.init.xavier_uniform_(each.weight, gain=2**-2.5)
        nn.init.xavier_uniform_(self.out_proj.weight)

    def forward(
        self,
        x_BTD: Tensor,
        form: str = "parallel",
        initial: State | None = None,
        final: bool = False,
        chunk: int = 64,
    ) -> Tensor | tuple[Tensor, State]:
        """`chunk` counts in the chunked form only. Half precision is widened before any sum."""
        compute = getattr(retention, chosen("form", form, FORMS))
        options = {"chunk": chunk} if form == "chunked" else {}
        first, S = initial or (0, None)
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        flat = (project(x_BTD).to(wide) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (x.unflatten(-1, (self.heads, -1)) for x in flat)  # [B, T, H, K or V]
        q, k = rotate(q, first), rotate(k * self.scale, first)
        o, S = compute(q, k, pad(v, (0, 1), value=1.0), self.decays, S, True, **options)
        o = self._normalised(o[..., :-1], o[..., -1:], first)
        y_BTD = self.out_proj(silu(self.g_proj(x_BTD)) * o.flatten(-2).to(x_BTD.dtype))
        return (y_BTD, (first + x_BTD.shape[1], S)) if final else y_BTD

    def _normalised(self, o_BTHV: Tensor, sums_BTH1: Tensor, first: int) -> Tensor:
        """Divide as the paper does, then to a mean square of 1 in each head: RMSNorm.

        The divisor has two parts: the root of the row's sum of decays, and the row's sum of
        scores so divided, where it is above 1. No gradient goes through it.
        """
        roots = self._decayed(first, o_BTHV).to(o_BTHV.dtype).sqrt()  # [T, H, 1]
        o = o_BTHV / roots / (sums_BTH1.detach() / roots).abs().clamp(min=1)
        return o * torch.rsqrt(o.square().mean(-1, keepdim=True) + self.eps)

    def _decayed(self, first: int, o_BTHV: Tensor) -> Tensor:
        """1 + decay + ... + decay^n at each position n, [T, H, 1], in float64."""
        options = {"dtype": torch.float64, "device": o_BTHV.device}
        logs_H = torch.tensor([log(decay) for decay in self.decays], **options)
        ends_T1 = torch.arange(first + 1, first + 1 + o_BTHV.shape[1], **options)[:, None]
        sums_TH = torch.expm1(ends_T1 * logs_H) / torch.expm1(logs_H)
        return torch.where(logs_H < 0, sums_TH, ends_T1)[..., None]  # n + 1 where nothing fades
