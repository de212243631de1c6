"""Precision: five functions to write. README.md says what each has to reach.

The first two are plain Python, the third is torch, and the casts that it makes are counted. The
last two are Triton kernels, whose loads and stores are counted.

The library's own formats, scales and kernels are closed while you are graded. Grade with
`weft grade precision`.
"""

from math import frexp, inf, ldexp
from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # the first two need neither
    tl = SimpleNamespace(constexpr=None)


def delayed(
    steps: list[list[float]], top: float, least: float, length: int, margin: int
) -> list[tuple[float, int, int]]:
    """What a delayed scale does to a tensor, for each step: (scale, clipped, lost).

    steps[i] are the numbers of the tensor in step i, perhaps none. All are multiplied by the step's
    scale and cast to a format whose largest number is `top` and whose smallest above 0 is `least`.
    `clipped` is how many are then beyond `top` in magnitude, infinities too, and `lost` how many
    become 0 though they are not 0: they are at most half of `least`, since the middle goes to 0.

    The scale of a step is made before it, from the steps before it alone. A step's amax is the
    largest magnitude of its numbers, before they are scaled and clipped, and 0 if it has none. Of
    the last `length` steps, or of all if there were fewer, take the largest amax; the scale is the
    largest power of two with which that amax, times 2**margin, is at most `top`. If it is 0 or
    infinite, or if there was no step yet, the scale stays what it was. At first it is 1.

    Magnitudes are from 2**-60 to 2**60, 0 or infinite, never NaN. length >= 1, and margin >= 0.

    delayed([[3.0, -0.25], [500.0, 0.0], [2.0**-9, 1.0]], top=448.0, least=2.0**-9, length=2,
    margin=1) is [(1.0, 0, 0), (64.0, 1, 0), (0.25, 0, 1)].
    """
    # Your code here.
    raise NotImplementedError


def formats(chip: dict, model: dict, run: dict) -> dict | None:
    """The formats with which one GPU makes a training step soonest, of those that fit and train.

    chip    its memory in bytes, its bandwidth in bytes/s, and the FLOP/s that matmuls reach in bf16
            and in fp8
    model   layers, all alike; linear: (inputs, outputs) of each linear layer in one of them;
            others: parameters that are in no linear layer; between: numbers of a token that a layer
            keeps for the backward beside the inputs of its linear layers
    run     sequences of a step, and length, the tokens of each; weight: the size of a weight, and
            update: that of its update; steps; beta2; noise and stale, see below

    Choose, and give each choice by its name:

    weights     "nearest", "stochastic": bf16, 2 bytes. "kahan": and what was lost, 4 bytes.
                "master": bf16 and an fp32 master, 6 bytes
    moments     both "bf16" or both "fp32": 4 or 8 bytes
    gradients   "bf16" or "fp32": 2 or 4 bytes, a number for each parameter, in which the parts of a
                step are summed
    matmuls     "bf16" or "fp8", for the linear layers
    keep        "all": of each token, in every layer, the inputs of the linear layers, 1 byte each
                in fp8 and 2 in bf16, and what is between, 2 bytes each. "inputs": the first linear
                layer's inputs alone, 2 bytes each in any case, and at the worst moment what "all"
                keeps of one layer besides
    parts       a divisor of sequences: a step's parts, as many sequences in each, follow each other

    What trains:
    - Rounded to the nearest, a weight has to move: the update is above half of the spacing that
      bf16 has at the weight. With Kahan's sum 256 times less will do, and a master has fp32's
      spacing.
    - Stochastic rounding takes an update of f spacings, f below 1, as a whole spacing with
      probability f and otherwise as 0, each step by itself; of more than one spacing the whole ones
      are exact. The standard deviation of what all steps add up to is at most noise times weight.
    - In bf16 a second moment can stand still while it is off by up to 2**-8 / (1 - beta2) of
      itself: that is at most `stale`. For fp32 it is 2**-24.
    - In bf16 gradients an equal part still counts beside the sum of all before it, if there are at
      most 256 of these: parts is at most 257.

    Memory: weights, moments and gradients of all parameters, and what is kept of the tokens of one
    part, take at most nine tenths.

    Time: a matmul takes 2 FLOPs for each input, output and token. Each layer has one in forward and
    two in backward; with "inputs" the forward is made twice. In fp8 a forward casts the inputs and
    the weights, a backward the gradients of the outputs, in every part and each time anew, and a
    number cast moves 6 bytes. After all parts the optimizer reads gradient, moments and weights (of
    a master that alone, not the bf16 weight) and writes all of these but the gradient, and the bf16
    weight. Moving goes at the bandwidth. Nothing overlaps, and all else takes no time.

    Return {"weights", "moments", "gradients", "matmuls", "keep", "parts", "bytes", "seconds"}: the
    choices, the bytes in memory and the seconds of the step, which are the fewest; of equal ones
    any. None if nothing fits and trains.

    Fine-tuning Llama 3 8B on an H200 at 70 % of its peak, {"memory": 141e9, "bandwidth": 4.8e12,
    "bf16": 692.58e12, "fp8": 1385.23e12}, {"layers": 32, "linear": [(4096, 6144), (4096, 4096),
    (4096, 28672), (14336, 4096)], "others": 1050939392, "between": 43008}, {"sequences": 64,
    "length": 4096, "weight": 0.02, "update": 1e-05, "steps": 10000, "beta2": 0.95, "noise": 0.05,
    "stale": 0.1}: {"weights": "kahan", "moments": "bf16", "gradients": "bf16", "matmuls": "fp8",
    "keep": "all", "parts": 32, "bytes": 109830512640, "seconds": 8.96412…}.
    """
    # Your code here.
    raise NotImplementedError


def linear(x, w, dy, block: int):
    """A linear layer in FP8 with its gradients, in DeepSeek-V3's blocks: (y, dx, dw), in float32.

    x [M, K], w [N, K] and dy [M, N] are float32, and
        y = x @ w.T        dx = dy @ w        dw = dy.T @ x
    In each matmul both factors are in e4m3 (torch.float8_e4m3fn), with a scale for each block of
    numbers: of x and dy, `block` numbers that follow each other along the dim that this matmul sums
    over; of w, a tile of block x block. The last blocks and tiles have fewer numbers where M, N or
    K do not divide. A block's scale is the largest power of two with which its largest magnitude is
    at most 448; where all are 0 they stay 0. Multiply by it, cast, and divide by it again before or
    after the matmul. Sums are in float32, and numbers are between 2**-40 and 2**40 in magnitude, or
    0.

    Cast no number more often than needed: README.md says how casts are counted. Leave what you are
    given as it was.
    """
    # Your code here.
    raise NotImplementedError


def mxfp4(
    p_x, p_codes, p_scales, rows, n, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """A Triton kernel, run as mxfp4[(row blocks, blocks)](…): quantizes to MXFP4, without clipping.

    x [rows, stride] bfloat16, of which the first n columns count. Each BLOCK numbers that follow
    each other in a row, fewer at its end, have one scale. Program (i, j) takes the j-th block of
    ROWS rows from i * ROWS on, and no other; the last program may have fewer rows. BLOCK is a power
    of two, at least 2: 32 in the format itself.

    scales [rows, ceil(n / BLOCK)] uint8: a code c from 0 to 254 stands for 2**(c - 127). It is the
    smallest with which no number of the block is beyond 6 scales in magnitude, so 0 for a block of
    zeros. If a number of the block is infinite or NaN, c is 255 and the block's codes are 0.

    codes [rows, ceil(n / 2)] uint8: number 2 i of a row in the lower four bits of byte i, number
    2 i + 1 in the upper four; where n is odd, the last upper four are 0. Of the four the highest is
    the sign of x, that of -0.0 and of what is rounded to 0, too. The other three count the
    magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 from 0 to 7: x divided by the scale goes to the nearest,
    and from the middle of two to the one whose count is even.

    Read every number once, write every byte once, and touch nothing else. The bits of a float32,
    b.to(tl.int32, bitcast=True), are 1 of sign, 8 of exponent, 23 of fraction. Even columns and odd
    ones are tl.split(tl.reshape(b, (ROWS, BLOCK // 2, 2))). The grader adds triton.jit.
    """
    # Your code here.
    raise NotImplementedError


def adamw(
    p_weight, p_rest, p_gradient, p_mean, p_square, p_total,
    n, limit, lr, decay, beta1, beta2, rise1, rise2, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    """A Triton kernel, run as adamw[(blocks,)](…): one step for BLOCK weights in each program.

    weight [n] bfloat16, rest [n] int16, gradient [n] bfloat16, mean and square [n] float32,
    total [1] float32. Weight and rest together are a float32 master w: its 32 bits, as a whole
    number, are those of weight times 65536 plus rest, and rest may be below 0. So the weight is w
    rounded to the nearest bf16; from the middle of two, where rest is -32768, to the one with the
    larger magnitude.

    total is the sum of the squares of all gradients of the model. Where its root is above limit,
    gradients are multiplied by limit / root. Then, in float32, in place,
        mean = beta1 mean + (1 - beta1) gradient
        square = beta2 square + (1 - beta2) gradient^2
        w = w - lr (decay w + (mean / rise1) / (sqrt(square / rise2) + eps))
    Where total is infinite or NaN, nothing is written.

    Read every number once, 14 bytes for each weight, and total once in each program; write once
    what changes, 12 bytes. The last program may have fewer than BLOCK weights; touch no memory
    beyond n. The grader adds triton.jit.
    """
    # Your code here.
    raise NotImplementedError
