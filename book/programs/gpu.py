"""A vector add and a softmax in Triton, against torch: on a GPU, or interpreted on the CPU."""

import os

import torch

# Interpret kernels where there is no GPU; to be said before the import.
os.environ["TRITON_INTERPRET"] = "0" if torch.cuda.is_available() else "1"

import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside)
    b = tl.load(y + offsets, mask=inside)
    tl.store(out + offsets, a + b, mask=inside)


def add(x, y, block=1024):
    out = torch.empty_like(x)
    n = x.numel()
    grid = (triton.cdiv(n, block),)
    add_kernel[grid](x, y, out, n, BLOCK=block)
    return out


@triton.jit
def softmax_kernel(x, out, n, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < n
    start = x + row * x_stride
    scores = tl.load(start + column, mask=inside, other=-float("inf"))
    scores = scores.to(tl.float32)
    weights = tl.exp(scores - tl.max(scores, axis=0))
    weights = weights / tl.sum(weights, axis=0)
    tl.store(out + row * out_stride + column, weights, mask=inside)


def softmax(x):
    rows, columns = x.shape
    assert x.stride(1) == 1, "the numbers of a row must be neighbours"
    out = torch.empty(rows, columns, device=x.device, dtype=x.dtype)
    block = triton.next_power_of_2(columns)
    strides = x.stride(0), out.stride(0)
    softmax_kernel[(rows,)](x, out, columns, *strides, BLOCK=block)
    return out


def milliseconds(run, *arguments, times=100):
    for _ in range(10):
        run(*arguments)  # the first call compiles
    start = torch.cuda.Event(enable_timing=True)
    stop = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        run(*arguments)
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / times


def report(name, nbytes, ours, theirs):
    rate = f"{nbytes / ours / 1e6:.0f} GB/s"
    print(f"{name}: {ours:.4f} ms, {rate}, torch {theirs:.4f} ms")


device = "cuda" if torch.cuda.is_available() else "cpu"
n = 100_003
x, y = torch.randn(2, n, device=device)
print(f"add: {n} numbers, {triton.cdiv(n, 1024)} programs of 1024")
print("equal to torch:", torch.equal(add(x, y), x + y))

x = torch.randn(37, 1003, device=device)[:, :1000]
print(f"softmax: shape {tuple(x.shape)}, strides {x.stride()}")
close = torch.allclose(softmax(x), torch.softmax(x, 1), atol=1e-6)
print("close to torch:", close)

if device == "cuda":
    for n in (1_000, 1_000_000, 100_000_000):
        x, y = torch.randn(2, n, device=device)
        ours = milliseconds(add, x, y)
        theirs = milliseconds(torch.add, x, y)
        report(f"add {n}", 12 * n, ours, theirs)
    x = torch.randn(65_536, 1000, device=device)
    ours = milliseconds(softmax, x)
    theirs = milliseconds(torch.softmax, x, 1)
    report("softmax", 8 * x.numel(), ours, theirs)
