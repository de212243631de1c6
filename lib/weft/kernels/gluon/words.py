"""Gluon as the kernels of this book spell it, whichever Triton is installed.

Gluon is Triton's lower floor: the same Python, but layouts, shared memory, barriers and
asynchronous copies are in the hands of the one who writes. Its names still move. Triton 3.6
(torch 2.10 and 2.11) has no `gl.barrier`, wants registers named for every worker and calls a bulk
copy `async_copy_global_to_shared`, which 3.8 shortens to `async_load`. This file is the only one
that knows; a kernel imports from here alone.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from weft.kernels.gluon.private import tma_add

__all__ = [
    "TensorDescriptor", "arrive", "barriers", "copy_commit", "copy_rows", "copy_wait", "expect",
    "fence", "gl", "gluon", "jit", "laid_out_as", "opaque", "pack", "register_a", "scores", "sync",
    "tma_add", "tma_load", "tma_store", "tma_store_wait", "unpack", "wait", "wgmma", "wgmma_go_on",
    "wgmma_wait", "where_at_most", "workers",
]  # fmt: skip

jit = gluon.jit

# Tensor cores: a warpgroup (128 threads) issues a product and goes on; later it waits until at
# most so many are still under way. The B operand lies in shared memory, A there or in registers,
# the sum in registers.
wgmma = hopper.warpgroup_mma
wgmma_wait = hopper.warpgroup_mma_wait


@jit
def wgmma_go_on(b):
    """Wait for all products but the last; its sum, under way, is for the next product to go on."""
    return wgmma_wait(1, deps=(b,))


# The copy engine (TMA): one thread asks for a tile of a tensor that a descriptor describes, and
# what lies outside of the tensor arrives as zeros, or is not stored.
tma_load = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
tma_store = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global
tma_store_wait = hopper.tma.store_wait

# Adding a tile to what is there is `private.tma_add`.

# Copies by threads (cp.async), from any address: each thread asks for 16 bytes at a time and goes
# on. Those since the last commit make a group; later a thread waits until at most so many of its
# groups are under way. They land as if the thread had stored them: a fence comes before a product.
copy_rows = hopper.async_copy.async_copy_global_to_shared
copy_commit = hopper.async_copy.commit_group
copy_wait = hopper.async_copy.wait_group

# Barriers in shared memory. One has a phase, 0 at first. `wait(bar, phase)` returns once that phase
# is over; waiting for phase 1 of a fresh barrier returns at once, as if a phase 1 had come before.
# A phase ends with the last of the arrivals that it was made for, and with the last of the bytes
# that `expect`, itself an arrival, has announced.
wait = hopper.mbarrier.wait
expect = hopper.mbarrier.expect
arrive = hopper.mbarrier.arrive

# What threads have stored into shared memory, seen by the copy engine and by the tensor cores.
fence = hopper.fence_async_shared

# All warps of a partition meet.
sync = getattr(gl, "barrier", None) or gl.thread_barrier

# Split the block's warps: the first function goes on in its own, the others in further warps, each
# with so many registers per thread; the first gets what is left.
workers = gl.warp_specialize

_init = hopper.mbarrier.init
_Layout = hopper.mbarrier.MBarrierLayout


@jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """A row of fresh barriers; a phase of each ends after so many arrivals."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], _Layout())
    for i in gl.static_range(COUNT):
        _init(made.index(i), count=ARRIVALS)
    return made


@gluon.constexpr_function
def scores(WARPS, COLUMNS, BITS=16):
    """The layout in registers of a sum: 16 rows to a warp, as many columns as one product takes."""
    return gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, COLUMNS, 256 // BITS])


@gluon.constexpr_function
def register_a(SUM, BITS=16):
    """The layout in registers of the A operand of a product whose sum has the layout SUM."""
    return gl.DotOperandLayout(operand_index=0, parent=SUM, k_width=32 // BITS)


@jit
def opaque(o):
    """The same numbers, which the compiler cannot see through: it may not compute them elsewhere.

    What depends on the thread alone it would otherwise make before the warps take their roles,
    and spill, because the loader has no registers to keep it in.
    """
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [o], dtype=gl.int32, is_pure=False, pack=1
    )


@jit
def laid_out_as(b, other):
    """b in the layout of another tensor."""
    return gl.convert_layout(b, other.type.layout)


@jit
def where_at_most(b, o_a, o_b):
    """b where o_a <= o_b, else -inf: two instructions for each element.

    Said with gl.where, the compiler packs the answers of all elements into words and takes them
    apart again, which costs three times as much, and registers that are needed.
    """
    return gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.le.s32 p, $2, $3; selp.f32 $0, $1, 0fFF800000, p; }",
        "=f,f,r,r",
        [b, o_a, o_b],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


@jit
def pack(b, DTYPE: gl.constexpr):
    """Round to half precision and put neighbours in a row into one register, as an integer.

    Carried through a loop as they are, halves take a register each, and two instructions to get
    in and out of the form in which a product wants them.
    """
    NAME: gl.constexpr = "bf16x2" if gl.bfloat16 == DTYPE else "f16x2"
    b_even, b_odd = gl.split(b.reshape([b.shape[0], b.shape[1] // 2, 2]))
    return gl.inline_asm_elementwise(
        "cvt.rn." + NAME + ".f32 $0, $2, $1;",
        "=r,f,f",
        [b_even, b_odd],
        dtype=gl.int32,
        is_pure=True,
        pack=1,
    )


@jit
def unpack(b, DTYPE: gl.constexpr, LAYOUT: gl.constexpr):
    """The halves that `pack` has packed, in the LAYOUT that they came from."""
    b_even = b.to(gl.int16).to(DTYPE, bitcast=True)
    b_odd = (b >> 16).to(gl.int16).to(DTYPE, bitcast=True)
    b = gl.join(b_even, b_odd).reshape([b.shape[0], b.shape[1] * 2])
    return gl.convert_layout(b, LAYOUT, assert_trivial=True)
