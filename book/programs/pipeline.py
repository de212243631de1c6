"""A model cut into stages, one on each rank, and two orders of work: GPipe and 1F1B.

Run it with torchrun --nproc-per-node 4 pipeline.py.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

M, ROWS, D = 8, 4, 16  # microbatches, the rows of each, and their width

device = torch.device("cpu")
if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
rank, p = dist.get_rank(), dist.get_world_size()
before = rank - 1 if rank > 0 else None
after = rank + 1 if rank + 1 < p else None


def gpipe():
    """All forwards, then all backwards."""
    return [("F", i) for i in range(M)] + [("B", i) for i in range(M)]


def one_f_one_b():
    """A forward for each stage that follows; then one forward, one backward in turn."""
    ahead = min(p - 1 - rank, M)
    order = [("F", i) for i in range(ahead)]
    for i in range(M):
        if ahead + i < M:
            order.append(("F", ahead + i))
        order.append(("B", i))
    return order


def exchange(clock, tensor, target, source):
    """Send to a neighbour and receive from one, in one batch. The clock is one more row."""
    batch, message = [], torch.empty(ROWS + 1, D, device=device)
    if target is not None:
        sent = torch.cat([tensor, torch.full((1, D), clock, device=device)])
        batch.append(dist.P2POp(dist.isend, sent, target))
    if source is not None:
        batch.append(dist.P2POp(dist.irecv, message, source))
    for work in dist.batch_isend_irecv(batch) if batch else []:
        work.wait()
    if source is None:
        return None, clock
    return message[:-1], max(clock, int(message[-1, 0]))


def step(stage, order, inputs, targets):
    """Run the order: this rank's loss, what it did when, and the most microbatches that it kept."""
    kept, loss, peak = {}, 0.0, 0
    clock, line = 0, ""
    made, target = None, None  # what the last action has made, and who needs it
    for kind, i in order:
        source = before if kind == "F" else after
        got, start = exchange(clock, made, target, source)
        line += "." * (start - clock)
        if kind == "F":
            x = (inputs[i] if source is None else got).requires_grad_()
            kept[i] = x, stage(x)
            made, target = kept[i][1].detach(), after
            line += str(i)
        else:
            x, y = kept.pop(i)
            if source is None:
                y = F.mse_loss(y, targets[i]) / M
                loss += y.item()
            y.backward(got)
            made, target = x.grad, before
            line += 2 * "abcdefgh"[i]
        clock = start + (1 if kind == "F" else 2)
        peak = max(peak, len(kept))
    exchange(clock, made, target, None)
    return loss, line, peak


def gathered(value):
    """What each rank has, in a list."""
    values = [None] * p
    dist.all_gather_object(values, value)
    return values


dist.barrier()  # NCCL wants all ranks in its first call
torch.manual_seed(0)  # the same model and data on every rank
torch.set_default_dtype(torch.float64)
parts = [nn.Sequential(nn.Linear(D, 40), nn.GELU(), nn.Linear(40, D)) for _ in range(2 * p)]
model = nn.Sequential(*parts).to(device)
stage = model[2 * rank : 2 * rank + 2]
inputs, targets = torch.randn(2, M, ROWS, D).to(device)
whole = F.mse_loss(model(inputs.flatten(0, 1)), targets.flatten(0, 1))  # as one process has it
whole.backward()
expected = [weight.grad.clone() for weight in stage.parameters()]

for name, order in {"GPipe": gpipe(), "1F1B": one_f_one_b()}.items():
    stage.zero_grad()
    loss, line, peak = step(stage, order, inputs.detach(), targets)
    pairs = zip(stage.parameters(), expected, strict=True)
    same = all(torch.allclose(weight.grad, e, rtol=0, atol=1e-12) for weight, e in pairs)
    lines, peaks, equal = gathered(line), gathered(peak), gathered(same)
    mean = sum(gathered(loss))
    if rank == 0:
        long = max(map(len, lines))
        print(f"{name}: {long} units long, {3 * M} of them work on each rank")
        for r in range(p):
            print(f"  rank {r}  {lines[r]:.<{long}}  keeps {peaks[r]}")
        print(f"  loss {mean:.6f}, in one process {whole.item():.6f}; same gradients: {all(equal)}")
dist.destroy_process_group()
