"""Adds to the slopes that it was given, in their place."""

KIND = "mutates input"
FAILS = ["test_block", "test_block_odd", "test_block_alive", "test_block_bytes", "test_block_any"]


def block(x, dy, gain, wq, wkv, wo, gate_up, down, lengths: list[int], rank: int, wire):
    K, D = wkv.shape[1] // 2, len(gain)
    x, gain = x.detach().requires_grad_(), gain.detach().requires_grad_()
    normed = x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt() * gain
    whole = wire.gather(normed.detach())
    leaves = [w.detach().requires_grad_() for w in (whole, wq, wkv, wo, gate_up, down)]
    whole, wq, wkv, wo, gate_up, down = leaves
    q = (whole @ wq).unflatten(1, (-1, K)).transpose(0, 1)
    k, v = (whole @ wkv).chunk(2, 1)
    scores = q @ k.T / K**0.5
    later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    heads = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
    gate, up = (whole @ gate_up).chunk(2, 1)
    hidden = torch.nn.functional.silu(gate) * up
    part = heads.transpose(0, 1).flatten(1) @ wo + hidden @ down
    y = x.detach() + wire.scatter(part.detach())

    dwhole, dwq, dwkv, *others = torch.autograd.grad(part, leaves, wire.gather(dy))
    dx, dgain = torch.autograd.grad(normed, (x, gain), wire.scatter(dwhole))
    shared = wire.sum(torch.cat([dgain, dwkv.flatten()]))
    dgain, dwkv = shared[:D], shared[D:].view_as(wkv)
    return y, dy.add_(dx), dgain, dwq, dwkv, *others
