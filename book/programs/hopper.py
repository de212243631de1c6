"""Attention by TMA and warpgroup matmuls: computed, and compiled for three GPUs."""

import os
import re
import sys
from itertools import groupby

import torch
from torch.nn.functional import scaled_dot_product_attention

# The interpreter takes the compiler's place: decide before Triton is imported.
os.environ["TRITON_INTERPRET"] = str(
    int(not torch.cuda.is_available() and "machine" not in sys.argv)
)

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def forward_kernel(
    q, k, v, o, T, S, scale,
    K: tl.constexpr, TILE: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """One program: a tile of queries. Scores are in units of log 2."""
    row, head = tl.program_id(0) * TILE, tl.program_id(1).to(tl.int64)
    queries, keys = head * T * K, head * S * K
    q = tl.make_tensor_descriptor(q + queries, [T, K], [K, 1], [TILE, K])
    k = tl.make_tensor_descriptor(k + keys, [S, K], [K, 1], [TILE, K])
    v = tl.make_tensor_descriptor(v + keys, [S, K], [K, 1], [TILE, K])
    o = tl.make_tensor_descriptor(o + queries, [T, K], [K, 1], [TILE, K])
    b_q = q.load([row, 0])
    row_max = tl.full([TILE], float("-inf"), tl.float32)
    row_sum = tl.zeros([TILE], tl.float32)
    acc = tl.zeros([TILE, K], tl.float32)
    for start in tl.range(0, S, TILE, warp_specialize=ROLES):
        s = tl.dot(b_q, k.load([start, 0]).T) * scale
        inside = start + tl.arange(0, TILE) < S
        s = tl.where(inside[None, :], s, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(s, 1))
        p = tl.exp2(s - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, 1)
        acc = acc * rescale[:, None]
        b_v = v.load([start, 0])
        acc = tl.dot(p.to(b_v.dtype), b_v, acc)
        row_max = new_max
    o.store([row, 0], (acc / row_sum[:, None]).to(b_q.dtype))


def attend(q, k, v, tile=64):
    (B, H, T, K), S = q.shape, k.shape[2]
    o = torch.empty_like(q)
    grid, scale = (triton.cdiv(T, tile), B * H), K**-0.5 * 1.44269504
    # Memory for the descriptors that the programs make.
    triton.set_allocator(lambda n, *_: q.new_empty(n, dtype=torch.int8))
    forward_kernel[grid](q, k, v, o, T, S, scale, K, tile, False)
    return o


def compare():
    torch.manual_seed(0)
    shapes = (1, 2, 100, 64), (1, 2, 150, 64), (1, 2, 150, 64)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(shape).half().to(device) for shape in shapes)
    theirs = scaled_dot_product_attention(q, k, v).float()
    error = (attend(q, k, v) - theirs).norm() / theirs.norm()
    print(f"as torch's attention, to 0.2 %: {error.item() < 2e-3}")


NAMES = {
    "mma.sync": "matmul, by a warp",
    "wgmma.mma_async": "matmul, by a warpgroup",
    "tcgen05.mma": "matmul, by one thread",
    "wgmma.wait_group": "wait for matmuls",
    "cp.async.bulk.tensor": "copy of a tile (TMA)",
    "mbarrier.try_wait": "wait at an mbarrier",
    "ex2.approx": "exponential",
    "setmaxnreg": "trade of registers",
}


def machine(K=128, tile=128):
    types = dict.fromkeys("qkvo", "*bf16")
    types |= {"T": "i32", "S": "i32", "scale": "fp32"}
    types |= dict.fromkeys(("K", "TILE", "ROLES"), "constexpr")
    found = {}
    for name, capability, warps, roles in (
        ("A100", 80, 8, False),
        ("H100", 90, 8, False),
        ("H100 roles", 90, 4, True),
        ("B200", 100, 8, False),
    ):
        constants = {"K": K, "TILE": tile, "ROLES": roles}
        source = ASTSource(forward_kernel, types, constants)
        target = GPUTarget("cuda", capability, 32)
        options = {"num_warps": warps, "num_stages": 2}
        built = triton.compile(source, target=target, options=options)
        codes = "|".join(map(re.escape, NAMES))
        found[name] = re.findall(codes, built.asm["ptx"])
    print(f"{'in the PTX':24}", *(f"{name:>10}" for name in found))
    for code, words in NAMES.items():
        counts = (codes.count(code) for codes in found.values())
        print(f"{words:24}", *(f"{count:10}" for count in counts))
    for name in ("H100", "H100 roles"):
        print(f"{name}, in order:")
        for code, same in groupby(found[name]):
            print(f"{len(list(same)):4} x {NAMES[code]}")


if __name__ == "__main__":
    machine() if "machine" in sys.argv else compare()
