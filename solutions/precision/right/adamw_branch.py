"""A branch for what is not finite, and halves put together and parted as unsigned numbers."""


def adamw(
    p_weight, p_rest, p_gradient, p_mean, p_square, p_total,
    n, limit, lr, decay, beta1, beta2, rise1, rise2, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < n
    norm = tl.sqrt(tl.load(p_total))
    if norm < float("inf"):
        factor = 1.0
        if norm > limit:
            factor = limit / norm
        g = tl.load(p_gradient + at, mask=here).to(tl.float32) * factor
        upper = tl.load(p_weight + at, mask=here).to(tl.int16, bitcast=True).to(tl.int32)
        lower = tl.load(p_rest + at, mask=here).to(tl.int32)
        w = ((upper << 16) + lower).to(tl.float32, bitcast=True)
        m = tl.load(p_mean + at, mask=here)
        m = m + (1 - beta1) * (g - m)
        v = beta2 * tl.load(p_square + at, mask=here) + (1 - beta2) * g * g
        w = w - lr * decay * w - lr * (m / rise1) / (tl.sqrt(v / rise2) + eps)
        bits = w.to(tl.int32, bitcast=True)
        lower = ((bits & 0xFFFF) ^ 0x8000) - 0x8000
        upper = (bits - lower) >> 16
        tl.store(p_mean + at, m, mask=here)
        tl.store(p_square + at, v, mask=here)
        tl.store(p_weight + at, upper.to(tl.int16).to(tl.bfloat16, bitcast=True), mask=here)
        tl.store(p_rest + at, lower.to(tl.int16), mask=here)
