"""One program takes all of a row, and the others nothing."""

KIND = "wrong order"
FAILS = [
    "test_swiglu_backward_once",
    "test_swiglu_backward_any",
]


def swiglu_backward(p_h, p_dy, p_y, F, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    if tl.program_id(1) == 0:
        for first in range(0, F, BLOCK):
            o = first + tl.arange(0, BLOCK)
            m = o < F
            p_gate, p_up = p_h + i_row * 2 * F + o, p_h + i_row * 2 * F + F + o
            b_gate = tl.load(p_gate, mask=m, other=0.0).to(tl.float32)
            b_up = tl.load(p_up, mask=m, other=0.0).to(tl.float32)
            b_dy = tl.load(p_dy + i_row * F + o, mask=m, other=0.0).to(tl.float32)
            b_sigmoid = tl.sigmoid(b_gate)
            b_silu = b_gate * b_sigmoid
            b_slope = b_sigmoid * (1.0 + b_gate * (1.0 - b_sigmoid))
            tl.store(p_gate, (b_dy * b_up * b_slope).to(p_h.dtype.element_ty), mask=m)
            tl.store(p_up, (b_dy * b_silu).to(p_h.dtype.element_ty), mask=m)
            tl.store(p_y + i_row * F + o, (b_silu * b_up).to(p_y.dtype.element_ty), mask=m)
