"""All-reduce from messages alone: a ring, and recursive doubling.

Run it with torchrun --nproc-per-node 4 collectives.py.
"""

import os
import time

import torch
import torch.distributed as dist

device = torch.device("cpu")
if torch.cuda.is_available():
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


def seconds(run):
    """How long the slowest rank takes, in the best of ten tries."""
    tries = []
    for _ in range(10):
        dist.barrier()
        begin = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        tries.append(max(gathered(time.perf_counter() - begin)))
    return min(tries)


torch.manual_seed(rank)
whole = torch.randint(1000, (1001,), dtype=torch.float64).to(device)
ragged = torch.rand(1001).to(device)  # fp32: a sum depends on its order
expected = whole.clone()
dist.all_reduce(expected)
sums = []
for algorithm in ring, doubling:
    sent = steps = 0
    found = algorithm(whole)
    same = torch.equal(found, expected)
    say(f"{algorithm.__name__}: equal to all_reduce", same)
    say("  messages sent, by rank", steps)
    say("  bytes sent, by rank", sent)
    sums.append(algorithm(ragged))
    first = sums[-1].clone()
    dist.broadcast(first, src=0)
    say("  fp32: the bits of rank 0", torch.equal(sums[-1], first))
differ = (sums[0] != sums[1]).sum()
say("fp32: of 1001 sums, ring and doubling differ in", differ)

cost = {}
for size in 2**10, 2**22:  # bytes
    out, into = torch.ones(2, size // 4, device=device)

    def eight(out=out, into=into):
        for _ in range(8):
            exchange(out, (rank + 1) % n, into, (rank - 1) % n)

    cost[size] = seconds(eight) / 8
beta = (2**22 - 2**10) / (cost[2**22] - cost[2**10])  # bytes in a second
alpha = cost[2**10] - 2**10 / beta
levels = n.bit_length() - 1
told = [f"a message: {alpha * 1e3:.2f} ms, then {beta / 1e9:.2f} GB/s"]
for size in 2**10, 2**14, 2**18, 2**22:
    x = torch.ones(size // 4, device=device)
    model = {
        ring: 2 * (n - 1) * (alpha + size / n / beta),
        doubling: levels * (alpha + size / beta),
    }
    told.append(f"{size // 1024} KiB")
    for way, predicted in model.items():
        took = seconds(lambda x=x, way=way: way(x))
        told[-1] += f" | {way.__name__} {took * 1e3:.2f} ms"
        told[-1] += f", model {predicted * 1e3:.2f} ms"
if rank == 0:
    print(*told, sep="\n")
dist.destroy_process_group()
