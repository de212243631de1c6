"""Takes the width of a key for the scale, and not what is given."""

KIND = "wrong formula"
FAILS = ["test_latent", "test_latent_ragged", "test_latent_loads", "test_latent_any"]


def latent(
    p_q, p_c, p_scales, p_r, p_table, p_o, p_lse, length, each, scale,
    H: tl.constexpr, C: tl.constexpr, R: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0)
    o_h, o_c, o_r, o_g = (
        tl.arange(0, H), tl.arange(0, C), tl.arange(0, R), tl.arange(0, C // GROUP)
    )  # fmt: skip
    p_row = p_q + o_h[:, None] * (C + R)
    scale = 1.0 / tl.sqrt(tl.full([], C + R, tl.float32))
    b_q = tl.load(p_row + o_c[None, :]) * scale
    b_turned = tl.load(p_row + C + o_r[None, :]) * scale
    b_o = tl.zeros([H, C], tl.float32)
    b_m = tl.full([H], float("-inf"), tl.float32)
    b_l = tl.zeros([H], tl.float32)
    for start in range(i * each, tl.minimum(length, (i + 1) * each), BLOCK):
        o_s = tl.arange(0, BLOCK)
        m_s = start + o_s < length
        o_slot = (tl.load(p_table + start // BLOCK) * BLOCK + o_s)[:, None]
        m_row = m_s[:, None]
        b_c = tl.load(p_c + o_slot * C + o_c[None, :], mask=m_row, other=0.0).to(tl.float32)
        b_scales = tl.load(p_scales + o_slot * (C // GROUP) + o_g[None, :], mask=m_row, other=0.0)
        b_c = tl.reshape(b_c, [BLOCK, C // GROUP, GROUP]) * b_scales[:, :, None]
        b_c = tl.reshape(b_c, [BLOCK, C])
        b_r = tl.load(p_r + o_slot * R + o_r[None, :], mask=m_row, other=0.0)
        b_s = tl.dot(b_q, tl.trans(b_c), input_precision="ieee")
        b_s = tl.dot(b_turned, tl.trans(b_r), b_s, input_precision="ieee")
        b_s = tl.where(m_s[None, :], b_s, float("-inf"))
        new_m = tl.maximum(b_m, tl.max(b_s, 1))
        b_p = tl.exp(b_s - new_m[:, None])
        fade = tl.exp(b_m - new_m)
        b_l = b_l * fade + tl.sum(b_p, 1)
        b_o = tl.dot(b_p, b_c, b_o * fade[:, None], input_precision="ieee")
        b_m = new_m
    b_l = tl.where(b_l == 0.0, 1.0, b_l)
    tl.store(p_o + (i * H + o_h)[:, None] * C + o_c[None, :], b_o / b_l[:, None])
    tl.store(p_lse + i * H + o_h, b_m + tl.log(b_l))
