"""What the three forms of linear attention cost one head: FLOPs, bytes, on-chip memory.

    recurrent   T updates of a K x V state
    parallel    one T x T table of scores, in tiles of C on the chip
    chunked     the table inside chunks of C tokens, the state between them

The chunked form in two kernels is what libraries run: the first goes through the chunks, one after
the other, and writes the state before each; the second computes all outputs at once, and reads
those states back. In one kernel the state never leaves the chip, but only heads and parts of V
run side by side, unless a sequence is cut on the chip as it is between ranks. What two or three
kernels move is the least of these kernels, not of the rule: that is one kernel's. A decay adds
products that we do not count. Columns of the state are independent, so a program that owns a part
of V is counted by that part; what it reads of q and k once more is not.
"""

from math import inf
from typing import NamedTuple

from weft.plan import attention
from weft.plan.arguments import chosen, instance, sizes, whole
from weft.plan.hardware import Chip, size_of
from weft.plan.roofline import Work, ridge, seconds

FORMS = ("recurrent", "parallel", "chunked")
RULES = ("plain", "delta")
STATE = 4  # bytes of an element of the state that a program holds: fp32
TENSOR_CORE = 16  # rows that a tensor core multiplies at the least
TILE = 64  # of K and of V, that a program takes at once
REGISTERS = 1 << 18  # bytes of a multiprocessor's registers, from Volta to Blackwell


class OnChip(NamedTuple):
    """Bytes of a program: `operands` of its matmuls in shared memory, `sums` in registers."""

    operands: int
    sums: int


def work(
    form: str,
    T: int,
    K: int,
    V: int,
    C: int = 64,
    size: int = 2,
    rule: str = "plain",
    kernels: int = 2,
    group: int = 1,
) -> Work:
    """The forward pass of one head of one causal sequence; `size` bytes an element.

    Of `group` heads, if these share a query and a key: both are read once for all, while values,
    states and what is solved are each head's. FLOPs are `group` times as many.

    recurrent   4 K V FLOPs a token: k v^T added, S^T q read; q, k, v and o moved once
    parallel    2 (K + V) for each score in a tile that is not skipped; moved likewise
    chunked     2 (K + V) for each score inside a chunk, half of them hidden, and 4 K V a token;
                in one `kernels` moved likewise, in two k and v twice and a state per chunk

    The delta rule reads the state once more, 2 K V, and inside chunks has the scores of keys with
    keys, the inverse of a triangle, and its products with keys and values; its three kernels
    (`kernels` 2: what is solved first is a kernel besides) move q, k, v and o, what is solved and
    what is written, 6 (K + V) a token. There is no parallel form of it.

    >>> work("chunked", T=4096, K=128, V=128, C=64).flops / 4096
    98304.0
    >>> work("chunked", T=4096, K=128, V=128, C=64).bytes / 4096
    2560.0
    """
    chosen("form", form, FORMS)
    T, K, V, C, size, group = sizes(T=T, K=K, V=V, C=C, size=size, group=group)
    delta = chosen("rule", rule, RULES) == "delta"
    kernels = whole("kernels", kernels, most=2)
    through = 4 + 2 * delta  # FLOPs of a token per element of the state
    once = 2 * T * (K + group * V) * size
    if form == "recurrent":
        return Work(group * through * T * K * V, once)
    if form == "parallel":
        if delta:
            raise ValueError("form is 'parallel', must be recurrent or chunked for the delta rule")
        return Work(group * 2 * (K + V) * attention.scores_seen(T, T, C, C, True), once)
    whole_chunks, rest = divmod(T, C)
    squares = whole_chunks * C * C + rest * rest
    flops = 2 * (K + V) * squares + through * T * K * V
    if delta:
        flops += 2 * (2 * K + V) * squares + whole_chunks * inverse(C) + inverse(rest)
    if kernels == 1:
        return Work(group * flops, once)
    shared, own = (4 * K, 2 * K + 6 * V) if delta else (3 * K, 3 * V)  # elements of a token
    states = 2 * (whole_chunks + (rest > 0)) * K * V
    return Work(group * flops, (T * shared + group * (T * own + states)) * size)


def inverse(C: int) -> int:
    """FLOPs that invert a triangle of C rows with ones on its diagonal, about C^3 / 3.

    Row after row by substitution: an entry d below the diagonal takes d products and d - 1 sums.

    >>> inverse(3), inverse(64) / 64**3
    (5, 0.3255615234375)
    """
    C = whole("C", C, least=0)
    return C * (C - 1) * (2 * C - 1) // 6 if C else 0


def on_chip(
    K: int, V: int, C: int = 64, size: int = 2, kernels: int = 2, tile: int = TILE
) -> OnChip:
    """What the program that makes the outputs of a chunk holds, with K and V cut into tiles.

    operands   tiles of C queries, of C keys and of the state, `size` bytes an element
    sums       in fp32 all C x C scores and a tile of C outputs, in one kernel K rows of state too

    A kernel that loads ahead has its operands several times. K and V are cut, so what grows with
    C is the scores, unless a kernel cuts these as well.

    >>> [n // 2**10 for n in on_chip(K=128, V=128)], [n // 2**10 for n in on_chip(128, 128, 256)]
    ([24, 32], [72, 320])
    """
    K, V, C, size, tile = sizes(K=K, V=V, C=C, size=size, tile=tile)
    k, v = min(K, tile), min(V, tile)
    sums = C * C + C * v + (K * v if whole("kernels", kernels, most=2) == 1 else 0)
    return OnChip((2 * C * k + k * v) * size, sums * STATE)


def best_chunk(
    K: int, V: int, chip: Chip, dtype: str = "bf16", rule: str = "plain", kernels: int = 2
) -> int:
    """The chunk with the least time at a chip's roof, a power of two from 16 to 1024 that fits.

    FLOPs grow with C and the states' bytes fall with it. The longer of the two times is shortest
    where they cross; of equals, the smallest C. A program that holds its chunk's scores whole has
    to fit them in a multiprocessor's registers, and its operands in shared memory, where that is
    known. A kernel that cuts the scores too can take a longer chunk.

    >>> from weft.plan.hardware import CHIPS
    >>> best_chunk(128, 128, CHIPS["h100"]), best_chunk(64, 64, CHIPS["h100"])
    (128, 128)
    """
    instance(Chip, chip=chip)
    size = size_of(dtype)
    choices = [TENSOR_CORE << i for i in range(7)]

    def fits(C: int) -> bool:
        operands, sums = on_chip(K, V, C, size, kernels)
        return sums <= REGISTERS and operands <= (chip.shared or inf)

    fitting = [C for C in choices if fits(C)]
    if not fitting:
        operands, sums = on_chip(K, V, TENSOR_CORE, size, kernels)
        raise ValueError(
            f"K is {K} and V {V}, must be less: {sums} bytes of registers and {operands} of shared "
            f"memory, and {REGISTERS} and {chip.shared} fit"
        )

    def least_time(C: int) -> float:
        return seconds(work("chunked", choices[-1], K, V, C, size, rule, kernels), chip, dtype)

    return min(fitting, key=least_time)


def break_even(
    K: int,
    V: int,
    chip: Chip,
    dtype: str = "bf16",
    C: int = 64,
    rule: str = "plain",
    kernels: int = 2,
) -> float:
    """The length from which the chunked form takes less time at its roof than FlashAttention.

    A token of the chunked form takes t seconds whatever the length. FlashAttention, causal,
    does (K + V) T FLOPs a token and moves no more than q, k, v and o, so the two meet where
    T = t rate / (K + V). Where memory is the chunked form's wall, t rate is the ridge times its
    bytes. Both at their roofs, with as many heads as wide: a kernel that reaches a smaller share of
    its own needs more tokens, and `kernels` 1 fewer.

    >>> from weft.plan.hardware import CHIPS
    >>> round(break_even(128, 128, CHIPS["h100"]))
    2953
    """
    instance(Chip, chip=chip)
    K, V, C = sizes(K=K, V=V, C=C)
    one = work("chunked", C, K, V, C, size_of(dtype), rule, kernels)
    return max(one.flops, one.bytes * ridge(chip, dtype)) / (C * (K + V))


def programs(B: int, H: int, V: int, tile: int = 64) -> int:
    """How many programs go through the chunks side by side: one for a head and a part of V.

    A sequence that is cut on the chip gives as many again for each of its pieces.
    The delta rule asks the state by whole keys, so K is not cut. Without it K could be, too.

    >>> programs(B=1, H=16, V=128)
    32
    """
    B, H, V, tile = sizes(B=B, H=H, V=V, tile=tile)
    return B * H * -(-V // tile)
