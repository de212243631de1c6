"""A whole window at a time through the ring itself, each slot with its position."""


def extend(q, k, v, keys, values, first, slope):
    W, out, i = len(keys), [], 0
    slots = torch.arange(W)
    while i < len(q):
        n = min(W, len(q) - i)
        p = first + i
        before = p - 1 - (p - 1 - slots) % W  # the last position before p in each slot
        mine = p + torch.arange(n)
        where = torch.cat([before, mine])
        kk, vv = torch.cat([keys, k[i : i + n]]), torch.cat([values, v[i : i + n]])
        bad = where < 0
        kk, vv = kk.masked_fill(bad[:, None], 0.0), vv.masked_fill(bad[:, None], 0.0)
        back = mine.unsqueeze(1) - where
        s = torch.matmul(q[i : i + n], kk.t()) / q.shape[1] ** 0.5 - slope * back
        seen = (back >= 0) & (back < W) & ~bad
        s = torch.where(seen, s, torch.full_like(s, -1e30))
        w = torch.exp(s - s.max(1, keepdim=True).values)
        out.append(w @ vv / w.sum(1, keepdim=True))
        keys.index_copy_(0, mine % W, k[i : i + n])
        values.index_copy_(0, mine % W, v[i : i + n])
        i += n
    return torch.cat(out, dim=0)
