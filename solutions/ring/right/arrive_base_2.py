"""In base 2 throughout, its row first, with masks in place of branches."""


def arrive(p_o, p_lse, p_part, p_part_lse, p_rows, V, BLOCK: tl.constexpr):
    LOG2E: tl.constexpr = 1.4426950408889634
    i = tl.program_id(0)
    b_new = tl.load(p_part_lse + i)
    m_new = b_new != float("-inf")
    row = tl.load(p_rows + i, mask=m_new, other=0)
    b_old = tl.load(p_lse + row, mask=m_new, other=float("-inf")) * LOG2E
    m_old = b_old != float("-inf")
    b_m = tl.where(m_new, tl.maximum(b_new, b_old), 0.0)
    b_lse = b_m + tl.log2(tl.exp2(b_new - b_m) + tl.exp2(b_old - b_m))
    b_w, b_keep = tl.exp2(b_new - b_lse), tl.exp2(b_old - b_lse)
    for j in range(tl.cdiv(V, BLOCK)):
        o = j * BLOCK + tl.arange(0, BLOCK)
        m = (o < V) & m_new
        b_x = tl.load(p_part + i * V + o, mask=m, other=0.0)
        b_y = tl.load(p_o + row * V + o, mask=m & m_old, other=0.0)
        tl.store(p_o + row * V + o, b_w * b_x + b_keep * b_y, mask=m)
    tl.store(p_lse + row, b_lse / LOG2E, mask=m_new)
