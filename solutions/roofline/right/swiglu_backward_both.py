"""Gate and up in one load, and in one store."""


def swiglu_backward(p_h, p_dy, p_y, F, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    both = p_h + row * 2 * F + tl.arange(0, 2)[None, :] * F + o[:, None]
    gate, up = tl.split(tl.load(both, mask=o[:, None] < F).to(tl.float32))
    d = tl.load(p_dy + row * F + o, mask=o < F).to(tl.float32)
    s = tl.sigmoid(gate)
    tl.store(p_y + row * F + o, gate * s * up, mask=o < F)
    slopes = tl.join(d * up * s * (1 + gate * (1 - s)), d * gate * s)
    tl.store(both, slopes, mask=o[:, None] < F)
