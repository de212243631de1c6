"""Gathers all keys and values of the shared blocks first."""

KIND = "too much memory"
FAILS = ["test_cascade_memory", "test_cascade_any"]


def cascade(
    q, k_cache, v_cache, tables: list[list[int]], shared: int, lengths: list[int], o, sram
) -> None:
    B, H, K = q.shape
    block, G, V = v_cache.shape[1:]
    R = H // G
    for g in range(G):
        heads = slice(g * R, (g + 1) * R)
        k, v = ([sram.load(x[at, :, g]) for at in tables[0][:shared]] for x in (k_cache, v_cache))
        for b in range(B):
            n = lengths[b] - shared * block
            mine = tables[b][shared : shared + -(-n // block)]
            ends = [min(block, n - i * block) for i in range(len(mine))]
            ks = [*k, *(sram.load(k_cache[at, :e, g]) for at, e in zip(mine, ends, strict=True))]
            vs = [*v, *(sram.load(v_cache[at, :e, g]) for at, e in zip(mine, ends, strict=True))]
            if ks:
                b_q = sram.load(q[b, heads])
                b_p = (b_q @ torch.cat(ks).T * K**-0.5).softmax(1)
                sram.store(o[b, heads], b_p @ torch.cat(vs))
            else:
                sram.store(o[b, heads], sram.alloc(R, V))
