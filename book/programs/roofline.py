"""Which of three walls do some operations meet on this machine? Predicted, then measured."""

import time
from functools import partial

import torch

GPU = torch.cuda.is_available()
device, dtype = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
size = dtype.itemsize  # bytes of a number
D, N, SIDE = (8192, 2**28, 8192) if GPU else (4096, 2**24, 1024)
ROWS = (1, 4, 16, 64, 256, 1024) if GPU else (1, 4, 16, 64, 256)


def random(*shape):
    return torch.randn(shape, device=device, dtype=dtype)


def now():
    if not GPU:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()  # the device stamps it when it gets here
    return event


def between(start, stop):
    if not GPU:
        return stop - start
    stop.synchronize()  # the host has run ahead: wait
    return start.elapsed_time(stop) / 1e3


def seconds(run, calls=1):
    """Of one call: the best of four rounds, after one to warm up."""
    rounds = []
    for _ in range(5):
        start = now()
        for _ in range(calls):
            run()
        rounds.append(between(start, now()) / calls)
    return min(rounds[1:])


x, y, out = random(N // D, D), random(N // D, D), random(N // D, D)
weight, square = random(D, D), random(SIDE, SIDE)

# Three roofs: a call with nothing to do, a copy, a large square matmul.
overhead = seconds(partial(torch.add, x[0, :1], y[0, :1], out=out[0, :1]), 2000)
bandwidth = 2 * N * size / seconds(partial(out.copy_, x))
rate = 2 * SIDE**3 / seconds(partial(torch.mm, square, square))
print(f"a call {overhead * 1e6:.1f} us, a copy {bandwidth / 1e9:.1f} GB/s,", end=" ")
print(f"a matmul {rate / 1e12:.3f} TFLOP/s", end=": ")
print(f"{rate / bandwidth:.1f} FLOPs per byte at the ridge")


def softmax_in_steps():
    largest = x.amax(1, keepdim=True)  # reads x
    torch.sub(x, largest, out=out)  # reads x, writes out
    out.exp_()  # reads and writes out
    total = out.sum(1, keepdim=True)  # reads out
    out.div_(total)  # reads and writes out


def multiply(rows):
    result = random(rows, D)
    run = partial(torch.mm, random(rows, D), weight, out=result)
    return f"{rows} x weight", run, 1, 2 * rows * D * D, D * D + 2 * rows * D


a, b, c = x[0, :100], y[0, :100], out[0, :100]
operations = [  # name, call, kernels, FLOPs, numbers that are read or written
    ("add 100", partial(torch.add, a, b, out=c), 1, 100, 3 * 100),
    ("add", partial(torch.add, x, y, out=out), 1, N, 3 * N),
    *(multiply(rows) for rows in ROWS),
    ("softmax, steps", softmax_in_steps, 5, 5 * N, 8 * N),
    ("softmax, fused", partial(torch.softmax, x, 1, out=out), 1, 5 * N, 2 * N),
]

print(f"{'':14}{'MFLOP':>9}{'MB':>9}{'FLOP/B':>9}", end="")
print(f"{'overhead':>12}{'memory':>12}{'compute':>12}{'took':>12}")
for name, run, kernels, flops, numbers in operations:
    nbytes = numbers * size
    walls = kernels * overhead, nbytes / bandwidth, flops / rate
    bound = max(walls)
    took = seconds(run, calls=1 + int(0.01 / bound))
    print(f"{name:14}{flops / 1e6:9.4g}{nbytes / 1e6:9.4g}", end="")
    print(f"{flops / nbytes:9.3g}", end="")
    for each in (*walls, took):
        print(f"{each * 1e3:9.4f} ms", end="")
    print(f"{took / bound:6.1f} times the bound")
