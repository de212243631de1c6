"""Griffin's two mixers: a gated recurrence with one number of state per channel, and a window.

    a_t = exp(-8 r_t softplus(p))        h_t = a_t h_{t-1} + sqrt(1 - a_t^2) (i_t * x_t)

r_t and i_t in (0, 1) are the recurrence gate and the input gate, p is learnt, one for a channel.
The root keeps the variance of h where the inputs are independent of each other.
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from weft.plan.arguments import whole
from weft.plan.attention import check
from weft.plan.griffin import C, check_gates, check_scan
from weft.ref.attention import attention


def rg_lru(
    x: Tensor,
    input_gate: Tensor,
    recurrence_gate: Tensor,
    a_param: Tensor,
    initial: Tensor | None = None,
    final: bool = False,
    reset: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor | None]:
    """The real-gated linear recurrent unit, one token after the other.

    Position 0 has no past: where `initial` is None, and wherever `reset` is True, h_t is
    i_t * x_t, unscaled.

    x and both gates [B, T, D], a_param [D], reset [B, T] bool give h [B, T, D] in x's dtype.
    `initial` is the state [B, D] before the first token, `final` asks for the one after the last,
    which is `initial` where T is 0; the state is kept, and half precision computed, in fp32.
    ValueError names an argument that does not fit. De et al. 2024, section 2.4.
    """
    check_gates(x, input_gate, recurrence_gate, a_param, initial, reset)
    wide = torch.promote_types(x.dtype, torch.float32)
    log_a = -C * recurrence_gate.to(wide) * softplus(a_param.to(wide))
    a, scale = log_a.exp(), (-torch.expm1(2 * log_a)).sqrt()  # [B, T, D]
    anew = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device) if reset is None else reset
    if initial is None:
        anew = anew | (torch.arange(x.shape[1], device=x.device) == 0)
    a, scale = a.masked_fill(anew[..., None], 0), scale.masked_fill(anew[..., None], 1)
    o, h = scan(a, scale * (input_gate.to(wide) * x.to(wide)), initial, final=True)
    h = None if initial is None and not x.shape[1] else h
    return (o.to(x.dtype), h) if final else o.to(x.dtype)


def scan(
    a: Tensor, x: Tensor, initial: Tensor | None = None, final: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """The linear recurrence h_t = a_t h_{t-1} + x_t, channel by channel.

    a and x [B, T, D] give h [B, T, D] in x's dtype, with `initial` the state [B, D] before the
    first token, 0 if None; `final` asks for the one after the last. The state is kept, and half
    precision computed, in fp32. ValueError names an argument that does not fit.
    """
    check_scan(a, x, initial)
    wide = torch.promote_types(x.dtype, torch.float32)
    h = x.new_zeros(x.shape[0], x.shape[2], dtype=wide) if initial is None else initial
    rows = [x.new_empty(x.shape[0], 0, x.shape[2], dtype=wide)]
    for a_t, x_t in zip(a.to(wide).unbind(1), x.to(wide).unbind(1), strict=True):
        h = a_t * h + x_t
        rows.append(h.unsqueeze(1))
    o = torch.cat(rows, 1).to(x.dtype)
    return (o, h) if final else o


def local_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Causal attention in which a query sees itself and the window - 1 keys before it.

    q [B, T, H, K], k [B, S, G, K], v [B, S, G, V] give o [B, T, H, V]; the last query stands at
    the last key. ValueError names an argument that does not fit.
    """
    sizes, window = check(q, k, v), whole("window", window)
    i = torch.arange(sizes.S - sizes.T, sizes.S, device=q.device).unsqueeze(1)
    back = i - torch.arange(sizes.S, device=q.device)
    return attention(q, k, v, mask=(back >= 0) & (back < window))
