"""Pipeline, data and tensor parallelism at once, on 2 * 2 * 2 ranks.

Run it with torchrun --nproc-per-node 8 composing.py [ORDER].
"""

import os
import sys

import torch
import torch.distributed as dist

B, m, D, F = 96, 4, 16, 64  # rows of the batch, microbatches, width, hidden layer
SIZES = {"p": 2, "d": 2, "t": 2}
ORDER = sys.argv[1] if len(sys.argv) > 1 else "pdt"  # the last axis turns fastest
NODE = 4  # ranks that share fast links

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
rank, n = dist.get_rank(), dist.get_world_size()


def digits(rank):
    """A rank's place on each axis: the digits of a number, the last axis first."""
    place = {}
    for axis in reversed(ORDER):
        rank, place[axis] = divmod(rank, SIZES[axis])
    return place


def lines(axis):
    """The groups of an axis: ranks whose places differ on it alone."""
    found = {}
    for r in range(n):
        others = tuple(digits(r)[other] for other in ORDER if other != axis)
        found.setdefault(others, []).append(r)
    return list(found.values())


me, line, group = digits(rank), {}, {}
for axis in SIZES:
    for ranks in lines(axis):
        made = dist.new_group(ranks)  # every rank makes every group
        if rank in ranks:
            line[axis], group[axis] = ranks, made
sent, left = dict.fromkeys(SIZES, 0), dict.fromkeys(SIZES, 0)


def count(axis, to, nbytes):
    """Note bytes that this rank sends, and whether they leave its node."""
    sent[axis] += nbytes
    left[axis] += nbytes * (to // NODE != rank // NODE)


def all_reduce(x, axis):
    """Sum over this rank's line; in a ring it sends 2 (size - 1) / size of x."""
    size = SIZES[axis]
    right = line[axis][(me[axis] + 1) % size]
    count(axis, right, 2 * (size - 1) * x.nbytes // size)
    dist.all_reduce(x, group=group[axis])
    return x


def send(x, stage):
    to = line["p"][stage]
    count("p", to, x.nbytes)
    dist.send(x, to, group=group["p"])


def receive(like, stage):
    x = torch.empty_like(like)
    dist.recv(x, line["p"][stage], group=group["p"])
    return x


def forward(x, up, down):
    """x + relu(x up) down, of which this rank computes F / t hidden columns."""
    part = (x.requires_grad_() @ up).relu() @ down
    return x.detach() + all_reduce(part.detach().clone(), "t"), part


def backward(x, part, dy):
    """Add to the weights' gradients, and return that of x."""
    part.backward(dy)
    return dy + all_reduce(x.grad, "t")


def step(rows, targets, up, down):
    """This rank's loss, and in .grad the mean of its gradients over d replicas."""
    stage, last = me["p"], SIZES["p"] - 1
    loss, kept = 0.0, []
    for x, target in zip(rows.chunk(m), targets.chunk(m), strict=True):
        if stage > 0:
            x = receive(x, stage - 1)
        y, part = forward(x, up, down)
        kept.append((x, part, 2 * (y - target) / rows.numel()))
        if stage < last:
            send(y, stage + 1)
        else:
            loss += (y - target).square().sum() / rows.numel()
    for x, part, dy in kept:
        if stage < last:
            dy = receive(x, stage + 1)
        dx = backward(x, part, dy)
        if stage > 0:
            send(dx, stage - 1)
    for weight in up, down:
        all_reduce(weight.grad, "d").div_(SIZES["d"])
    return loss


def total(values):
    """The sums over all ranks of a list of numbers."""
    values = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(values)
    return values.tolist()


def shards(ups, downs):
    """This stage's matrices: its t-th columns of one, its t-th rows of the other."""
    up, down = ups[me["p"]], downs[me["p"]]
    return up.chunk(SIZES["t"], 1)[me["t"]], down.chunk(SIZES["t"], 0)[me["t"]]


torch.manual_seed(0)  # the same on every rank
shapes = (2, B, D), (SIZES["p"], D, F), (SIZES["p"], F, D)
drawn = [torch.randn(s, dtype=torch.float64).to(device) for s in shapes]
data, ups, downs = drawn[0], drawn[1] / 4, drawn[2] / 8

rows, targets = (x.chunk(SIZES["d"])[me["d"]].clone() for x in data)
mine = [w.clone().requires_grad_() for w in shards(ups, downs)]
loss = step(rows, targets, *mine)

y, whole = data[0], [w.requires_grad_() for w in (ups, downs)]
for up, down in zip(ups, downs, strict=True):  # one process, all of it
    y = y + (y @ up).relu() @ down
expected = (y - data[1]).square().mean()
gradients = shards(*torch.autograd.grad(expected, whole))
pairs = zip(mine, gradients, strict=True)
same = all(torch.allclose(w.grad, g, rtol=0, atol=1e-12) for w, g in pairs)

loss, same, *nbytes = total([float(loss), same, *sent.values(), *left.values()])
if rank == 0:
    for i, axis in enumerate(SIZES):
        print(f"{axis}: {lines(axis)}")
        print(f"   {nbytes[i]:,.0f} bytes sent, {nbytes[i + 3]:,.0f} out of a node")
    loss /= SIZES["d"] * SIZES["t"]  # the last stage's t ranks all have it
    print(f"loss {loss:.9f}, in one process {expected:.9f}")
    print(f"ranks with the same gradients as one process: {same:.0f}")
dist.destroy_process_group()
