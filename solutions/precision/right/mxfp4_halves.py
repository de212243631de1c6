"""Even and odd columns loaded apart, and a code found by rounding on a grid of its own spacing."""


def code_of(b_x, b_inverse):
    b_a = tl.abs(b_x) * b_inverse
    b_step = tl.where(b_a < 2.0, 0.5, tl.where(b_a < 4.0, 1.0, 2.0))
    b_up = b_a / b_step
    b_whole = b_up.to(tl.int32)
    b_part = b_up - b_whole.to(tl.float32)
    b_odd = (b_whole & 1) == 1
    b_whole += ((b_part > 0.5) | ((b_part == 0.5) & b_odd)).to(tl.int32)
    b_count = tl.where(b_a < 2.0, b_whole, tl.where(b_a < 4.0, b_whole + 2, b_whole + 4))
    return b_count + tl.where(b_x.to(tl.int32, bitcast=True) < 0, 8, 0)


def mxfp4(
    p_x, p_codes, p_scales, rows, n, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    r = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    j = tl.program_id(1)
    even = (j * BLOCK + 2 * tl.arange(0, BLOCK // 2))[None, :]
    b_e = tl.load(p_x + r * stride + even, mask=(r < rows) & (even < n), other=0.0)
    b_o = tl.load(p_x + r * stride + even + 1, mask=(r < rows) & (even + 1 < n), other=0.0)
    b_e, b_o = b_e.to(tl.float32), b_o.to(tl.float32)
    e_bits = b_e.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    o_bits = b_o.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    most = tl.maximum(tl.max(e_bits, 1), tl.max(o_bits, 1))[:, None]
    scale = tl.maximum((most + 0x3FFFFF) // 0x800000 - 2, 0)  # up, if the fraction is beyond a half
    odd = most >= 0x7F800000
    scale = tl.where(odd, 255, scale)
    inverse = ((254 - tl.minimum(scale, 253)) << 23).to(tl.float32, bitcast=True)
    byte = code_of(b_e, inverse) + code_of(b_o, inverse) * 16
    byte = tl.where(odd, 0, byte)
    p_b = p_codes + r * ((n + 1) // 2) + even // 2
    tl.store(p_b, byte.to(tl.uint8), mask=(r < rows) & (even < n))
    tl.store(p_scales + r * tl.cdiv(n, BLOCK) + j, scale.to(tl.uint8), mask=r < rows)
