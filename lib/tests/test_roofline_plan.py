"""Work and roofs: closed forms, units and properties; shapes against what papers print."""

from dataclasses import replace
from fractions import Fraction
from math import inf, isclose, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.plan.attention import tiling as tiles
from weft.plan.decode import cache as decode
from weft.plan.hardware import CHIPS, LINKS, SIZES, Chip, Link, size_of
from weft.plan.roofline import work as roofline
from weft.plan.roofline.levels import Level, column_parallel, slowest, tiled_matmul
from weft.plan.roofline.stages import stage_seconds
from weft.plan.roofline.transformer import (
    attention_backward,
    layer,
    layer_backward,
    spent,
    total,
    training_step,
)
from weft.plan.roofline.work import (
    CHAINS,
    EXAMPLES,
    GELU,
    NOTHING,
    OPERATIONS,
    ElementwiseOp,
    Work,
    attainable,
    fused,
    in_kernels,
    matmul,
    operation,
    ridge,
    seconds,
    sizes_of,
    smallest_batch,
    unfused,
    wall,
)
from weft.plan.shape.model import RECOMPUTE, SHAPES, ModelShape, days, utilization
from weft.plan.shape.parts import Experts, Latent

small = st.integers(1, 300)
works = st.builds(Work, st.integers(0, 10**15), st.integers(0, 10**12))
roofs = st.sampled_from([(chip, dtype) for chip in CHIPS.values() for dtype in chip.rates])
chips = st.builds(
    lambda rate, bandwidth: (Chip("any", {"fp32": rate}, bandwidth), "fp32"),
    st.floats(1e6, 1e16),
    st.floats(1e6, 1e13),
)


# --- chips and links ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype", "meets"),
    [
        ("v100", "fp16", 138.9),
        ("a100-40", "bf16", 200.6),
        ("a100-80", "bf16", 153.0),
        ("h100", "bf16", 295.3),
        ("h200", "bf16", 206.1),
        ("b200", "bf16", 281.25),
    ],
)
def test_ridges_are_those_of_the_data_sheets(name, dtype, meets):
    assert ridge(CHIPS[name], dtype) == pytest.approx(meets, abs=0.06)


def test_the_chips_and_links_of_the_book_are_there_with_their_sources():
    assert list(CHIPS) == ["v100", "a100-40", "a100-80", "h100", "h200", "b200"]
    assert list(LINKS) == ["nvlink3", "nvlink4", "nvlink5", "pcie4", "pcie5", "ib-hdr", "ib-ndr"]
    for name, each in (*CHIPS.items(), *LINKS.items()):
        assert each.name == name and each.source
    for chip in CHIPS.values():
        assert set(chip.rates) <= set(SIZES)
        assert 1e9 < chip.memory < 1e12 and 50 < chip.sms < 200
        assert 64 * 1024 <= chip.shared <= 256 * 1024 and 1e6 < chip.l2 < 1e9


@pytest.mark.parametrize("name", CHIPS)
def test_half_the_bytes_is_twice_the_rate(name):
    """Dense rates: the sparse ones of a data sheet, for one dtype alone, would break the pattern.

    The exceptions are ordinary cores, and V100, whose tensor cores know one dtype.
    """
    chip = CHIPS[name]
    for slow, fast in (("tf32", "bf16"), ("bf16", "fp8")):
        if slow in chip.rates and fast in chip.rates:
            assert chip.rate(fast) / chip.rate(slow) == pytest.approx(2, abs=0.002)
    assert chip.rates.get("bf16", chip.rate("fp16")) == chip.rate("fp16")


def test_hopper_rates_follow_from_its_clock():
    h100 = CHIPS["h100"]
    assert h100.rate("bf16") == pytest.approx(132 * 1.83e9 * 4096, rel=1e-3)
    assert h100.rates == CHIPS["h200"].rates and h100.bandwidth < CHIPS["h200"].bandwidth


def test_links_count_one_direction():
    assert [LINKS[f"nvlink{i}"].bandwidth for i in (3, 4, 5)] == [300e9, 450e9, 900e9]
    assert LINKS["ib-ndr"].bandwidth == 400e9 / 8
    assert 0 < LINKS["nvlink4"].latency < LINKS["pcie5"].latency < LINKS["ib-hdr"].latency < 1e-4


def test_a_chip_is_a_value():
    one, two = (Chip("x", {"fp32": 1e12}, 1e9) for _ in range(2))
    assert one == two and hash(one) == hash(two) and len({one, two}) == 1
    with pytest.raises(AttributeError):
        one.bandwidth = 2
    with pytest.raises(TypeError):
        one.rates["fp32"] = 2
    assert Link("a", 1, 2) == Link("a", 1, 2)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: CHIPS["v100"].rate("bf16"), "dtype is 'bf16', must be one that v100 has: fp64"),
        (lambda: Chip("x", {}, 1.0), "rates is empty"),
        (lambda: Chip("x", {"fp32": 0}, 1.0), "rates has 0 for fp32"),
        (lambda: Chip("x", {"fp32": nan}, 1.0), "rates has nan"),
        (lambda: Chip("x", {"fp32": 1.0}, 0), "bandwidth is 0"),
        (lambda: Chip("x", {"fp32": 1.0}, inf), "bandwidth is inf"),
        (lambda: size_of("fp12"), "dtype is 'fp12', must be one of fp64"),
    ],
)
def test_a_wrong_chip_or_dtype_is_named(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


# --- work -----------------------------------------------------------------------------------------


@given(works, works)
def test_work_adds_and_its_intensity_lies_between(a, b):
    both = a + b
    assert (both.flops, both.bytes) == (a.flops + b.flops, a.bytes + b.bytes)
    low, high = sorted((a.intensity, b.intensity))
    if a.bytes and b.bytes:
        assert low * (1 - 1e-12) <= both.intensity <= high * (1 + 1e-12)
        mean = Fraction(a.flops + b.flops, a.bytes + b.bytes)
        assert both.intensity == pytest.approx(float(mean), rel=1e-12)


@given(works, st.integers(0, 50))
def test_so_many_times_the_same_is_a_product(work, times):
    assert times * work == work * times == sum([work] * times, NOTHING)


def test_intensity_at_the_ends():
    assert (Work(3, 0).intensity, Work(0, 3).intensity, NOTHING.intensity) == (inf, 0, 0)


@pytest.mark.parametrize("bad", [-1, nan, inf, "many", None, pytest.param(10**400, id="huge")])
@pytest.mark.parametrize("field", ["flops", "bytes"])
def test_work_is_a_number_of_at_least_nothing(field, bad):
    with pytest.raises(ValueError, match=f"{field} is "):
        Work(**{"flops": 1, "bytes": 1} | {field: bad})


def test_work_takes_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")
    work = Work(numpy.int64(6), numpy.float64(3))
    assert work == Work(6, 3) and type(work.flops) is int
    assert matmul(numpy.int32(2), numpy.int64(3), 4, size=2) == matmul(2, 3, 4, size=2)


def test_work_and_a_number_do_not_add():
    with pytest.raises(TypeError):
        Work(1, 1) + 1


# --- under the roof -------------------------------------------------------------------------------


@given(works, st.one_of(roofs, chips))
def test_what_is_attainable_is_under_both_roofs(work, roof):
    chip, dtype = roof
    limit = attainable(work, chip, dtype)
    assert 0 <= limit <= chip.rate(dtype)
    assert limit <= work.intensity * chip.bandwidth
    assert limit == chip.rate(dtype) or limit == work.intensity * chip.bandwidth
    if work.flops and work.bytes:
        assert limit * seconds(work, chip, dtype) == pytest.approx(work.flops, rel=1e-9)
        if not isclose(work.intensity, ridge(chip, dtype), rel_tol=1e-9):
            above = work.intensity > ridge(chip, dtype)
            assert wall(work, chip, dtype) == ("compute" if above else "memory")


@given(st.integers(1, 10**9), st.one_of(roofs, chips))
def test_the_wall_flips_at_the_ridge(moved, roof):
    chip, dtype = roof
    at = moved * ridge(chip, dtype)
    assert wall(Work(at * 0.999, moved), chip, dtype) == "memory"
    assert wall(Work(at * 1.001, moved), chip, dtype) == "compute"


def test_on_the_ridge_itself_both_take_as_long_and_compute_is_said():
    chip = Chip("x", {"fp32": 8e12}, 2e12)
    work = Work(flops=12, bytes=3)
    assert work.intensity == ridge(chip, "fp32") and wall(work, chip, "fp32") == "compute"
    assert attainable(work, chip, "fp32") == 8e12 and seconds(work, chip, "fp32") == 1.5e-12


@given(works, works, st.one_of(roofs, chips))
def test_one_after_the_other_takes_no_less_than_together(a, b, roof):
    apart = seconds(a, *roof) + seconds(b, *roof)
    together = seconds(a + b, *roof)
    assert together <= apart * (1 + 1e-12)
    if wall(a, *roof) == wall(b, *roof):
        assert together == pytest.approx(apart, rel=1e-9)


# --- operations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "flops", "moved"),
    [
        (roofline.copy(7, 4), 0, 56),
        (roofline.vector_add(7, 4), 7, 84),
        (roofline.triad(7, 4), 14, 84),
        (roofline.dot(7, 4), 14, 56),
        (roofline.matvec(3, 5, 2), 30, 2 * (15 + 5 + 3)),
        (matmul(3, 5, 7, 2), 210, 2 * (21 + 35 + 15)),
        (roofline.softmax(3, 5, 2), 75, 60),
        (roofline.softmax(3, 5, 2, passes=3), 75, 120),
        (roofline.layer_norm(3, 5, 2), 105, 2 * (15 + 15 + 5 + 5)),
        (roofline.attention(3, 5, 2, 7, 4), 2 * 4 * 105, 2 * 4 * (2 * 8 * 7 + 4 * 15)),
        (roofline.attention(3, 5, 2, 7, 4, "flash"), 840, 2 * 4 * 2 * 8 * 7),
        (roofline.attention(3, 5, 4, 7, 2, "flash", G=2), 1680, 2 * 2 * (4 * 3 + 2 * 5) * 7),
        (roofline.decode(5, 4, 2, 7, 2), 4 * 5 * 4 * 7, 2 * (2 * 5 * 2 * 7 + 2 * 4 * 7)),
    ],
)
def test_operations_counted_by_hand(work, flops, moved):
    assert (work.flops, work.bytes) == (flops, moved)


def test_textbook_intensities():
    assert roofline.vector_add(10**6, 4).intensity == 1 / 12
    assert roofline.triad(10**6, 4).intensity == 2 / 12
    assert roofline.dot(10**6, 4).intensity == 2 / 8
    assert roofline.matvec(4096, 4096, 2).intensity == pytest.approx(1, abs=1e-3)
    assert matmul(4096, 4096, 4096, 2).intensity == pytest.approx(1365.3, abs=0.05)
    assert roofline.attention(2048, 2048, 3, 128, 2, "flash").intensity == 2048 / 2
    assert roofline.decode(8192, 32, 32, 128, 2).intensity == pytest.approx(1, rel=1e-3)
    assert roofline.decode(8192, 64, 8, 128, 2).intensity == pytest.approx(8, rel=2e-3)


@given(small, small, small, st.sampled_from([1, 2, 4, 8]))
def test_matvec_and_dot_are_thin_matmuls(m, n, k, size):
    assert roofline.matvec(m, k, size) == matmul(m, 1, k, size)
    assert matmul(m, n, k, size) == matmul(n, m, k, size)
    dot = roofline.dot(k, size)
    assert matmul(1, 1, k, size) == dot + Work(0, size)
    bound = 2 * min(m, n, k) / size
    assert matmul(m, n, k, size).intensity < bound


@given(small, small, small, st.integers(1, 3), st.sampled_from([1, 2, 4]), st.booleans())
def test_attention_in_memory_moves_what_the_algorithm_counts(T, S, K, H, size, causal):
    naive = roofline.attention(T, S, H, K, size, "naive", causal)
    assert naive.bytes == H * sum(tiles.traffic(T, S, K, K, size, T, S, "naive", causal))
    flash = roofline.attention(T, S, H, K, size, "flash", causal)
    assert naive.flops == flash.flops and naive.bytes > flash.bytes
    statistic = H * T * max(size, tiles.STATISTIC)
    one_tile = sum(tiles.traffic(T, S, K, K, size, T, S, "fa2"))
    assert flash.bytes + statistic == H * one_tile


@given(small, small, small, st.sampled_from([2, 4]), st.integers(14, 20), st.booleans())
def test_attention_in_tiles_moves_no_less_and_with_more_room_fewer(T, S, K, size, log, causal):
    work = [
        roofline.attention(T, S, 2, K, size, "flash", causal, sram=2 ** (log + more))
        for more in (0, 1, 8)
    ]
    if not causal:  # under the diagonal narrower tiles skip more, and that can outweigh
        assert work[0].bytes >= work[1].bytes >= work[2].bytes
    if not causal or T <= S:  # else queries that see nothing skip their keys
        assert work[2].bytes >= roofline.attention(T, S, 2, K, size, "flash", causal).bytes
    pair = tiles.tiles(2**log, K, K, size)
    assert work[0].bytes == 2 * sum(tiles.traffic(T, S, K, K, size, *pair, "fa2", causal))


@pytest.mark.parametrize("sram", [2**16, 2**17])
def test_attention_moves_as_much_as_the_theorem_says(sram):
    """N^2 d^2 / M up to a constant: it quadruples with N, and halves with twice the memory."""
    elements = [
        roofline.attention(N, N, 1, 64, 2, "flash", sram=sram).bytes / 2 for N in (8192, 16384)
    ]
    ratios = [elements[i] / tiles.theta(N, 64, sram / 2) for i, N in enumerate((8192, 16384))]
    assert ratios[0] == pytest.approx(ratios[1], rel=0.1)
    assert 1 < ratios[0] < 20


@given(small, small)
def test_causal_attention_counts_the_area_under_the_diagonal(T, S):
    whole = roofline.attention_flops(T, S, 3, 5)
    causal = roofline.attention_flops(T, S, 3, 5, causal=True)
    seen = sum(max(0, S - T + i + 1) for i in range(T))  # exactly, each row of scores
    exact = 4 * 3 * 5 * seen
    assert 0 < causal < whole and abs(causal - exact) <= 2 * 3 * 5 * min(T, S)
    if T == S:
        assert 2 * causal == whole


@given(small, small, st.integers(1, 4), st.integers(1, 4), small, st.sampled_from([1, 2, 4]))
def test_decoding_is_attention_with_one_query(S, K, G, more, batch, size):
    H = G * more
    step = roofline.decode(S, H, G, K, size)
    assert step == roofline.attention(1, S, H, K, size, "flash", G=G)
    assert step.intensity < decode.intensity(H, G, size)
    assert (batch * step).intensity == step.intensity


@pytest.mark.parametrize("name", CHAINS)
def test_fusing_saves_bytes_and_no_flops(name):
    steps, n, size = CHAINS[name], 1000, 2
    apart, one = unfused(n, size, steps), fused(n, size, steps)
    others, again = (sum(getattr(s, what) for s in steps) for what in ("others", "again"))
    assert apart.flops == one.flops == n * sum(step.flops for step in steps)
    assert apart.bytes == n * size * (2 * len(steps) + others + again)
    assert one.bytes == n * size * (2 + others)
    cut = [in_kernels(n, size, steps, kernels) for kernels in range(1, len(steps) + 1)]
    assert cut[0] == one and cut[-1] == apart
    assert [work.bytes for work in cut] == sorted(work.bytes for work in cut)
    assert {work.flops for work in cut} == {one.flops}


def test_gelu_in_eight_kernels_takes_nine_times_as_long():
    apart, one = unfused(10**6, 2, GELU), fused(10**6, 2, GELU)
    for chip in CHIPS.values():
        assert wall(one, chip, "fp32") == "memory"
        ratio = seconds(apart, chip, "fp32") / seconds(one, chip, "fp32")
        assert ratio == pytest.approx(9)


def test_what_a_chain_reads_again_is_free_until_a_cut_comes_before_it():
    steps = (ElementwiseOp("a", 1), ElementwiseOp("b", 1, again=1))
    assert fused(10, 4, steps).bytes == 80
    assert in_kernels(10, 4, steps, 2).bytes == unfused(10, 4, steps).bytes == 200


@given(
    st.integers(1, 3000), st.integers(1, 3000), st.sampled_from([1, 2, 4]), st.one_of(roofs, chips)
)
def test_the_smallest_batch_is_the_first_that_compute_bounds(n, k, size, roof):
    chip, dtype = roof
    m = smallest_batch(n, k, size, chip, dtype)
    if m is None:
        assert wall(matmul(10**9, n, k, size), chip, dtype) == "memory"
        return
    at, before = (matmul(rows, n, k, size) for rows in (m, max(1, m - 1)))
    close = isclose(at.intensity, ridge(chip, dtype), rel_tol=1e-12)
    assert wall(at, chip, dtype) == "compute" or close
    assert m == 1 or wall(before, chip, dtype) == "memory"


def test_the_smallest_batch_comes_near_the_ridge_for_wide_layers():
    chip = CHIPS["a100-80"]
    wide = smallest_batch(2**20, 2**20, 2, chip, "bf16")
    assert ridge(chip, "bf16") < wide < ridge(chip, "bf16") + 1.1
    assert smallest_batch(64, 10**9, 2, chip, "bf16") is None


# --- by name --------------------------------------------------------------------------------------


def test_operations_by_name():
    for name, function in OPERATIONS.items():
        numbers = [3 * 2**i for i in range(len(sizes_of(name)), 0, -1)]
        spelled = ",".join(map(str, numbers))
        assert operation(f"{name}:{spelled}", "bf16") == function(*numbers, size=2)
        assert operation(f"{name} {spelled.replace(',', ' ')}", "fp8") == function(*numbers, size=1)
        assert operation(f"3*{name}:{spelled}", "fp32") == 3 * function(*numbers, size=4)
    for text in EXAMPLES:
        assert operation(text, "bf16").bytes > 0
    assert operation("flash:8,8,2,4", "bf16") == roofline.attention(8, 8, 2, 4, 2, "flash")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "unknown operation ''"),
        ("sing:3", "unknown operation 'sing:3': choose from copy, vector_add"),
        ("matmul", "must be matmul:m,n,k"),
        ("matmul:1,2", "must be matmul:m,n,k"),
        ("matmul:1,2,3,4", "must be matmul:m,n,k"),
        ("matmul:1,2,-3", "must be matmul:m,n,k"),
        ("matmul:1,2,3.5", "must be matmul:m,n,k"),
        ("x*matmul:1,2,3", "must be matmul:m,n,k"),
        ("matmul:1,2,0", "k is 0"),
        ("decode:9,4,3,8", "G is 3, must divide H = 4"),
    ],
)
def test_a_wrong_operation_is_named(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        operation(text, "bf16")


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: roofline.vector_add(0, 4), "n is 0"),
        (lambda: roofline.vector_add(2.5, 4), "n is 2.5"),
        (lambda: roofline.vector_add(True, 4), "n is True"),
        (lambda: roofline.dot(4, size=0), "size is 0"),
        (lambda: matmul(1, 2, "3", 2), "k is '3'"),
        (lambda: roofline.matvec(-1, 2, 2), "m is -1"),
        (lambda: roofline.softmax(2, 2, 2, passes=4), "passes is 4"),
        (lambda: roofline.attention(2, 2, 2, 2, 2, "fast"), "algorithm is 'fast'"),
        (lambda: roofline.attention(2, 2, 4, 2, 2, G=3), "G is 3, must divide H = 4"),
        (lambda: roofline.attention(2, 2, 2, 64, 2, "flash", sram=10), "sram is 10"),
        (lambda: fused(4, 2, []), "steps is empty"),
        (lambda: in_kernels(4, 2, GELU, 9), "kernels is 9, must be at most"),
        (lambda: smallest_batch(0, 2, 2, CHIPS["h100"], "bf16"), "n is 0"),
    ],
)
def test_a_wrong_size_is_named(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("gpt-1.7b", 1.652e9),
        ("gpt-3.6b", 3.562e9),
        ("gpt-7.5b", 7.468e9),
        ("gpt-39b", 39.10e9),
        ("gpt-76b", 76.05e9),
        ("gpt-146b", 145.62e9),
        ("mt-nlg-530b", 529.60e9),
        ("gpt3-175b", 174.6e9),
        ("gpt-1t", 1.008e12),
    ],
)
def test_parameters_are_those_of_the_papers(name, params):
    assert SHAPES[name].params == pytest.approx(params, rel=4e-4)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("bloom-176b", 176_247_271_424),
        ("opt-13b", 12_853_473_280),
        ("llama2-7b", 6_738_415_616),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
    ],
)
def test_parameters_are_those_of_the_published_weights(name, params):
    assert SHAPES[name].params == params


@pytest.mark.parametrize("name", [name for name in SHAPES if name.startswith(("gpt", "mt"))])
def test_parameters_have_the_closed_form(name):
    """12 L D^2 (1 + 13 / (12 D) + (N + seq) / (12 L D)), exactly."""
    s = SHAPES[name]
    L, D = s.layers, s.width
    form = 1 + Fraction(13, 12 * D) + Fraction(s.vocab + s.seq, 12 * L * D)
    assert s.params == 12 * L * D**2 * form
    assert s.layer_params == 12 * D**2 + 13 * D


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("name", [name for name in SHAPES if not name.startswith("llama")])
def test_flops_have_the_closed_forms(name, batch):
    s = SHAPES[name]
    L, D, T, N = s.layers, s.width, s.seq, s.vocab
    for recompute, factor, of_scores, of_logits in (
        ("none", 72, Fraction(T, 6 * D), Fraction(N, 12 * L * D)),
        ("selective", 72, Fraction(T, 3 * D), Fraction(N, 12 * L * D)),
        ("full", 96, Fraction(T, 6 * D), Fraction(N, 16 * L * D)),
    ):
        form = factor * batch * T * L * D**2 * (1 + of_scores + of_logits)
        assert s.flops(batch, recompute) == form


@pytest.mark.parametrize(
    ("name", "batch", "chips", "time", "model", "hardware"),
    [
        ("gpt-22b", 4, 8, 1.10, 0.415, 0.437),
        ("gpt3-175b", 64, 64, 13.75, 0.514, 0.528),
        ("mt-nlg-530b", 280, 280, 37.83, 0.560, 0.570),
        ("gpt-1t", 512, 512, 71.49, 0.563, 0.570),
    ],
)
def test_utilizations_are_those_printed_beside_the_times(name, batch, chips, time, model, hardware):
    """Korthikanti et al. 2022, table 5: iteration times and both utilizations, on A100s."""
    peak, shape = CHIPS["a100-80"].rate("bf16"), SHAPES[name]
    for recompute, printed in (("none", model), ("selective", hardware)):
        found = utilization(shape.flops(batch, recompute), time, peak, chips)
        assert found == pytest.approx(printed, abs=0.0016)


def test_bloom_reached_what_its_log_says():
    """2048 sequences at 19.561 a second on 384 GPUs, with the layers recomputed: 149.77 TFLOP/s."""
    flops = SHAPES["bloom-176b"].flops(2048, "full")
    assert flops / (2048 / 19.561) / 384 == pytest.approx(149.77e12, rel=1e-4)
    simple = 8 * SHAPES["bloom-176b"].params * 2048 * 2048  # as `days` counts
    assert simple / (2048 / 19.561) / 384 == pytest.approx(147.10e12, rel=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_a_token_costs_about_eight_flops_a_parameter(name):
    """Or six without recomputing: scores and logits make the difference, and small models more."""
    shape = SHAPES[name]
    for factor, recompute in ((8, "full"), (6, "none")):
        each = shape.flops(3, recompute) / (3 * shape.seq)
        assert 0.95 < each / (factor * shape.params) < 1.35


def test_days_of_training_are_those_of_the_paper():
    assert days(175e9, 300e9, 140e12, chips=1024) == pytest.approx(34, abs=0.2)
    assert days(1e12, 450e9, 163e12, chips=3072) == pytest.approx(84, abs=0.9)


def test_recomputing_costs_what_is_run_again():
    """One forward of what was dropped; the paper's form for "selective" charges three."""
    for shape in SHAPES.values():
        assert shape.recomputed(2, "none") == 0
        attention = (
            shape.layers
            * 2
            * roofline.attention_flops(shape.seq, shape.seq, shape.heads, shape.key_width)
        )
        assert shape.recomputed(2, "selective") == attention
        assert shape.flops(2, "selective") - shape.flops(2) == 3 * attention
        forward = shape.flops(2) // 3 - 2 * 2 * shape.seq * shape.vocab * shape.width
        assert shape.recomputed(2, "full") == forward


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"width": 6.5}, "width is 6.5"),
        ({"heads": 5}, "width is 64, must be a multiple of heads = 5"),
        ({"kv_heads": 3}, "kv_heads is 3, must divide heads = 8"),
        ({"kv_heads": 16}, "kv_heads is 16, must divide heads = 8"),
        ({"hidden": -1}, "hidden is -1"),
        ({"vocab": True}, "vocab is True"),
        ({"positions": -1}, "positions is -1"),
        ({"norms": 1.5}, "norms is 1.5"),
    ],
)
def test_a_shape_that_cannot_be_is_named(changes, complaint):
    sizes = {"layers": 2, "width": 64, "heads": 8, "vocab": 100, "seq": 32}
    ModelShape(**sizes)
    with pytest.raises(ValueError, match=complaint):
        ModelShape(**sizes | changes)


@pytest.mark.parametrize(("batch", "recompute"), [(0, "none"), (1, "some"), (1.5, "full")])
def test_a_wrong_step_is_named(batch, recompute):
    with pytest.raises(ValueError, match=r"(batch|recompute) is"):
        SHAPES["gpt-22b"].flops(batch, recompute)
    with pytest.raises(ValueError, match=r"(batch|recompute) is"):
        training_step(SHAPES["gpt-22b"], batch, recompute=recompute)


# --- a transformer as work ------------------------------------------------------------------------

DENSE = ("qkv", "attention", "out", "up", "down", "logits")


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", ["gpt-22b", "bloom-176b", "llama2-70b", "llama3-8b"])
def test_a_step_multiplies_as_much_as_the_shape_says(name, batch):
    shape = SHAPES[name]
    for recompute in RECOMPUTE:
        parts = training_step(shape, batch, algorithm="naive", recompute=recompute)
        dense = [work for part, work in parts.items() if part.split()[-1] in DENSE]
        assert total(dict(enumerate(dense))).flops == shape.flops(batch)
        again = parts.get("recompute", NOTHING).flops
        assert again >= shape.recomputed(batch, recompute)
        if recompute == "selective":
            assert again == shape.recomputed(batch, recompute)
    assert total(parts).flops < 1.02 * shape.flops(batch, "full")


def test_a_layer_is_made_of_what_roofline_counts():
    shape, size = ModelShape(3, 48, 6, 100, 10, kv_heads=2, hidden=80, gated=True, bias=False), 2
    parts = layer(shape, 5, size, fuse=False)
    assert parts["qkv"] == matmul(50, 48 + 2 * 2 * 8, 48, size)
    assert parts["up"] == matmul(50, 160, 48, size)
    assert parts["down"] == matmul(50, 48, 80, size)
    assert parts["attention"] == 5 * roofline.attention(10, 10, 6, 8, size, "flash", G=2)
    assert parts["norm"] == parts["norm 2"] == roofline.layer_norm(50, 48, size)
    assert parts["add"] == Work(50 * 48, 3 * 50 * 48 * size)
    assert parts["activation"].bytes == 5 * 50 * 80 * size
    fewer = layer(shape, 5, size)
    assert fewer["activation"].bytes == 3 * 50 * 80 * size
    assert {part for part in parts if parts[part] != fewer[part]} == {"activation"}


@given(small, small, st.integers(1, 3), st.sampled_from([2, 4]))
def test_backward_counts_twice_the_forward_and_flash_redoes_the_scores(T, K, H, size):
    naive, flash = (attention_backward(T, T, H, K, size, how) for how in ("naive", "flash"))
    forward = roofline.attention(T, T, H, K, size)
    assert naive.flops == 2 * forward.flops and 2 * flash.flops == 5 * forward.flops
    assert naive.bytes == H * (8 * T * K + 7 * T * T) * size
    assert flash.bytes == H * 8 * T * K * size


def test_a_backward_matmul_is_two_of_the_same_size():
    shape = ModelShape(1, 32, 4, 64, 6)
    back, there = layer_backward(shape, 2, 2), layer(shape, 2, 2)
    for name, (inputs, outputs) in shape.matrices.items():
        of_input, of_weight = matmul(12, inputs, outputs, 2), matmul(inputs, outputs, 12, 2)
        assert back[name] == of_input + of_weight == 2 * there[name]


def test_only_matmuls_and_flash_attention_of_a_large_layer_are_bound_by_compute():
    chip = CHIPS["h100"]
    parts = layer(SHAPES["gpt3-175b"], 1, 2)
    bound = {name for name, work in parts.items() if wall(work, chip, "bf16") == "compute"}
    assert bound == set(DENSE) - {"logits"}
    naive = layer(SHAPES["gpt3-175b"], 1, 2, algorithm="naive")
    assert wall(naive["attention"], chip, "bf16") == "memory"
    times = spent(parts, chip, "bf16")
    assert list(times) == list(parts)
    assert sum(times.values()) > seconds(total(parts), chip, "bf16")


def test_adam_streams_seven_numbers_of_four_bytes():
    shape = SHAPES["gpt-1.7b"]
    adam = training_step(shape, 1)["adam"]
    assert adam.bytes == 28 * shape.params
    assert all(wall(adam, chip, "fp32") == "memory" for chip in CHIPS.values())


# --- layers that differ ---------------------------------------------------------------------------

EXPERTS = Experts(count=8, active=2, hidden=24, shared=40, shared_gate=True, layers=4)
LATENT = Latent(key_value=20, rope=6, value=10, query=14)
LEAN = {"gated": True, "bias": False, "tied": False, "positions": 0, "norms": 1}
ODD = {
    "experts": ModelShape(6, 48, 6, 100, 10, 2, 80, **LEAN, experts=EXPERTS),
    "latent": ModelShape(6, 48, 6, 100, 10, hidden=80, **LEAN, head=16, latent=LATENT),
    "windows": ModelShape(6, 48, 6, 100, 10, 2, 80, **LEAN, head=12, window=4, windowed=5),
    "narrow table": ModelShape(6, 48, 6, 100, 10, embedding=20),
}
BETWEEN = {"activation", "add", "norm", "loss", "embedding", "adam", "recompute", "2"}


@pytest.mark.parametrize("name", ODD)
def test_a_step_of_layers_that_differ_multiplies_as_much_as_the_shape_says(name):
    shape = ODD[name]
    parts = training_step(shape, 3, algorithm="naive", recompute="full")
    dense = {part: work for part, work in parts.items() if part.split()[-1] not in BETWEEN}
    assert total(dense).flops == shape.flops(3)
    assert parts["recompute"].flops >= shape.recomputed(3, "full")
    assert parts["adam"].flops == 15 * shape.params


def test_the_weights_of_a_step_are_counted_one_by_one():
    attention = 48 * (6 + 2 * 2) * 8 + 48 * 48
    dense, expert, shared = 3 * 48 * 80, 3 * 48 * 24, 3 * 48 * 40
    sparse = 2 * expert + shared + 48 * 8 + 48
    assert ODD["experts"].multiplied == 6 * attention + 2 * dense + 4 * sparse
    narrow = 48 * 14 + 14 * 6 * 16 + 48 * (20 + 6) + 20 * 6 * (10 + 10) + 6 * 10 * 48
    assert ODD["latent"].multiplied == 6 * (narrow + dense)
    scores = 4 * 10 * 6 * 12 * (10 + 5 * 4)  # one layer sees ten, five see four
    weights = 48 * (6 + 4) * 12 + 6 * 12 * 48 + dense
    assert ODD["windows"].flops(1) == 3 * (2 * 10 * (6 * weights + 100 * 48) + scores)


def test_of_experts_those_are_read_that_have_a_token():
    one = replace(ODD["experts"], seq=1, layers=4, experts=replace(EXPERTS, layers=None))
    few, many = layer(one, 1, 2), layer(one, 100, 2)
    up = 48 * 2 * 24
    assert few["experts up"] == Work(2 * 2 * up, 2 * (2 * (48 + 48) + 2 * up))
    assert many["experts up"] == Work(2 * 200 * up, 2 * (200 * (48 + 48) + 8 * up))


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: Experts(4, 5, 8), "active is 5, must be at most count = 4"),
        (lambda: Experts(4, 0, 8), "active is 0"),
        (lambda: Latent(0, 1, 1), "key_value is 0"),
        (lambda: replace(ODD["experts"], layers=3), "experts.layers is 4, must be at most the 3"),
        (lambda: replace(ODD["latent"], head=4), "latent.rope is 6, must be at most the head's 4"),
        (lambda: replace(ODD["windows"], windowed=7), "windowed is 7, must be at most the 6"),
        (lambda: replace(ODD["windows"], window=None), "windowed is 5, must be at most"),
        (
            lambda: replace(ODD["windows"], biased=("qvk",)),
            "biased is 'qvk', must be one of qkv",
        ),
        (lambda: ODD["experts"].matrices, "experts.layers is 4: ask each of `kinds`"),
        (lambda: decode.step(ODD["latent"], 1, 1), "shape has latent, must have none"),
    ],
)
def test_layers_that_cannot_be_are_named(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


# --- stages of a pipeline -------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 4, 6])
@pytest.mark.parametrize("name", ["experts", "latent", "windows"])
def test_the_stages_together_take_what_a_step_takes(name, p):
    shape, chip = ODD[name], CHIPS["h200"]
    times = stage_seconds(shape, p, 3, chip, "bf16")
    assert [len(each) for each in times.values()] == [p] * 3
    step = spent(training_step(shape, 3), chip, "bf16")
    del step["adam"]
    assert sum(map(sum, times.values())) == pytest.approx(sum(step.values()), rel=1e-9)


def test_a_stage_has_its_layers_and_the_ends_what_is_outside():
    shape, chip = ModelShape(7, 64, 4, 100, 16), CHIPS["h100"]
    times = stage_seconds(shape, 3, 2, chip, "bf16")
    (one,) = set(stage_seconds(replace(shape, layers=4), 4, 2, chip, "bf16")["w"][1:3])
    assert times["w"][1] == pytest.approx(2 * one)
    assert times["w"][0] > 3 * one and times["w"][2] > 2 * one
    multiplied = [work for name, work in layer(shape, 2, 2).items() if name in shape.matrices]
    assert one == pytest.approx(sum(seconds(work, chip, "bf16") for work in multiplied))


@pytest.mark.parametrize(
    ("p", "micro", "dtype", "complaint"),
    [(0, 1, "bf16", "p is 0"), (7, 1, "bf16", "p is 7, must be at most the 6 layers"),
     (1, 0, "bf16", "microbatch is 0"), (1, 1, "int3", "dtype is 'int3'")],
)  # fmt: skip
def test_stages_that_cannot_be_are_named(p, micro, dtype, complaint):
    with pytest.raises(ValueError, match=complaint):
        stage_seconds(ODD["windows"], p, micro, CHIPS["h100"], dtype)


# --- levels ---------------------------------------------------------------------------------------


@given(*(st.integers(1, 40) for _ in range(5)))
def test_each_tile_of_a_matmul_loads_for_itself(m, n, k, tile_m, tile_n):
    elements = 0
    for top in range(0, m, tile_m):
        for left in range(0, n, tile_n):
            high, wide = min(tile_m, m - top), min(tile_n, n - left)
            elements += high * k + k * wide + high * wide
    work = tiled_matmul(m, n, k, 2, tile_m, tile_n)
    assert work == Work(2 * m * n * k, 2 * elements)
    assert tiled_matmul(m, n, k, 2, m, n) == matmul(m, n, k, 2)


def test_the_intensity_at_the_cache_is_the_tiles_alone():
    for side in (4096, 16384):
        work = tiled_matmul(side, side, 2**20, 2, 128, 256)
        assert work.intensity == pytest.approx(1 / (1 / 128 + 1 / 256), rel=1e-3)


def test_a_ranks_link_is_its_weights_width_over_the_other_ranks():
    for m, t in ((64, 2), (4096, 8)):
        *_, link = column_parallel(m, 8192, 4096, "h100", LINKS["nvlink4"], t)
        assert link.name == "nvlink4" and link.work.intensity == pytest.approx(8192 / (t - 1))
    alone = column_parallel(64, 8192, 4096, "h100", LINKS["nvlink4"], 1)
    assert [level.name for level in alone] == ["memory", "L2"]
    with pytest.raises(ValueError, match="t is 3, must divide n = 8192"):
        column_parallel(64, 8192, 4096, "h100", LINKS["nvlink4"], 3)


def test_the_slowest_level_takes_its_bytes_over_its_bandwidth():
    h100 = CHIPS["h100"]
    at = {rows: column_parallel(rows, 28672, 8192, "h100", LINKS["nvlink4"], 8)
          for rows in (1, 4096)}  # fmt: skip
    name, seconds = slowest(at[1], h100, "bf16")
    assert (name, seconds) == ("memory", at[1][0].work.bytes / h100.bandwidth)
    assert slowest(at[4096], h100, "bf16")[0] == "L2"
    free = [Level("memory", Work(10, 0), 1.0)]
    assert slowest(free, h100, "bf16") == ("compute", 10 / h100.rate("bf16"))
