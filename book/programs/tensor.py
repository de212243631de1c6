"""Half a Transformer layer on several ranks: matrices cut, and tokens, too.

Run it with torchrun --nproc-per-node 4 tensor.py.
"""

import os

import torch
import torch.distributed as dist
from torch.nn import functional as F

T, D, HIDDEN = 24, 16, 40  # tokens, width, columns of the hidden layer

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
rank, n = dist.get_rank(), dist.get_world_size()
sent = 0  # bytes that this rank sends, if the collectives are rings


def all_reduce(x):
    """The sum over ranks of what each has."""
    global sent
    sent += 2 * x.nbytes * (n - 1) // n
    total = x.clone()
    dist.all_reduce(total)
    return total


def all_gather(x):
    """Tokens of all ranks, of which each brings its own."""
    global sent
    sent += x.nbytes * (n - 1)
    parts = [torch.empty_like(x) for _ in range(n)]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def reduce_scatter(x):
    """This rank's tokens of the sum over ranks."""
    global sent
    sent += x.nbytes * (n - 1) // n
    parts = list(x.contiguous().chunk(n))
    mine = torch.empty_like(parts[rank])
    dist.reduce_scatter(mine, parts)
    return mine


def as_it_is(x):
    return x.view_as(x)


def exchange(there, back):
    """A function of tensors that calls `there`, and for gradients `back`."""

    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return there(x)

        @staticmethod
        def backward(ctx, gradient):
            return back(gradient)

    return Exchange.apply


copy = exchange(as_it_is, all_reduce)  # Megatron's f
add = exchange(all_reduce, as_it_is)  # Megatron's g
gather = exchange(all_gather, reduce_scatter)
scatter = exchange(reduce_scatter, all_gather)


def half(x, norm, up, down, enter=as_it_is, leave=as_it_is):
    """Norm, two matrices and the residual."""
    h = enter(F.layer_norm(x, (D,), norm))
    return x + leave(F.gelu(h @ up) @ down)


def say(name, value):
    """Print a number of each rank."""
    value = torch.as_tensor(value, dtype=torch.float64, device=device)
    ranks = [torch.empty_like(value) for _ in range(n)]
    dist.all_gather(ranks, value)
    if rank == 0:
        print(f"{name}:", *(f"{float(x):g}" for x in ranks))


torch.manual_seed(0)  # the same on every rank
shapes = (T, D), (D,), (D, HIDDEN), (HIDDEN, D), (T, D)
drawn = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
*whole, dy = ((w / 2).to(device).requires_grad_() for w in drawn)
y = half(*whole)  # as one process has it
y.backward(dy)

x, norm, up, down = (w.detach() for w in whole)
columns, rows = up.chunk(n, 1)[rank], down.chunk(n)[rank]
part = half(x, norm, columns, rows) - x  # nothing is sent
say("part of one output, by rank", part[0, 0])
say("their sum", all_reduce(part)[0, 0])
say("as in one process", (y - x)[0, 0])

ways = {"tensor parallel": (copy, add)}
ways["sequence parallel, too"] = gather, scatter
for way, (enter, leave) in ways.items():
    own = slice(T)
    if enter is gather:  # a rank's tokens
        own = slice(rank * T // n, (rank + 1) * T // n)
    mine = [w.clone().requires_grad_() for w in (x[own], norm, columns, rows)]
    sent, kept = 0, {}

    def keep(saved, kept=kept):
        kept[saved.data_ptr()] = saved.numel()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, as_it_is):
        found = half(*mine, enter, leave)
    for weight in mine[1:]:
        kept.pop(weight.data_ptr(), None)
    say(f"{way}: bytes sent forward", sent)
    found.backward(dy[own])
    say("  and in both passes", sent)
    say("  activations kept, in numbers", sum(kept.values()))
    dx, dnorm, dup, ddown = (w.grad for w in mine)
    say("  a number of the norm's gradient", dnorm[0])
    if enter is gather:
        dnorm = all_reduce(dnorm)  # other tokens on every rank
        say("  and its sum", dnorm[0])
    expected = [y[own], whole[0].grad[own], whole[1].grad]
    expected += whole[2].grad.chunk(n, 1)[rank], whole[3].grad.chunk(n)[rank]
    pairs = zip([found, dx, dnorm, dup, ddown], expected, strict=True)
    same = all(torch.allclose(a, b, rtol=0, atol=1e-10) for a, b in pairs)
    say("  as in one process", same)
dist.destroy_process_group()
