"""Data-parallel training by hand, checked against one process; then the groups of a mesh.

torchrun --nproc-per-node 4 processes.py
"""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

STEPS, BATCH = 20, 32


def join():
    """Pick a device of this node, then meet the other processes."""
    local_rank = int(os.environ["LOCAL_RANK"])
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.device_count() >= here:
        device, backend = torch.device("cuda", local_rank), "nccl"
        torch.cuda.set_device(device)
    else:
        device, backend = torch.device("cpu"), "gloo"
    dist.init_process_group(backend)
    return device


def tell(line):
    """Print one line of every rank, in the order of the ranks."""
    lines = [None] * dist.get_world_size()
    dist.all_gather_object(lines, line)
    if dist.get_rank() == 0:
        print(*lines, sep="\n", flush=True)


def data(step, device):
    """The batch of a step; by its seed the same everywhere."""
    seeded = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 8, generator=seeded, dtype=torch.float64)
    return x.to(device), x.sin().sum(dim=1, keepdim=True).to(device)


def average_gradients(model):
    """Replace each gradient by its mean over all ranks."""
    gradients = [p.grad for p in model.parameters()]
    works = [dist.all_reduce(g, async_op=True) for g in gradients]
    for gradient, work in zip(gradients, works, strict=True):
        work.wait()
        gradient /= dist.get_world_size()


def train(model, rows, device, together):
    """Train on these rows of each batch; their loss in the last step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        x, y = data(step, device)
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        if together:
            average_gradients(model)
        optimizer.step()
    return loss.item()


def compare(device):
    """Train a model with all ranks, another alone: do they end alike?"""
    rank, n = dist.get_rank(), dist.get_world_size()
    assert BATCH % n == 0, f"{BATCH} rows cannot be shared by {n} ranks"
    torch.manual_seed(rank)  # on purpose: each draws other weights
    layers = nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)
    model = nn.Sequential(*layers).double().to(device)
    drawn = model[0].weight[0, 0].item()
    for p in model.parameters():
        dist.broadcast(p.detach(), src=0)
    kept = model[0].weight[0, 0].item()
    tell(f"rank {rank} drew {drawn:+.4f} and has {kept:+.4f}")
    alone = copy.deepcopy(model)
    each = BATCH // n
    rows = slice(rank * each, (rank + 1) * each)
    mine = train(model, rows, device, together=True)
    whole = train(alone, slice(None), device, together=False)
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    same = all((p - q).abs().max() < 1e-12 for p, q in pairs)
    losses = f"loss {mine:.4f} on {each} rows, {whole:.4f} on all"
    tell(f"rank {rank}: {losses}; same weights: {same}")


def groups(device):
    """Lay the ranks out on a mesh; add up over each axis."""
    rank, n = dist.get_rank(), dist.get_world_size()
    axes = ("dp", "tp")
    mesh = init_device_mesh(device.type, (n // 2, 2), mesh_dim_names=axes)
    line = f"rank {rank} is at {tuple(mesh.get_coordinate())}"
    for axis in axes:
        group = mesh.get_group(axis)
        total = torch.tensor(rank, device=device)
        dist.all_reduce(total, group=group)
        ranks = dist.get_process_group_ranks(group)
        line += f"; {axis} {ranks}, sum {total.item()}"
    tell(line)


if __name__ == "__main__":
    device = join()
    compare(device)
    groups(device)
    dist.destroy_process_group()
