"""With exp of what is negative, and pointers that are moved on."""


def swiglu_backward(p_h, p_dy, p_y, F, BLOCK: tl.constexpr):
    kind = p_y.dtype.element_ty
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < F
    p_h += tl.program_id(0) * 2 * F
    p_dy += tl.program_id(0) * F
    p_y += tl.program_id(0) * F
    gate = tl.load(p_h + column, mask=inside, other=1.0).to(tl.float32)
    up = tl.load(p_h + F + column, mask=inside, other=1.0).to(tl.float32)
    e = tl.exp(-tl.abs(gate))
    s = tl.where(gate >= 0, 1.0, e) / (1.0 + e)
    tl.store(p_y + column, (gate * s * up).to(kind), mask=inside)
    d = tl.load(p_dy + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(p_h + F + column, (d * gate * s).to(kind), mask=inside)
    tl.store(p_h + column, (d * up * (s + gate * s * (1.0 - s))).to(kind), mask=inside)
