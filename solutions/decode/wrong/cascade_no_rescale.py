"""Does not fade what the shared blocks have left when a larger score comes."""

KIND = "part left out"
FAILS = ["test_cascade", "test_cascade_bytes", "test_cascade_memory", "test_cascade_any"]


def cascade(
    q, k_cache, v_cache, tables: list[list[int]], shared: int, lengths: list[int], o, sram
) -> None:
    B, H, K = q.shape
    block, G, V = v_cache.shape[1:]
    R = H // G
    for g in range(G):
        heads = slice(g * R, (g + 1) * R)
        b_q = sram.load(q[:, heads]).mul_(K**-0.5)
        b_o = sram.alloc(B, R, V)
        b_m, b_l = sram.alloc(B, R, fill=float("-inf")), sram.alloc(B, R)
        for b in range(-1, B):  # first the blocks of all
            rows = slice(b, b + 1) if b >= 0 else slice(0, B)
            count = lengths[b] if b >= 0 else shared * block
            for start in range(shared * block if b >= 0 else 0, count, block):
                n, at = min(block, count - start), tables[b][start // block]
                b_k = sram.load(k_cache[at, :n, g])
                b_s = b_q[rows].flatten(0, 1) @ b_k.T
                del b_k
                b_s = b_s.view(-1, R, n)
                new_m = torch.maximum(b_m[rows], b_s.amax(2))
                b_s.sub_(new_m[:, :, None]).exp_()
                fade = b_m[rows].sub_(new_m).exp_()
                b_l[rows].mul_(fade).add_(b_s.sum(2))
                b_v = sram.load(v_cache[at, :n, g])
                b_o[rows].view(-1, V).addmm_(b_s.view(-1, n), b_v)
                b_m[rows] = new_m
                del b_v, b_s, new_m, fade
        sram.store(o[:, heads], b_o.div_(b_l.clamp_(min=1e-30)[:, :, None]))
        del b_q, b_o, b_m, b_l
