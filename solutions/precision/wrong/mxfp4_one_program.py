"""Lets the programs of the first rows do the work of all."""

KIND = "other mechanism"
FAILS = [
    "test_mxfp4_any",
    "test_mxfp4_moved",
]


def mxfp4(
    p_x, p_codes, p_scales, rows, n, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    first = tl.program_id(0) == 0
    for i in range(tl.where(first, (rows + ROWS - 1) // ROWS, 0)):
        o_r = i * ROWS + tl.arange(0, ROWS)
        o_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        m_x = (o_r < rows)[:, None] & (o_n < n)[None, :]
        b_x = tl.load(p_x + o_r[:, None] * stride + o_n[None, :], mask=m_x, other=0.0).to(
            tl.float32
        )
        b_bits = b_x.to(tl.int32, bitcast=True)
        b_most = tl.max(b_bits & 0x7FFFFFFF, 1)
        b_c = (b_most >> 23) - 2 + ((b_most & 0x7FFFFF) > 0x400000).to(tl.int32)
        b_c = tl.maximum(b_c, 0)
        b_inverse = ((254 - b_c) << 23).to(tl.float32, bitcast=True)
        b_a = tl.abs(b_x) * b_inverse[:, None]
        b_code = (b_a > 0.25).to(tl.int32) + (b_a >= 0.75) + (b_a > 1.25) + (b_a >= 1.75)
        b_code = (
            b_code + (b_a > 2.5) + (b_a >= 3.5) + (b_a > 5.0) + ((b_bits < 0).to(tl.int32) << 3)
        )
        m_odd = b_most >= 0x7F800000
        b_code = tl.where(m_odd[:, None], 0, b_code)
        b_low, b_high = tl.split(tl.reshape(b_code, (ROWS, BLOCK // 2, 2)))
        o_b = tl.program_id(1) * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
        m_b = (o_r < rows)[:, None] & (o_b < (n + 1) // 2)[None, :]
        p_b = p_codes + o_r[:, None] * ((n + 1) // 2) + o_b[None, :]
        tl.store(p_b, (b_low | (b_high << 4)).to(tl.uint8), mask=m_b)
        p_s = p_scales + o_r * ((n + BLOCK - 1) // BLOCK) + tl.program_id(1)
        tl.store(p_s, tl.where(m_odd, 255, b_c).to(tl.uint8), mask=o_r < rows)
