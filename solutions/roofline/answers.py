"""The roofline: five functions to write. README.md says what each has to reach.

The first three are plain Python, the fourth is torch on a tile memory that counts, the last a
Triton kernel whose loads and stores are counted.

The library's own counts are closed while you are graded. Grade with `weft grade roofline`.
"""

# BEGIN SOLUTION
import math
from collections import OrderedDict
from itertools import product

# END SOLUTION
from types import SimpleNamespace

try:
    import torch
    import triton.language as tl
except ImportError:  # the first three need neither
    tl = SimpleNamespace(constexpr=None)


def walk(
    rows: int, columns: int, steps: int, a: int, b: int, cache: int, wave: int, groups: list[int]
) -> tuple[int, int]:
    """In which order of its tiles a matmul fetches the fewest bytes from memory.

    The result is cut into `rows` times `columns` tiles, and a program computes each. They are
    numbered in groups of g rows of tiles: all of the first g rows before all of the next g, and so
    on; the last group may have fewer. Within a group they are numbered down its first column of
    tiles, then down its second one, and so on.

    The first `wave` programs run at once, then the next `wave`, and so on; the last wave may have
    fewer. A wave goes through the contracted dim in `steps` steps. In each step the programs of the
    wave, in the order of their numbers, load one slice of the first operand and then one of the
    second. For the first operand there is a slice for each step and row of tiles, of `a` bytes,
    for the second one for each step and column of tiles, of `b` bytes.

    All loads pass through one cache of `cache` bytes, at least a and at least b. It is empty at
    first, keeps what it has from wave to wave, and holds whole slices. A slice that it holds is not
    fetched. One that it does not hold is fetched from memory and kept: if there is no room for it,
    those that nobody has loaded for longest leave until there is (LRU, least recently used).

    Return (g, bytes fetched from memory) for the g of `groups` that fetches the fewest, of equal
    ones the smallest.

    walk(rows=4, columns=4, steps=1, a=10, b=10, cache=40, wave=1, groups=[1, 2, 4]): groups of 1
    and of 4 fetch 200 bytes, groups of 2 fetch 120, so it is (2, 120). With cache=60 those of 1 and
    of 4 fetch 80, and it is (1, 80).
    """
    # BEGIN SOLUTION
    best = None
    for g in sorted(groups):
        order = []
        for top in range(0, rows, g):
            high = min(g, rows - top)
            order += [(top + i % high, i // high) for i in range(high * columns)]
        held, used, moved = OrderedDict(), 0, 0
        for first in range(0, len(order), wave):
            programs = order[first : first + wave]
            for step in range(steps):
                for row, column in programs:
                    for key, size in (((0, row, step), a), ((1, column, step), b)):
                        if key in held:
                            held.move_to_end(key)
                            continue
                        moved += size
                        used += size
                        while used > cache:
                            used -= held.popitem(last=False)[1]
                        held[key] = size
        if best is None or moved < best[1]:
            best = g, moved
    return best
    # END SOLUTION


def stalls(
    kernels: list[tuple[float, float, bool]],
    launch: float,
    depth: int,
    rate: float,
    bandwidth: float,
    start: float,
) -> dict[str, float]:
    """To which of three walls the time of a queue of kernels goes: {wall: seconds}.

    kernels: (FLOPs, bytes, read) of each, in order. `read` says that the host reads its result, as
        by .item().

    Running takes a kernel the longest of three times: FLOPs / rate, bytes / bandwidth, and `start`,
    which even the smallest needs. They run one after another: a kernel begins when its launch is
    over and the kernel before it has ended.

    The host launches one after another, `launch` seconds for each, the first from time 0 on. It
    begins a launch when the one before is over, and not before two more things: if the kernel
    before is read, that kernel has ended; and kernel i waits for room in the queue, which holds
    `depth` kernels that have not begun, the one that is being launched included: its launch does
    not begin before kernel i - depth has begun.

    Return {"overhead": …, "memory": …, "compute": …}, three numbers, together the time at which the
    last kernel ends. A kernel's running goes to the wall that makes it so long: `start` is
    overhead. Of equally long ones compute comes before memory, memory before overhead. While no
    kernel runs, the time goes to overhead. No kernels take no time.

    With launch=4, depth=100, rate=1, bandwidth=1 and start=2, kernels (1, 9, False), (1, 1, False),
    (5, 3, False) take 20 seconds: {"overhead": 6, "memory": 9, "compute": 5}. If the first is read,
    they take 26, with 12 of overhead; with depth=1 instead, 22, with 8.
    """
    # BEGIN SOLUTION
    spent = dict.fromkeys(("overhead", "memory", "compute"), 0.0)
    host = device = 0.0
    begun = []
    for i, (flops, nbytes, _) in enumerate(kernels):
        if i and kernels[i - 1][2]:
            host = max(host, device)
        if i >= depth:
            host = max(host, begun[i - depth])
        host += launch
        begin = max(host, device)
        spent["overhead"] += begin - device
        times = {"compute": flops / rate, "memory": nbytes / bandwidth, "overhead": start}
        wall = max(times, key=times.__getitem__)
        spent[wall] += times[wall]
        begun.append(begin)
        device = begin + times[wall]
    return spent
    # END SOLUTION


def tiling(m: int, n: int, k: int, chip: dict) -> tuple[int, int, int, float]:
    """The tile, and the split of the contracted dim, with which a matmul is done soonest.

    C = A B in 2 bytes a number, A of m x k and B of k x n. A tile of C has tile_m rows and tile_n
    columns, each a power of two from 16 to 256; tiles at the edges may reach beyond C, and are
    computed in full. The contracted dim is taken in slices of 64, the last of which is computed in
    full, too. They are split over 1, 2, 4, 8 or 16 programs for each tile of C, at most as many as
    there are slices; each of these programs counts as if it had ceil(slices / split) of them.

    chip: "sms", of which each runs one program at a time; "shared", the bytes that a program may
        have; "rate" in FLOP/s, "l2" and "memory", the bytes/s of L2 and of memory, each of the
        whole chip; "start", the seconds that even the smallest kernel takes.

    What fits: four buffers, each with one slice of the tile's rows of A and columns of B, into
    "shared"; the tile's sums, 4 bytes each, into 131,072 bytes of registers.

    Time. Programs run in waves of "sms", the last of which takes as long as any. A program
    computes at a share of the rate, 1 / sms of it, and loads its rows and columns at such a share
    of the L2's bandwidth, whether other multiprocessors are busy or not; the longer of the two
    counts. Meanwhile the kernel moves A and B once from memory, and C once to it; where the dim is
    split, in place of C a part of it in 4 bytes from each of the split's programs. The kernel takes
    the longest of its waves, that traffic with memory, and "start". Where the dim is split, a
    second kernel follows, which reads all parts and writes C, at the bandwidth of memory, and takes
    no less than "start" either.

    Return (tile_m, tile_n, split, seconds) with the fewest seconds; of equal ones any.

    An H100 as we take it is {"sms": 132, "shared": 232448, "rate": 989.4e12, "l2": 9.3696e12,
    "memory": 3.35e12, "start": 3e-06}: rates of NVIDIA's data sheet, 5,120 bytes in a clock for the
    L2, a start that we assume. There 256 tokens through Llama 3 8B's down projection, m=256,
    n=4096, k=14336, take (128, 256, 4, 4.789…e-05).
    """
    # BEGIN SOLUTION
    sms, sides, slices = chip["sms"], [16, 32, 64, 128, 256], -(-k // 64)
    best = None
    for tile_m, tile_n, split in product(sides, sides, (1, 2, 4, 8, 16)):
        if split > slices or 4 * tile_m * tile_n > 131072:
            continue
        if 4 * 64 * 2 * (tile_m + tile_n) > chip["shared"]:
            continue
        deep = 64 * -(-slices // split)
        computing = 2 * tile_m * tile_n * deep / (chip["rate"] / sms)
        loading = 2 * (tile_m + tile_n) * deep / (chip["l2"] / sms)
        waves = -(-(-(-m // tile_m) * -(-n // tile_n) * split) // sms)
        parts = 4 * split * m * n if split > 1 else 0
        moved = 2 * (m * k + k * n) + (parts or 2 * m * n)
        seconds = max(waves * max(computing, loading), moved / chip["memory"], chip["start"])
        if parts:
            seconds += max((parts + 2 * m * n) / chip["memory"], chip["start"])
        if best is None or seconds < best[3]:
            best = tile_m, tile_n, split, seconds
    return best
    # END SOLUTION


def entropy(x, out, sram) -> None:
    """The entropy of each row's softmax, through a tile memory that counts, each number read once.

    x is [rows, n], float32. With p the softmax of row i, out[i, 0] becomes the sum over the row of
    -p log p, in nats. A number may be -inf: its p is 0, and so is what it adds. No row has nothing
    else, and the others lie between -2,000 and 2,000. out is [rows, 1].

    It runs under `with sram:` (weft.meter.Sram). `tile = sram.load(x[i : i + 1, s:e])` copies a
    part in, arithmetic on tiles makes tiles, sram.alloc(1, 1, fill=h) makes a tile of a number,
    `sram.store(out[i : i + 1], tile)` copies one out. sram.capacity, at least 512, is the bytes
    that all tiles alive at one time may take, those that a line makes on its way included; `del`
    frees one. `tile.sub_(…)`, `exp_()` and the like work in place. Running numbers may be Python's,
    taken out of tiles by .item(): four for each tile that is loaded, of one with fewer than eight
    numbers half as many as it has, and 256 besides.

    A row may be far longer than the memory. In the end each element of x is read once all the same,
    and each of out written once. An entropy h may be off by 2e-5 + h / 10,000.
    """
    # BEGIN SOLUTION
    rows, n = x.shape
    room = sram.capacity // (4 * x.element_size())
    for i in range(rows):
        most, total, weighted = -math.inf, 0.0, 0.0
        for at in range(0, n, room):
            tile = sram.load(x[i : i + 1, at : at + room])
            higher = max(most, tile.amax().item())
            if higher == -math.inf:
                continue
            if total:
                grown = higher - most
                weighted = math.exp(-grown) * (weighted - grown * total)
                total *= math.exp(-grown)
            most = higher
            tile.sub_(most).clamp_(min=-1e5)
            weights = torch.exp(tile)
            total += weights.sum().item()
            weighted += weights.mul_(tile).sum().item()
            del tile, weights
        sram.store(out[i : i + 1], sram.alloc(1, 1, fill=math.log(total) - weighted / total))
    # END SOLUTION


def swiglu_backward(p_h, p_dy, p_y, F, BLOCK: tl.constexpr):
    """A Triton kernel, run as swiglu_backward[(rows, ceil(F / BLOCK))](…): a gated MLP's middle,
    backward, in the place of what was kept.

    Forward has made y = silu(gate) * up, silu(g) being g * sigmoid(g), and has kept h [rows, 2F]
    alone, where a row is gate and up side by side, F numbers each. dy [rows, F] is the gradient of
    the loss in y. Leave in h the gradients in gate and up, each in the place of what it belongs to,
    and in y [rows, F] what forward had made: the weight behind it needs that for its own gradient.

    All are without gaps, and all in float16 or all in float32. Compute in float32. Gates lie
    between -1000 and 1000, where nothing may overflow or become NaN.

    Program (i, j) has the columns from j * BLOCK up to (j + 1) * BLOCK of row i, of gate, up, dy
    and y; the last program of a row may reach beyond F. BLOCK is a power of two. Load each element
    of h and dy once, store each of h and y once, touch nothing else. The grader adds triton.jit.
    """
    # BEGIN SOLUTION
    i_row = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
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
    # END SOLUTION
