"""Takes gradients that are small up to the limit."""

KIND = "special case"
FAILS = [
    "test_adamw",
    "test_adamw_any",
    "test_adamw_exact",
    "test_adamw_moved",
]


def adamw(
    p_weight, p_rest, p_gradient, p_mean, p_square, p_total,
    n, limit, lr, decay, beta1, beta2, rise1, rise2, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    o_w = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(p_total)
    m_w = (o_w < n) & (total < float("inf"))
    norm = tl.sqrt(total)
    b_g = tl.load(p_gradient + o_w, mask=m_w, other=0.0).to(tl.float32)
    b_g = tl.where(norm > 0, b_g * (limit / tl.maximum(norm, 1e-30)), b_g)
    b_m = tl.load(p_mean + o_w, mask=m_w, other=0.0)
    b_v = tl.load(p_square + o_w, mask=m_w, other=0.0)
    b_bits = tl.load(p_weight + o_w, mask=m_w, other=0.0).to(tl.float32).to(tl.int32, bitcast=True)
    b_bits += tl.load(p_rest + o_w, mask=m_w, other=0).to(tl.int32)
    b_w = b_bits.to(tl.float32, bitcast=True)
    b_m = beta1 * b_m + (1 - beta1) * b_g
    b_v = beta2 * b_v + (1 - beta2) * b_g * b_g
    b_w -= lr * (decay * b_w + (b_m / rise1) / (tl.sqrt(b_v / rise2) + eps))
    b_bits = b_w.to(tl.int32, bitcast=True)
    b_upper = (b_bits + 32768) & -65536
    tl.store(p_mean + o_w, b_m, mask=m_w)
    tl.store(p_square + o_w, b_v, mask=m_w)
    tl.store(p_weight + o_w, b_upper.to(tl.float32, bitcast=True).to(tl.bfloat16), mask=m_w)
    tl.store(p_rest + o_w, (b_bits - b_upper).to(tl.int16), mask=m_w)
