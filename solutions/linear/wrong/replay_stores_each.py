"""Stores the state after each settled token."""

KIND = "too many bytes"
FAILS = ["test_replay_loads", "test_replay_any"]


def replay(
    p_S, p_q, p_k, p_v, p_g, p_beta, p_settled, p_count, p_o, N, K, V,
    TILE_K: tl.constexpr, TILE_V: tl.constexpr,
):  # fmt: skip
    i_b = tl.program_id(0)
    o_k, o_v = tl.arange(0, TILE_K), tl.program_id(1) * TILE_V + tl.arange(0, TILE_V)
    m_k, m_v = o_k < K, o_v < V
    p_tile = p_S + i_b * K * V + o_k[:, None] * V + o_v[None, :]
    m_tile = m_k[:, None] & m_v[None, :]
    b_S = tl.load(p_tile, mask=m_tile, other=0.0)
    settled = tl.load(p_settled + i_b)
    for t in range(settled):
        i = i_b * N + t
        b_S = written(b_S, p_k, p_v, p_g, p_beta, i, K, V, o_k, o_v)
        tl.store(p_tile, b_S, mask=m_tile)
    for t in range(settled, tl.load(p_count + i_b)):
        i = i_b * N + t
        b_S = written(b_S, p_k, p_v, p_g, p_beta, i, K, V, o_k, o_v)
        b_q = tl.load(p_q + i * K + o_k, mask=m_k, other=0.0)
        tl.store(p_o + i * V + o_v, tl.sum(b_q[:, None] * b_S, 0), mask=m_v)
