"""All-reduce from messages alone: a ring, and recursive doubling.

Run it with torchrun --nproc-per-node 4 collectives.py.
"""

import os
import time

import torch
import torch.distributed as dist

device = torch.device("cpu")
if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
rank, n = dist.get_rank(), dist.get_world_size()
sent = steps = 0  # bytes that this rank sends, and in how many messages


def exchange(outgoing, target, incoming, source):
    """Send one tensor and receive another, both at once."""
    global sent, steps
    sent, steps = sent + outgoing.nbytes, steps + 1
    messages = [
        dist.P2POp(dist.isend, outgoing, target),
        dist.P2POp(dist.irecv, incoming, source),
    ]
    for handle in dist.batch_isend_irecv(messages):
        handle.wait()


def ring(x):
    """The sum, in 2 (n - 1) steps with an n-th of the data each."""
    total = x.clone()
    chunks = total.tensor_split(n)  # views: they are parts of `total`
    left, right = (rank - 1) % n, (rank + 1) % n
    for step in range(n - 1):  # reduce-scatter: sums grow as they travel
        mine = chunks[(rank - step) % n]
        theirs = chunks[(rank - step - 1) % n]
        coming = torch.empty_like(theirs)
        exchange(mine, right, coming, left)
        theirs += coming
    for step in range(n - 1):  # all-gather: sums go round once more
        mine = chunks[(rank + 1 - step) % n]
        theirs = chunks[(rank - step) % n]
        exchange(mine, right, theirs, left)
    return total


def doubling(x):
    """The sum, for n = 2, 4, 8, …: log2 n steps with all of the data."""
    total = x.clone()
    for step in range(n.bit_length() - 1):
        partner = rank ^ (1 << step)  # the rank that differs in one bit
        coming = torch.empty_like(total)
        exchange(total, partner, coming, partner)
        total += coming
    return total


def gathered(value):
    """A number of each rank."""
    value = torch.tensor([value], dtype=torch.float64, device=device)
    values = [torch.empty_like(value) for _ in range(n)]
    dist.all_gather(values, value)
    return [float(x) for x in values]


def say(name, value):
    values = gathered(value)
    if rank == 0:
        print(f"{name}:", *(f"{x:g}" for x in values))


torch.manual_seed(rank)
whole = torch.randint(1000, (1001,), dtype=torch.float64).to(device)
ragged = torch.rand(1001).to(device)  # fp32: a sum depends on its order
expected = whole.clone()
dist.all_reduce(expected)
for algorithm in ring, doubling:
    sent = steps = 0
    found = algorithm(whole)
    say(f"{algorithm.__name__}: right", torch.equal(found, expected))
    say("  messages sent, by rank", steps)
    say("  bytes sent, by rank", sent)
    found = algorithm(ragged)
    say("  fp32: checksum of the bits", found.view(torch.int32).sum() % 10_000)


def seconds(run, *arguments):
    """How long the slowest rank takes, in the best of ten tries."""
    tries = []
    for _ in range(10):
        dist.barrier()
        begin = time.perf_counter()
        run(*arguments)
        if device.type == "cuda":
            torch.cuda.synchronize()
        tries.append(max(gathered(time.perf_counter() - begin)))
    return min(tries)


def eight(x):
    coming = torch.empty_like(x)
    for _ in range(8):
        exchange(x, (rank + 1) % n, coming, (rank - 1) % n)


small, large = torch.ones(2**8, device=device), torch.ones(2**20, device=device)
quick, slow = seconds(eight, small) / 8, seconds(eight, large) / 8
beta = (large.nbytes - small.nbytes) / (slow - quick)  # bytes in a second
alpha = quick - small.nbytes / beta
if rank == 0:
    print(f"a message: {alpha * 1e3:.2f} ms, then {beta / 1e9:.2f} GB/s")
for count in 2**8, 2**12, 2**16, 2**20:
    x = torch.ones(count, device=device)
    in_ring = 2 * (n - 1) * (alpha + x.nbytes / n / beta)
    by_doubling = (n.bit_length() - 1) * (alpha + x.nbytes / beta)
    for algorithm, model in (ring, in_ring), (doubling, by_doubling):
        took = seconds(algorithm, x)
        if rank == 0:
            what = f"{x.nbytes // 1024} KiB by {algorithm.__name__}"
            print(f"{what}: {took * 1e3:.2f} ms, model {model * 1e3:.2f} ms")
dist.destroy_process_group()
