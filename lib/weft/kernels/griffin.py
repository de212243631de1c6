"""Griffin's recurrence, h_t = a_t h_{t-1} + x_t: serial in time, side by side in every channel.

It does two operations for each element, so its time is that of its bytes: at least those of a, x
and h once each, 12 for an element in fp32. `sequential` moves no more, a thread going through all
the time of a channel with STEPS steps on their way from memory at once. Where there are few
channels that is too little to keep the memory busy. `chunked` cuts the time into chunks, which
run side by side: a first pass makes of each the product of its a and where it ends if it begins at
0, a scan of these gives the states between chunks, and a last pass has them to begin with. It
reads a and x twice, 20 bytes for 12, so it is faster where `sequential` would have less than 12/20
of the loads on their way that the memory asks for; `scan` goes by that rule.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from weft.kernels.code import Pass, launch, recorded_target, recording
from weft.plan.arguments import whole
from weft.plan.tensors import ranked, tensor

__all__ = ["chunked", "passes", "scan", "sequential"]

TYPES = "float32", "bfloat16", "float16"
STEPS = 32  # of time, loaded before the first of them is computed
ON_THE_WAY = 2**22  # bytes: 4.8 TB/s (H200) for the 0.8 µs that a load takes
ONCE_FOR_TWICE = 12 / 20  # bytes of `sequential` for those of `chunked`
SHORTEST = 2 * STEPS  # chunk worth a state of its own
WARP = 32


class TimeView(NamedTuple):
    """A tensor [B, T, D] as a kernel takes it: its address and two strides; D lies in one piece."""

    p: Any
    b: Any
    t: Any


def scan(
    a: Tensor, x: Tensor, initial: Tensor | None = None, final: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """h_t = a_t h_{t-1} + x_t in each channel by itself; before t = 0, h is `initial`, or 0.

    a and x [B, T, D] of fp16, bf16 or fp32 and any finite values give h [B, T, D] in x's type;
    T may be 0. `initial` is a state [B, D] in fp32, `final` asks for the one after the last step.
    States are in fp32. Gradients of a, x and `initial`; that of a is made from h as it was rounded
    to x's type. ValueError names an argument that does not fit.
    """
    _check(a, x, initial)
    return _scanned(a, x, initial, final, _length(a, x))


def sequential(
    a: Tensor, x: Tensor, initial: Tensor | None = None, final: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """`scan` in one pass: the fewest bytes, for many channels."""
    _check(a, x, initial)
    return _scanned(a, x, initial, final, a.shape[1])


def chunked(
    a: Tensor, x: Tensor, initial: Tensor | None = None, final: bool = False, chunk: int = 256
) -> Tensor | tuple[Tensor, Tensor]:
    """`scan` in three passes, the time cut into chunks of so many steps: for few channels."""
    _check(a, x, initial)
    return _scanned(a, x, initial, final, whole("chunk", chunk))


def _length(a: Tensor, x: Tensor) -> int:
    """Steps of a chunk in `scan`: all of them, or so few that the memory is kept busy."""
    B, T, D = a.shape
    loads = B * D * STEPS * (a.element_size() + x.element_size())
    if loads >= ONCE_FOR_TWICE * ON_THE_WAY:
        return T
    return max(SHORTEST, triton.cdiv(T * loads, ON_THE_WAY))


def _check(a: Any, x: Any, initial: Any) -> None:
    """a and x [B, T, D], perhaps a state [B, D], where kernels run."""
    B, T, D = ranked("a", a, "B T D", empty="T")
    tensor("a", a, "[B, T, D]", (B, T, D), dtypes=TYPES)
    tensor("x", x, "[B, T, D] as a", (B, T, D), dtypes=TYPES, beside=("a", a))
    if initial is not None:
        tensor("initial", initial, "[B, D] of a", (B, D), dtypes=("float32",), beside=("a", a))
    if a.device.type != "cuda" and not (knobs.runtime.interpret or recorded_target()):
        raise ValueError(f"a is on {a.device}, must be on a CUDA device, or TRITON_INTERPRET=1")


# --- forward and backward -------------------------------------------------------------------------


def _scanned(a, x, initial, final, chunk) -> Tensor | tuple[Tensor, Tensor]:
    h_BTD, last_BD = Scan.apply(a, x, initial, max(1, min(chunk, a.shape[1])))
    return (h_BTD, last_BD) if final else h_BTD


class Scan(torch.autograd.Function):
    """The recurrence and its derivative, which is one too, from the last step to the first.

    With c what flows back into h_t from the steps behind it, delta_t = dh_t + c is dx_t, da_t is
    delta_t h_{t-1}, and a_t delta_t flows on into h_{t-1}.
    """

    @staticmethod
    def forward(ctx, a, x, initial, chunk):
        a, x = _in_rows(a), _in_rows(x)
        states = _between(a, x, initial, chunk, back=False)
        h_BTD, last_BD = x.new_empty(x.shape), _state(a)
        given = {"a": _view(a), "x": _view(x), "before": _view(states)}
        _launch("scan", scan_kernel, (a, x), chunk, **given, h=_view(h_BTD), last=last_BD)
        ctx.save_for_backward(a, h_BTD, initial)
        ctx.chunk = chunk
        ctx.set_materialize_grads(False)
        return h_BTD, last_BD

    @staticmethod
    def backward(ctx, dh_BTD, dlast_BD):
        if torch.is_grad_enabled():
            raise RuntimeError("scan has no second derivative: create_graph must be false")
        a, h_BTD, initial = ctx.saved_tensors
        dh_BTD = torch.zeros_like(h_BTD) if dh_BTD is None else _in_rows(dh_BTD)
        states = _between(a, dh_BTD, dlast_BD, ctx.chunk, back=True)
        da_BTD, dx_BTD, dinitial_BD = a.new_empty(a.shape), h_BTD.new_empty(a.shape), _state(a)
        initial = None if initial is None else initial.contiguous()
        given = {"a": _view(a), "h": _view(h_BTD), "initial": initial}
        given |= {"dh": _view(dh_BTD), "behind": _view(states)}
        results = {"da": _view(da_BTD), "dx": _view(dx_BTD), "dinitial": dinitial_BD}
        _launch("gradient", gradient_kernel, (a, dh_BTD), ctx.chunk, **given, **results)
        return da_BTD, dx_BTD, None if initial is None else dinitial_BD, None


def _between(a, x, first, chunk, back: bool) -> Tensor | None:
    """What each chunk begins with, [B, chunks, D], in the order in which it is known.

    Forward that is the state before it, backward what flows back into its last step from behind.
    """
    B, T, D = a.shape
    chunks = triton.cdiv(T, chunk)
    if chunks < 2:
        return None if first is None else first.contiguous().unsqueeze(1)
    products, ends, states = (
        a.new_empty(B, n, D, dtype=torch.float32) for n in (chunks, chunks, chunks + 1)
    )
    given = {"a": _view(a), "x": _view(x), "products": _view(products), "ends": _view(ends)}
    _launch("ends", ends_kernel, (a, x), chunk, **given, BACK=back)
    states[:, 0] = 0 if first is None else first
    given = {"a": _view(products), "x": _view(ends), "before": _view(states)}
    results = {"h": _view(states[:, 1:]), "last": None}
    _launch("between", scan_kernel, (products, ends), chunks, **given, **results)
    return states


def _launch(name: str, kernel, like: tuple[Tensor, Tensor], chunk: int, **given: object) -> None:
    """A program of one warp for each chunk of 32 channels, or 64 where both are of 2 bytes."""
    B, T, D = like[0].shape
    chunks = max(1, triton.cdiv(T, chunk))
    BLOCK = WARP * 4 // max(x.element_size() for x in like)
    sizes = {"T": T, "D": D, "chunk": chunk, "chunks": chunks, "STEPS": STEPS, "BLOCK": BLOCK}
    launch(name, kernel, (B * chunks * triton.cdiv(D, BLOCK),), **given, **sizes, num_warps=1)


def _state(a: Tensor) -> Tensor:
    """Room for a state [B, D]."""
    return a.new_empty(a.shape[0], a.shape[2], dtype=torch.float32)


def _in_rows(x: Tensor) -> Tensor:
    """The tensor, or a copy where the channels of a step are not in one piece."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _view(x: Tensor | None) -> TimeView | None:
    return None if x is None else TimeView(x, *x.stride()[:2])


# --- kernels --------------------------------------------------------------------------------------


@triton.jit
def scan_kernel(
    a, x, before, h, last, T, D, chunks, chunk, STEPS: tl.constexpr, BLOCK: tl.constexpr
):
    """The states of a chunk, from the one before it on; of the last chunk also the last state."""
    i_b, i_c, o_d = place(D, chunks, BLOCK)
    begin = i_c * chunk
    end = tl.minimum(begin + chunk, T)
    m_d = o_d < D
    b_h = tl.zeros([BLOCK], tl.float32)
    if before is not None:
        b_h = tl.load(pointer(before, i_b, i_c, o_d), mask=m_d)
    for first in range(begin, end, STEPS):
        left = (end - first).to(tl.int32)
        a_rows = load_steps(a, i_b, first, 1, left, o_d, m_d, 1.0, STEPS)
        x_rows = load_steps(x, i_b, first, 1, left, o_d, m_d, 0.0, STEPS)
        p_h = pointer(h, i_b, first, o_d)
        for i in tl.static_range(STEPS):
            b_h = a_rows[i].to(tl.float32) * b_h + x_rows[i].to(tl.float32)
            tl.store(p_h, b_h.to(h.p.dtype.element_ty), mask=m_d & (i < left))
            p_h += h.t
    if last is not None:
        tl.store(last + i_b * D + o_d, b_h, mask=m_d & (i_c == chunks - 1))


@triton.jit
def ends_kernel(
    a, x, products, ends, T, D, chunks, chunk,
    BACK: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of a chunk that nothing flows into: what flows out, and the factor of what would flow in.

    BACK, from its last step to its first, and the last chunk comes first in the results.
    """
    i_b, i_c, o_d = place(D, chunks, BLOCK)
    begin = i_c * chunk
    end = tl.minimum(begin + chunk, T)
    m_d = o_d < D
    b_end, b_product = tl.zeros([BLOCK], tl.float32), tl.full([BLOCK], 1.0, tl.float32)
    for done in range(0, end - begin, STEPS):
        WAY: tl.constexpr = -1 if BACK else 1
        first = end - 1 - done if BACK else begin + done
        left = (end - begin - done).to(tl.int32)
        a_rows = load_steps(a, i_b, first, WAY, left, o_d, m_d, 1.0, STEPS)
        x_rows = load_steps(x, i_b, first, WAY, left, o_d, m_d, 0.0, STEPS)
        for i in tl.static_range(STEPS):
            b_a, b_x = a_rows[i].to(tl.float32), x_rows[i].to(tl.float32)
            b_end = b_a * (b_end + b_x) if BACK else b_a * b_end + b_x
            b_product *= b_a
    i_out = chunks - 1 - i_c if BACK else i_c
    tl.store(pointer(ends, i_b, i_out, o_d), b_end, mask=m_d)
    tl.store(pointer(products, i_b, i_out, o_d), b_product, mask=m_d)


@triton.jit
def gradient_kernel(
    a, h, initial, dh, behind, da, dx, dinitial, T, D, chunks, chunk,
    STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """da and dx of a chunk, from what flows back into it on; the first chunk's is d initial."""
    i_b, i_c, o_d = place(D, chunks, BLOCK)
    begin = i_c * chunk
    end = tl.minimum(begin + chunk, T)
    m_d = o_d < D
    b_initial, b_flow = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    if initial is not None:
        b_initial = tl.load(initial + i_b * D + o_d, mask=m_d)
    if behind is not None:
        b_flow = tl.load(pointer(behind, i_b, chunks - 1 - i_c, o_d), mask=m_d)
    for done in range(0, end - begin, STEPS):
        first = end - 1 - done
        left = (end - begin - done).to(tl.int32)
        before = tl.minimum(first, left).to(tl.int32)  # of these, how many have a step before them
        a_rows = load_steps(a, i_b, first, -1, left, o_d, m_d, 1.0, STEPS)
        dh_rows = load_steps(dh, i_b, first, -1, left, o_d, m_d, 0.0, STEPS)
        h_rows = load_steps(h, i_b, first - 1, -1, before, o_d, m_d, 0.0, STEPS)
        p_da, p_dx = pointer(da, i_b, first, o_d), pointer(dx, i_b, first, o_d)
        for i in tl.static_range(STEPS):
            m_in = m_d & (i < left)
            b_dx = b_flow + dh_rows[i].to(tl.float32)
            b_da = b_dx * tl.where(i < before, h_rows[i].to(tl.float32), b_initial)
            b_flow = a_rows[i].to(tl.float32) * b_dx
            tl.store(p_da, b_da.to(da.p.dtype.element_ty), mask=m_in)
            tl.store(p_dx, b_dx.to(dx.p.dtype.element_ty), mask=m_in)
            p_da -= da.t
            p_dx -= dx.t
    if i_c == 0:
        tl.store(dinitial + i_b * D + o_d, b_flow, mask=m_d)


@triton.jit
def place(D, chunks, BLOCK: tl.constexpr):
    """Batch, chunk and channels of this program; 64 bits, as an element may lie beyond 2^31."""
    i = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(D, BLOCK)
    o_d = i % blocks * BLOCK + tl.arange(0, BLOCK)
    return i // blocks // chunks, i // blocks % chunks, o_d


@triton.jit
def pointer(x, i_b, t, o_d):
    """The channels of one step."""
    return x.p + i_b * x.b + t * x.t + o_d


@triton.jit
def load_steps(x, i_b, first, WAY: tl.constexpr, left, o_d, m_d, other, STEPS: tl.constexpr):
    """STEPS steps from `first` on, forward (1) or back (-1), and `other` where none is left.

    All of them are asked for before anything waits for one.
    """
    p_row = pointer(x, i_b, first, o_d)
    rows = ()
    for i in tl.static_range(STEPS):
        rows = rows + (tl.load(p_row, mask=m_d & (i < left), other=other),)
        p_row += WAY * x.t
    tl.debug_barrier()  # which nothing is moved across
    return rows


# --- what a GPU is given --------------------------------------------------------------------------


def passes(target: str, only: tuple[str, ...] = ()) -> tuple[Pass, ...]:
    """Both versions, forward and backward, for as many channels as each is for; or `only` some."""
    found = {}
    for version, B in ((sequential, 8), (chunked, 1)):
        a, x = (torch.empty(B, 4096, 2560, device="meta") for _ in range(2))
        with recording(target) as launched:
            h_BTD = version(a.requires_grad_(), x.requires_grad_())
            torch.autograd.grad(h_BTD, (a, x), torch.empty_like(h_BTD))
        found = {one.name: one for one in launched} | found
    return tuple(one for one in found.values() if not only or one.name in only)
