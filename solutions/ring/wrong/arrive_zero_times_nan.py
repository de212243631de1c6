"""Multiplies what has seen nothing by 0, be it NaN."""

KIND = "edge of the range"
FAILS = ["test_arrive_unseen", "test_arrive_loads", "test_arrive_any"]


def arrive(
    p_o, p_lse, p_part, p_part_lse, p_rows,
    V, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0)
    b_new = tl.load(p_part_lse + i) * 0.6931471805599453
    if b_new > float("-inf"):
        row = tl.load(p_rows + i)
        b_old = tl.load(p_lse + row)
        b_m = tl.maximum(b_old, b_new)
        b_keep, b_add = tl.exp(b_old - b_m), tl.exp(b_new - b_m)
        b_sum = b_keep + b_add
        for start in range(0, V, BLOCK):
            o_v = start + tl.arange(0, BLOCK)
            m_v = o_v < V
            b_part = tl.load(p_part + i * V + o_v, mask=m_v)
            b_o = tl.load(p_o + row * V + o_v, mask=m_v)
            tl.store(p_o + row * V + o_v, (b_keep * b_o + b_add * b_part) / b_sum, mask=m_v)
        tl.store(p_lse + row, b_m + tl.log(b_sum))
