"""The tokens gathered before the norm, which every rank computes for all; the backward by hand."""


def block(x, dy, gain, wq, wkv, wo, gate_up, down, lengths, rank, wire):
    K, h, D = wkv.shape[1] // 2, wq.shape[1] // (wkv.shape[1] // 2), x.shape[1]
    every = wire.gather(x)
    T = len(every)
    scale = 1 / (every.square().mean(1, keepdim=True) + 1e-6).sqrt()
    unit = every * scale
    n = unit * gain
    kv = n @ wkv
    k, v = kv[:, :K], kv[:, K:]
    seen = torch.tril(torch.ones(T, T, dtype=torch.float64)) > 0
    q, p, a = [], [], []
    for i in range(h):
        q.append(n @ wq[:, i * K : (i + 1) * K])
        s = torch.where(seen, q[i] @ k.T * K**-0.5, -torch.inf)
        p.append(torch.softmax(s, 1))
        a.append(p[i] @ v)
    g, u = (n @ gate_up).tensor_split(2, 1)
    sig = torch.sigmoid(g)
    act = g * sig * u
    y = x + wire.scatter(torch.cat(a, 1) @ wo + act @ down)

    d = wire.gather(dy)
    ddown = act.T @ d
    dact = d @ down.T
    dg, du = dact * u * sig * (1 + g * (1 - sig)), dact * g * sig
    dgu = torch.cat([dg, du], 1)
    dwo = torch.cat(a, 1).T @ d
    da = d @ wo.T
    dn = dgu @ gate_up.T
    dk, dv, dwq = torch.zeros_like(k), torch.zeros_like(v), torch.zeros_like(wq)
    for i in range(h):
        columns = slice(i * K, (i + 1) * K)
        dv += p[i].T @ da[:, columns]
        dp = da[:, columns] @ v.T
        ds = p[i] * (dp - (dp * p[i]).sum(1, keepdim=True)) * K**-0.5
        dk += ds.T @ q[i]
        dq = ds @ k
        dwq[:, columns] = n.T @ dq
        dn += dq @ wq[:, columns].T
    dkv = torch.cat([dk, dv], 1)
    dn += dkv @ wkv.T
    dgain = wire.sum((dn * unit).sum(0))
    dwkv = wire.sum(n.T @ dkv)
    dunit = dn * gain
    dx = scale * (dunit - unit * (dunit * unit).sum(1, keepdim=True) / D)
    return y, dy + wire.scatter(dx), dgain, dwq, dwkv, dwo, n.T @ dgu, ddown
