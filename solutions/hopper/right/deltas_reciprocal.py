"""Multiplies by 127 over the largest, and rounds magnitudes."""


def deltas(
    p_o, p_do, p_delta, p_eight, p_scale,
    T, K, stride_o, stride_do, length,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    rows = block * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, COLUMNS)[None, :]
    given = (rows < length) & (columns < K)
    slope = tl.load(p_do + rows * stride_do + columns, mask=given, other=0.0).to(tl.float32)
    out = tl.load(p_o + rows * stride_o + columns, mask=given, other=0.0).to(tl.float32)
    size = tl.abs(slope)
    most = tl.max(size)
    if most > 0:
        size = tl.floor(size * (127 / most) + 0.5)
    whole = tl.where(slope < 0, -size, size).to(tl.int32)
    tl.store(p_scale + block, most / 127)
    tl.store(p_eight + rows * K + columns, whole, mask=(rows < T) & (columns < K))
    delta = tl.sum(slope * out, 1)
    own = block * ROWS + tl.arange(0, ROWS)
    tl.store(p_delta + own, delta, mask=own < T)
