"""Causal attention over a sequence on several ranks: keys and values go round.

Run it with torchrun --nproc-per-node 4 ring.py.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention

T, H, G, K = 960, 4, 2, 16  # tokens, heads, heads of keys and values, width

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
rank, n = dist.get_rank(), dist.get_world_size()
sent, pairs = 0, []  # bytes sent, and for each step the scores computed

LAYOUTS = {
    "contiguous": lambda r: (2 * r, 2 * r + 1),
    "zigzag": lambda r: (r, 2 * n - 1 - r),
}


def attend(q, k, v, causal):
    """Attention to some of the keys, and each row's log-sum-exp."""
    s = scores(q, k, causal)
    return s.softmax(-1) @ v, s.logsumexp(-1, keepdim=True)


def scores(q, k, causal):
    s = q @ k.mT * K**-0.5
    hidden = torch.ones_like(s, dtype=torch.bool).triu(1)
    return s.masked_fill(hidden, -torch.inf) if causal else s


def merge(o1, lse1, o2, lse2):
    """Attention to all keys, from attention to some and to the others."""
    lse = torch.logaddexp(lse1, lse2)
    return (lse1 - lse).exp() * o1 + (lse2 - lse).exp() * o2, lse


def pass_on(*tensors):
    """Post sends to the right, receives from the left; wait for none."""
    global sent
    if n == 1:
        return tensors, []
    sent += sum(x.nbytes for x in tensors)
    coming = [torch.empty_like(x) for x in tensors]
    right, left = (rank + 1) % n, (rank - 1) % n
    messages = [dist.P2POp(dist.isend, x, right) for x in tensors]
    messages += [dist.P2POp(dist.irecv, x, left) for x in coming]
    return coming, dist.batch_isend_irecv(messages)


def arrived(handles):
    for handle in handles:
        handle.wait()


def around(k, v):
    """Each rank's keys and values, own first; the next travel meanwhile."""
    for step in range(n):
        if step < n - 1:
            coming, handles = pass_on(k, v)
        yield (rank - step) % n, k, v
        if step < n - 1:
            arrived(handles)
            k, v = coming


def visible(layout, source):
    """Which of my chunks of queries see which of a source's keys."""
    for i, mine in enumerate(LAYOUTS[layout](rank)):
        for j, theirs in enumerate(LAYOUTS[layout](source)):
            if theirs <= mine:
                yield i, j, theirs == mine  # on the diagonal: a triangle


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, layout):
        o, lse = torch.zeros_like(q), torch.full_like(q[..., :1], -torch.inf)
        ctx.layout = layout
        for source, keys, values in around(k, v):
            pairs.append(0)
            for i, j, causal in visible(layout, source):
                part = attend(q[i], keys[j], values[j], causal)
                o[i], lse[i] = merge(o[i], lse[i], *part)
                size = q.shape[-2]
                pairs[-1] += size * (size + 1) // 2 if causal else size * size
        ctx.save_for_backward(q, k, v, o, lse)
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, o, lse = ctx.saved_tensors
        dq, delta = torch.zeros_like(q), (do * o).sum(-1, keepdim=True)
        coming, handles = None, []
        for source, keys, values in around(k, v):
            dk, dv = torch.zeros_like(k), torch.zeros_like(v)
            for i, j, causal in visible(ctx.layout, source):
                p = (scores(q[i], keys[j], causal) - lse[i]).exp()
                ds = p * (do[i] @ values[j].mT - delta[i]) * K**-0.5
                dq[i] += ds @ keys[j]
                dk[j] += (ds.mT @ q[i]).sum(1, keepdim=True)
                dv[j] += (p.mT @ do[i]).sum(1, keepdim=True)
            if coming:  # what the ranks before have found for this block
                arrived(handles)
                dk, dv = dk + coming[0], dv + coming[1]
            coming, handles = pass_on(dk, dv)
        arrived(handles)  # the last hop brings them home
        return dq, *coming, None


def chunks(x, layout):
    """This rank's two chunks of a sequence, stacked."""
    parts = x.detach().chunk(2 * n, dim=-2)
    return torch.stack([parts[i] for i in LAYOUTS[layout](rank)])


torch.manual_seed(0)  # the same on every rank
q, do = torch.randn(2, G, H // G, T, K, dtype=torch.float64).to(device)
k, v = torch.randn(2, G, 1, T, K, dtype=torch.float64).to(device)
whole = [x.requires_grad_() for x in (q, k, v)]
keys, values = k.expand_as(q), v.expand_as(q)
o = scaled_dot_product_attention(q, keys, values, is_causal=True)
o.backward(do)
expected = [o, *(x.grad for x in whole)]

for layout in LAYOUTS:
    sent, pairs = 0, []
    mine = [chunks(x, layout).requires_grad_() for x in whole]
    o = Ring.apply(*mine, layout)
    forward = sent
    o.backward(chunks(do, layout))
    found = [o, *(x.grad for x in mine)]
    same = all(
        torch.allclose(a, chunks(b, layout), rtol=0, atol=1e-12)
        for a, b in zip(found, expected, strict=True)
    )
    computed = torch.zeros(n, n, dtype=torch.int64, device=device)
    computed[rank] = torch.tensor(pairs)
    dist.all_reduce(computed)
    if rank == 0:
        steps = computed.T.double()  # [step, rank]
        busy = steps.mean(1).sum() / steps.amax(1).sum()
        print(f"{layout}: as on one device: {same}")
        print(f"  sent: {forward} B forward, {sent - forward} B backward")
        for i, step in enumerate(computed.T.tolist()):
            counts = "".join(f"{x:7}" for x in step)
            print(f"  scores in step {i}:{counts}")
        print(f"  busy: {busy:.0%}")
dist.destroy_process_group()
