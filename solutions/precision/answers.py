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
    # BEGIN SOLUTION
    scale, history, told = 1.0, [], []
    for numbers in steps:
        amax = max(history[-length:], default=0.0)
        if 0 < amax < inf:
            scale = ldexp(1.0, frexp(top / amax)[1] - 1 - margin)
        scaled = [abs(x) * scale for x in numbers]
        told.append((scale, sum(x > top for x in scaled), sum(0 < x <= least / 2 for x in scaled)))
        history.append(max(map(abs, numbers), default=0.0))
    return told
    # END SOLUTION


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
    # BEGIN SOLUTION
    linear, layers = model["linear"], model["layers"]
    matrices = layers * sum(k * n for k, n in linear)
    parameters = matrices + model["others"]
    sequences, weight, update = run["sequences"], run["weight"], run["update"]

    spacing = ldexp(1.0, frexp(weight)[1] - 1 - 7)
    f = update / spacing % 1
    trains = {
        "nearest": update > spacing / 2,
        "kahan": update > spacing / 512,
        "master": update > spacing / 2**17,
        "stochastic": run["steps"] * f * (1 - f) * spacing**2 <= (run["noise"] * weight) ** 2,
    }
    size = {"nearest": 2, "stochastic": 2, "kahan": 4, "master": 6}
    best = None
    for weights in (name for name in trains if trains[name]):
        for moments, m, bits in (("bf16", 4, 8), ("fp32", 8, 24)):
            if 2.0**-bits / (1 - run["beta2"]) > run["stale"]:
                continue
            for parts in (p for p in range(1, sequences + 1) if sequences % p == 0):
                tokens = sequences // parts * run["length"]
                for gradients, g in (("bf16", 2), ("fp32", 4)):
                    if gradients == "bf16" and parts > 257:
                        continue
                    read = g + m + (4 if weights == "master" else size[weights])
                    moved = parameters * (read + m + size[weights])
                    for matmuls, byte in (("bf16", 2), ("fp8", 1)):
                        layer = tokens * sum(byte * k for k, _ in linear)
                        layer += tokens * 2 * model["between"]
                        for keep, forwards in (("all", 1), ("inputs", 2)):
                            kept = layers * layer
                            if keep == "inputs":
                                kept = layers * tokens * 2 * linear[0][0] + layer
                            total = parameters * (size[weights] + m + g) + kept
                            if 10 * total > 9 * chip["memory"]:
                                continue
                            flops = (forwards + 2) * 2 * tokens * matrices
                            cast = sum(
                                forwards * (tokens * k + k * n) + tokens * n for k, n in linear
                            )
                            each = flops / chip[matmuls]
                            if matmuls == "fp8":
                                each += layers * 6 * cast / chip["bandwidth"]
                            seconds = parts * each + moved / chip["bandwidth"]
                            if best is None or seconds < best["seconds"]:
                                best = {
                                    "weights": weights,
                                    "moments": moments,
                                    "gradients": gradients,
                                    "matmuls": matmuls,
                                    "keep": keep,
                                    "parts": parts,
                                    "bytes": total,
                                    "seconds": seconds,
                                }
    return best
    # END SOLUTION


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
    # BEGIN SOLUTION

    def rounded(a, high, wide):
        rows, columns = a.shape
        a = torch.nn.functional.pad(a, (0, -columns % wide, 0, -rows % high))
        tiles = a.view(a.shape[0] // high, high, a.shape[1] // wide, wide)
        part, power = tiles.abs().amax((1, 3), keepdim=True).frexp()
        scale = torch.ones_like(part).ldexp(9 - power - (part > 448 / 512).int())
        eight = (tiles * scale).to(torch.float8_e4m3fn)
        return (eight.float() / scale).view(a.shape)[:rows, :columns]

    tiled = rounded(w, block, block)
    y = rounded(x, 1, block) @ tiled.T
    dx = rounded(dy, 1, block) @ tiled
    dw = rounded(dy, block, 1).T @ rounded(x, block, 1)
    return y, dx, dw
    # END SOLUTION


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
    # BEGIN SOLUTION
    o_r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    o_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_x = (o_r < rows)[:, None] & (o_n < n)[None, :]
    b_x = tl.load(p_x + o_r[:, None] * stride + o_n[None, :], mask=m_x, other=0.0).to(tl.float32)
    b_bits = b_x.to(tl.int32, bitcast=True)
    b_most = tl.max(b_bits & 0x7FFFFFFF, 1)
    b_c = (b_most >> 23) - 2 + ((b_most & 0x7FFFFF) > 0x400000).to(tl.int32)
    b_c = tl.maximum(b_c, 0)
    b_inverse = ((254 - b_c) << 23).to(tl.float32, bitcast=True)
    b_a = tl.abs(b_x) * b_inverse[:, None]
    b_code = (b_a > 0.25).to(tl.int32) + (b_a >= 0.75) + (b_a > 1.25) + (b_a >= 1.75)
    b_code = b_code + (b_a > 2.5) + (b_a >= 3.5) + (b_a > 5.0) + ((b_bits < 0).to(tl.int32) << 3)
    m_odd = b_most >= 0x7F800000
    b_code = tl.where(m_odd[:, None], 0, b_code)
    b_low, b_high = tl.split(tl.reshape(b_code, (ROWS, BLOCK // 2, 2)))
    o_b = tl.program_id(1) * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
    m_b = (o_r < rows)[:, None] & (o_b < (n + 1) // 2)[None, :]
    p_b = p_codes + o_r[:, None] * ((n + 1) // 2) + o_b[None, :]
    tl.store(p_b, (b_low | (b_high << 4)).to(tl.uint8), mask=m_b)
    p_s = p_scales + o_r * ((n + BLOCK - 1) // BLOCK) + tl.program_id(1)
    tl.store(p_s, tl.where(m_odd, 255, b_c).to(tl.uint8), mask=o_r < rows)
    # END SOLUTION


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
    # BEGIN SOLUTION
    o_w = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(p_total)
    m_w = (o_w < n) & (total < float("inf"))
    norm = tl.sqrt(total)
    b_g = tl.load(p_gradient + o_w, mask=m_w, other=0.0).to(tl.float32)
    b_g = tl.where(norm > limit, b_g * (limit / tl.maximum(norm, limit)), b_g)
    b_m = tl.load(p_mean + o_w, mask=m_w, other=0.0)
    b_v = tl.load(p_square + o_w, mask=m_w, other=0.0)
    b_bits = tl.load(p_weight + o_w, mask=m_w, other=0.0).to(tl.float32).to(tl.int32, bitcast=True)
    b_bits += tl.load(p_rest + o_w, mask=m_w, other=0).to(tl.int32)
    b_w = b_bits.to(tl.float32, bitcast=True)
    b_m = beta1 * b_m + (1 - beta1) * b_g
    b_v = beta2 * b_v + (1 - beta2) * b_g * b_g
    b_w -= lr * (decay * b_w + (b_m / rise1) / (tl.sqrt(b_v / rise2) + eps))
    b_bits = b_w.to(tl.int32, bitcast=True)
    b_upper = (b_bits + 32768) & -65536
    tl.store(p_mean + o_w, b_m, mask=m_w)
    tl.store(p_square + o_w, b_v, mask=m_w)
    tl.store(p_weight + o_w, b_upper.to(tl.float32, bitcast=True).to(tl.bfloat16), mask=m_w)
    tl.store(p_rest + o_w, (b_bits - b_upper).to(tl.int16), mask=m_w)
    # END SOLUTION
