"""Has the MLP"s whole matrices on every rank, for its own tokens."""

KIND = "too much memory"
FAILS = ["test_block_alive", "test_block_bytes", "test_block_any"]


def block(x, dy, gain, wq, wkv, wo, gate_up, down, lengths: list[int], rank: int, wire):
    K, D, f, n = wkv.shape[1] // 2, len(gain), len(down), len(lengths)
    sizes = torch.zeros(n, dtype=torch.float64)
    sizes[rank] = f
    sizes = [int(size) for size in wire.sum(sizes).tolist()]
    F, begin = sum(sizes), sum(sizes[:rank])
    every = torch.zeros(3, F, D, dtype=torch.float64)
    every[0, begin : begin + f], every[1, begin : begin + f] = gate_up.T[:f], gate_up.T[f:]
    every[2, begin : begin + f] = down
    mlp = wire.sum(every).requires_grad_()
    x, gain = x.detach().requires_grad_(), gain.detach().requires_grad_()
    normed = x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt() * gain
    made = (torch.nn.functional.silu(normed @ mlp[0].T) * (normed @ mlp[1].T)) @ mlp[2]
    whole = wire.gather(normed.detach())
    leaves = [w.detach().requires_grad_() for w in (whole, wq, wkv, wo)]
    whole, wq, wkv, wo = leaves
    q = (whole @ wq).unflatten(1, (-1, K)).transpose(0, 1)
    k, v = (whole @ wkv).chunk(2, 1)
    scores = q @ k.T / K**0.5
    later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    heads = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
    part = heads.transpose(0, 1).flatten(1) @ wo
    y = (x + made).detach() + wire.scatter(part.detach())

    dwhole, dwq, dwkv, dwo = torch.autograd.grad(part, leaves, wire.gather(dy))
    slopes = dy, wire.scatter(dwhole)
    dx, dgain, dmlp = torch.autograd.grad((made, normed), (x, gain, mlp), slopes)
    dmlp = wire.sum(dmlp)[:, begin : begin + f]
    dgate_up, ddown = torch.cat([dmlp[0], dmlp[1]]).T.contiguous(), dmlp[2].contiguous()
    shared = wire.sum(torch.cat([dgain, dwkv.flatten()]))
    dgain, dwkv = shared[:D], shared[D:].view_as(wkv)
    return y, dx + dy, dgain, dwq, dwkv, dwo, dgate_up, ddown
