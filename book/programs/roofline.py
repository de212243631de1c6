"""Which of three walls do some operations meet on this machine? Predicted, then measured."""

import time
from functools import partial

import torch

GPU = torch.cuda.is_available()
device, dtype = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
size = dtype.itemsize  # bytes of a number
D, N, SIDE = (16384, 2**28, 8192) if GPU else (4096, 2**24, 1024)
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
a, b, c = x[0], y[0], out[0]

# Three roofs: a call with nothing to do, a copy, a large square matmul.
overhead = seconds(partial(torch.add, a[:1], b[:1], out=c[:1]), calls=2000)
bandwidth = 2 * N * size / seconds(partial(out.copy_, x))
calls = 200 if GPU else 1  # in a row, or the clock is not yet down
rate = 2 * SIDE**3 / seconds(partial(torch.mm, square, square), calls)
print(f"a call costs {overhead * 1e6:.1f} us", end=", ")
print(f"a copy moves {bandwidth / 1e9:.1f} GB/s", end=", ")
print(f"a matmul does {rate / 1e12:.3f} TFLOP/s")
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
    return f"matmul {rows}", run, 1, 2 * rows * D * D, D * D + 2 * rows * D


operations = [  # name, call, kernels, FLOPs, numbers read or written
    ("add 100", partial(torch.add, a[:100], b[:100], out=c[:100]), 1, 100, 300),
    ("add", partial(torch.add, x, y, out=out), 1, N, 3 * N),
    *(multiply(rows) for rows in ROWS),
    ("softmax in 5", softmax_in_steps, 5, 5 * N, 8 * N),
    ("softmax in 1", partial(torch.softmax, x, 1, out=out), 1, 5 * N, 2 * N),
]

print(f"{'':12}{'MFLOP':>5}{'MB':>5}{'FLOP/B':>7}", end="")
print(f"{'overhead':>9}{'memory':>9}{'compute':>9}", end="")
print(f"{'took':>9}{'the bound':>10}")
for name, run, kernels, flops, numbers in operations:
    nbytes = numbers * size
    walls = kernels * overhead, nbytes / bandwidth, flops / rate
    bound = max(walls)
    took = seconds(run, calls=1 + int(0.01 / bound))
    print(f"{name:12}{flops / 1e6:5.0f}{nbytes / 1e6:5.0f}", end="")
    print(f"{flops / nbytes:7.3g}", end="")
    for each in (*walls, took):
        print(f" {each * 1e6:5.0f} us", end="")
    print(f"{took / bound:4.1f} times")
