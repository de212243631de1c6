"""A layer of experts on several ranks: route, send, compute, send back.

Run it with torchrun --nproc-per-node 4 experts.py.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.functional import one_hot

T, D, F, E = 96, 16, 32, 8  # tokens of a rank, width, hidden layer, experts

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
rank, n = dist.get_rank(), dist.get_world_size()
sent = 0  # bytes that this rank sends to others


def route(x, router, capacity):
    """Probabilities, each token's expert, and whether that has room."""
    p = (x @ router).softmax(-1)
    expert = p.argmax(-1)
    place = one_hot(expert, E).cumsum(0).gather(1, expert[:, None])[:, 0]
    return p, expert, place <= capacity  # places are 1, 2, ... by arrival


class Exchange(torch.autograd.Function):
    """Send out[r] rows to each rank r, receive back[r] rows from it."""

    @staticmethod
    def forward(ctx, rows, out, back):
        global sent
        sent += (sum(out) - out[rank]) * D * rows.element_size()
        ctx.counts = out, back
        came = rows.new_empty(sum(back), D)
        dist.all_to_all_single(came, rows.contiguous(), back, out)
        return came

    @staticmethod
    def backward(ctx, gradient):
        out, back = ctx.counts
        return Exchange.apply(gradient, back, out), None, None


def experts(x, router, up, down, capacity=T):
    """What experts make of this rank's tokens: 0 where there is no room."""
    p, expert, kept = route(x, router, capacity)
    token = kept.nonzero()[:, 0]
    token = token[expert[token].argsort(stable=True)]  # by expert
    counts = expert[token].bincount(minlength=E)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)  # what ranks have for mine
    out, back = (c.view(n, -1).sum(1).tolist() for c in (counts, theirs))

    rows = Exchange.apply(x[token], out, back)
    local = torch.arange(E // n, device=device).repeat(n)
    whose = local.repeat_interleave(theirs)  # each row's expert among mine
    made = torch.zeros_like(rows)
    for e in range(E // n):
        made[whose == e] = (rows[whose == e] @ up[e]).relu() @ down[e]
    made = Exchange.apply(made, back, out)

    weight = p[token, expert[token]]
    return torch.zeros_like(x).index_add(0, token, weight[:, None] * made)


def loads(x, router):
    """How many of this rank's tokens choose each expert."""
    return route(x, router, T)[1].bincount(minlength=E)


def balance(x, router):
    """E times the sum of f P: shares of tokens, mean probabilities."""
    f = loads(x, router) / len(x)  # a constant for the gradient
    return E * (f * (x @ router).softmax(-1).mean(0)).sum()


def alone(x, router, up, down):
    """The same in one process: all experts for all tokens, then choose."""
    p, expert, _ = route(x, router, len(x))
    made = (x @ up).relu() @ down  # [E, tokens, D]
    token = torch.arange(len(x), device=device)
    return p[token, expert][:, None] * made[expert, token]


def say(name, value, each=False):
    """Print what the ranks have: each one's, or the sum."""
    value = torch.as_tensor(value, device=device)
    ranks = [torch.empty_like(value) for _ in range(n)]
    dist.all_gather(ranks, value)
    shown = torch.stack(ranks).tolist() if each else [sum(ranks).tolist()]
    apart = "\n  " if each and value.dim() else " "
    if rank == 0:
        print(f"{name}:", *shown, sep=apart)


torch.manual_seed(0)  # the same on every rank
shapes = (n * T, D), (D, E), (E, D, F), (E, F, D)
drawn = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
tokens, *weights = (x.to(device) for x in drawn)
whole = [tokens + 0.5, *(w / 4 for w in weights)]
x, router, up, down = whole
mine = [x.chunk(n)[rank], router, up.chunk(n)[rank], down.chunk(n)[rank]]
whole = [w.clone().requires_grad_() for w in whole]
mine = [w.clone().requires_grad_() for w in mine]
x, router = (w.detach() for w in mine[:2])

y = experts(*mine)
say("tokens for each expert, by rank", loads(x, router), each=True)
say("bytes sent forward", sent, each=True)
(y.square().sum() / (n * T)).backward()  # this rank's part of the mean
say("bytes sent in both passes", sent, each=True)
dist.all_reduce(mine[1].grad)  # the router's; experts' are summed

expected = alone(*whole)
(expected.square().sum() / (n * T)).backward()
pairs = [(y, expected.chunk(n)[rank]), (mine[1].grad, whole[1].grad)]
for i in 0, 2, 3:  # what is cut over ranks: tokens and experts
    pairs.append((mine[i].grad, whole[i].grad.chunk(n)[rank]))
same = all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in pairs)
say("ranks that are as one process", same)

for factor in (1.0, 1.25, 2.0):
    capacity = -int(-factor * T // E)  # rounded up
    lost = T - route(x, router, capacity)[2].sum()
    say(f"factor {factor}, {capacity} for each: dropped", lost, each=True)

for step in range(101):
    if step in (0, 10, 100):
        say(f"step {step}: tokens for each expert", loads(x, router))
    router.requires_grad_()
    (gradient,) = torch.autograd.grad(balance(x, router), router)
    dist.all_reduce(gradient)
    router = router.detach() - 0.1 * gradient / n
dist.destroy_process_group()
