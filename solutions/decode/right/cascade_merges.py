"""The shared part and each sequence's own, apart, and then merged by their lse."""


def cascade(q, k_cache, v_cache, tables, shared, lengths, o, sram):
    B, H, K = q.shape
    block, G, V = k_cache.shape[1], k_cache.shape[2], v_cache.shape[3]
    R = H // G

    def part(b_q, blocks, counts, g):
        b_o = sram.alloc(len(b_q), V)
        b_lse = sram.alloc(len(b_q), fill=float("-inf"))
        for at, n in zip(blocks, counts, strict=True):
            b_s = b_q @ sram.load(k_cache[at, :n, g]).T
            b_new = torch.logaddexp(b_lse, b_s.logsumexp(1))
            b_s.sub_(b_new[:, None]).exp_()
            b_o.mul_(b_lse.sub_(b_new).exp_()[:, None])
            b_o.addmm_(b_s, sram.load(v_cache[at, :n, g]))
            b_lse = b_new
        return b_o, b_lse

    for g in range(G):
        mine = slice(g * R, g * R + R)
        b_q = sram.load(q[:, mine]).mul_(K**-0.5)
        p_o, p_lse = part(b_q.flatten(0, 1), tables[0][:shared], [block] * shared, g)
        for b in range(B):
            rest = lengths[b] - shared * block
            counts = [min(block, rest - i) for i in range(0, rest, block)]
            blocks = tables[b][shared : shared + len(counts)]
            b_o, b_lse = part(b_q[b], blocks, counts, g)
            rows = slice(b * R, b * R + R)
            if shared and counts:
                b_all = torch.logaddexp(p_lse[rows], b_lse)
                b_o.mul_((b_lse - b_all).exp_()[:, None])
                b_o.add_(p_o[rows] * (p_lse[rows] - b_all).exp_()[:, None])
            elif shared:
                b_o = p_o[rows]
            sram.store(o[b, mine], b_o)
        del b_q, p_o, p_lse, b_o, b_lse
