"""Roofline pictures, sliders and the command: every mark is where the numbers say."""

import math
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import PHONE, SVG, apart, axis, parse, quantity_of

from weft import cli
from weft.draw import roofline as draw_roofline
from weft.draw.roofline import levels_svg, of_record, rows_svg, svg, text
from weft.explore import roofline as explore
from weft.plan.hardware import CHIPS, LINKS, Chip, from_record
from weft.plan.roofline import L2, column_parallel
from weft.plan.roofline.work import (
    CHAINS,
    EXAMPLES,
    Work,
    attainable,
    operation,
    ridge,
    seconds,
    smallest_batch,
    wall,
)
from weft.plan.shape.model import SHAPES
from weft.plan.units import quantity

H100 = CHIPS["h100"], "bf16"
A100 = CHIPS["a100-80"], "bf16"
V100 = CHIPS["v100"], "fp32"
SOME = {name: operation(name, "bf16") for name in EXAMPLES}
TEXT = f"{SVG}text"


def dots(root: ElementTree.Element) -> list[tuple[str, float, float, str]]:
    """(name, intensity, rate, fill) of each dot."""
    x, y = (axis(root, side, log=True) for side in "xy")
    return [
        (
            dot[0].text.split(":")[0],
            x(float(dot.get("cx"))),
            y(float(dot.get("cy"))),
            dot.get("fill"),
        )
        for dot in root.iter(f"{SVG}circle")
        if len(dot)  # not the ring around one
    ]


def close(value: float):
    return pytest.approx(value, rel=0.02)  # coordinates have two decimals, a decade sixty units


# --- the drawing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("roofs", [[H100], [H100, A100], [V100, H100, A100]])
def test_every_point_lies_on_every_roof(roofs):
    found = dots(parse(svg(SOME, roofs)))
    assert len(found) == len(SOME) * len(roofs)
    for name, work in SOME.items():
        name = name.split(":")[0]
        mine = [(i, r) for kind, i, r, fill in found if kind == name and fill != "none"]
        for roof in roofs:
            assert (close(work.intensity), close(attainable(work, *roof))) in mine


@given(st.dictionaries(st.sampled_from("abcdefg"), st.tuples(
    st.floats(1, 1e15), st.floats(1e-3, 1e5)), min_size=1), st.floats(0.01, 1.0))  # fmt: skip
def test_any_work_and_any_rate_lie_where_they_should(given_, share):
    points = {name: Work(flops, flops / i) for name, (flops, i) in given_.items()}
    rates = {name: share * attainable(work, *H100) for name, work in points.items()}
    found = dots(parse(svg(points, [H100], rates)))
    for name, work in points.items():
        for fill, rate in (("none", attainable(work, *H100)), ("currentColor", rates[name])):
            assert (name, close(work.intensity), close(rate), fill) in found
    assert len(found) == 2 * len(points)


def test_roofs_rise_to_their_ridges_and_are_flat_after_them():
    root = parse(svg(SOME, [H100, V100]))
    x, y = (axis(root, side, log=True) for side in "xy")
    paths = [p.get("d") for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "2"]
    assert len(paths) == 2
    for path, (chip, dtype) in zip(paths, (H100, V100), strict=True):
        (a, b), (c, d), (e, f) = (
            (x(float(i)), y(float(j))) for i, j in re.findall(r"([\d.]+) ([\d.]+)", path)
        )
        assert b / a == close(chip.bandwidth) and d / c == close(chip.bandwidth)
        assert c == close(ridge(chip, dtype)) and d == close(chip.rate(dtype)) == close(f)
        assert e > c
    dashes = [p.get("stroke-dasharray") for p in root.iter(f"{SVG}path") if p.get("stroke-width")]
    assert len(set(dashes)) == 2


def test_the_table_says_what_the_plot_shows():
    root = parse(svg(SOME, [H100]))
    words = [t.text for t in root.iter(TEXT)]
    for i, (name, work) in enumerate(SOME.items(), 1):
        at = words.index(name)
        row = [str(i), name, draw_roofline.intensity(work)]
        row += [quantity(attainable(work, *H100), "FLOP")[:-4], wall(work, *H100)]
        assert words[at - 1 : at + 4] == row
    assert "h100 bf16: 989 TFLOP/s, 3.35 TB/s, ridge 295" in words


def test_what_was_reached_hangs_from_what_could_be():
    rates = {name: attainable(work, *H100) / 7 for name, work in list(SOME.items())[:3]}
    root = parse(svg(SOME, [H100], rates))
    found = dots(root)
    assert len(found) == len(SOME) + 3
    for name, rate in rates.items():
        mine = [(r, fill) for kind, _, r, fill in found if name.startswith(kind)]
        assert (close(rate), "currentColor") in mine and (close(7 * rate), "none") in mine
    words = [t.text for t in root.iter(TEXT)]
    assert words.count("–") == len(SOME) - 3 and "reached" in words and "wall" not in words


def test_work_without_a_place_stands_in_the_table_alone():
    points = {"copy": Work(0, 8), "magic": Work(8, 0), "add": Work(1, 12)}
    root = parse(svg(points, [H100]))
    assert [name for name, *_ in dots(root)] == ["add"]
    words = [t.text for t in root.iter(TEXT)]
    assert {"copy", "magic", "inf", "0"} <= set(words)


def boxes_of_numbers(root: ElementTree.Element):
    """The numbers beside points: (text, left, top, right, bottom)."""
    for t in root.iter(TEXT):
        if t.get("font-weight") == "bold" and t.get("text-anchor") == "middle":
            x, y, wide = float(t.get("x")), float(t.get("y")), 7 * len(t.text)
            yield t.text, x - wide / 2, y - 9, x + wide / 2, y


@pytest.mark.parametrize("roofs", [[H100], [H100, A100], [V100]])
def test_numbers_beside_points_can_be_read(roofs):
    root = parse(svg(SOME, roofs))
    numbers = list(boxes_of_numbers(root))
    assert [text for text, *_ in numbers] == [str(i) for i in range(1, len(SOME) + 1)]
    for (_, *a), (_, *b) in combinations(numbers, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    for dot in root.iter(f"{SVG}circle"):
        x, y = float(dot.get("cx")), float(dot.get("cy"))
        for _, left, top, right, bottom in numbers:
            assert not (left < x < right and top < y < bottom)


def test_a_picture_fits_a_phone_and_both_kinds_of_page():
    picture = svg(SOME, [H100, A100, V100])
    root = parse(picture)
    assert int(re.search(r"min-width:(\d+)px", root.get("style"))[1]) <= PHONE
    wide, high = (float(v) for v in root.get("viewBox").split()[2:])
    for t in root.iter(TEXT):
        x, y = float(t.get("x")), float(t.get("y"))
        room = {"end": x, "middle": min(2 * x, 2 * (wide - x))}.get(t.get("text-anchor"), wide - x)
        assert 0 <= x <= wide and 8 <= y <= high and room > 0
    assert not re.search(r"(?:stroke|fill)='(?:#000|#fff|black|white)", picture, re.I)
    assert picture == svg(dict(SOME), [H100, A100, V100])
    assert root.get("role") == "img" and "bound by memory" in root[1].text


def test_long_names_are_cut_and_told_in_full():
    name = "a name that is longer than any column of a table that fits on a phone"
    root = parse(svg({name: Work(1, 12)}, [H100, A100]))
    assert any(t.text.endswith("…") and name.startswith(t.text[:-1]) for t in root.iter(TEXT))
    assert name in root[1].text and name in next(iter(root.iter(f"{SVG}circle")))[0].text


def test_a_span_gives_pictures_one_axis():
    pictures = [svg({"x": Work(f, 8)}, [H100], span=(0.1, 1e5)) for f in (8, 8e4)]
    ticks = [
        [t.text for g in parse(p).iter(f"{SVG}g") if g.get("text-anchor") for t in g.iter(TEXT)]
        for p in pictures
    ]
    assert ticks[0][:12] == ticks[1][:12] and "100 k" in ticks[0] and "0.1" in ticks[0]


def test_an_axis_of_many_decades_has_fewer_ticks():
    points = {"a": Work(1, 1e4), "b": Work(1e8, 1)}
    root = parse(svg(points, [H100], {"a": 0.2}))
    spot = pytest.approx(1e-4, rel=0.1), pytest.approx(0.2, rel=0.1)
    assert ("a", *spot, "currentColor") in dots(root)
    sides = [t.text for t in root.iter(TEXT) if t.text.startswith(("memory", "compute"))]
    assert sides == ["memory-bound", "compute-bound"]
    apart(root)
    for side, least in (("x", 5), ("y", 5)):
        (ticks,) = (g for g in root.iter(f"{SVG}g") if g.get("class") == f"{side}-ticks")
        said = [quantity_of(t.text) for t in ticks.iter(TEXT)]
        steps = {round(math.log10(high / low)) for low, high in pairwise(said)}
        assert len(said) >= least and len(steps) == 1  # as many decades from each to the next


@pytest.mark.parametrize(
    ("meets", "said"),
    [
        (1e5, ["memory-bound", "compute-bound"]),
        (20, ["memory", "compute-bound"]),
        (0.5, ["compute-bound"]),
        (6e9, ["memory-bound", "compute"]),
    ],
)
def test_a_side_of_the_ridge_is_named_in_the_room_there_is(meets, said):
    roof = Chip("x", {"fp32": meets}, 1.0), "fp32"
    root = parse(svg({}, [roof], span=(0.1, 1e12)))
    words = [t for t in root.iter(TEXT) if t.text.startswith(("memory", "compute"))]
    assert [t.text for t in words] == said


@pytest.mark.parametrize("draw", [svg, text])
@pytest.mark.parametrize(
    ("roofs", "rates", "complaint"),
    [
        ([], None, "roofs is empty"),
        ([(CHIPS["v100"], "fp8")], None, "dtype is 'fp8', must be one that v100 has"),
        ([H100], {"y": 1.0}, "rates has 'y', must be one of points: x"),
        ([H100], {"x": 0.0}, "rates has 0.0 for 'x'"),
        ([H100], {"x": math.nan}, "rates has nan for 'x'"),
    ],
)
def test_what_cannot_be_drawn_is_named(draw, roofs, rates, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw({"x": Work(1, 1)}, roofs, rates)


# --- in characters --------------------------------------------------------------------------------


def test_characters_show_the_same():
    shown = text({"low": Work(1, 4), "high": Work(8e4, 8)}, [H100], width=72).splitlines()
    plot = shown[1 : next(i for i, line in enumerate(shown) if "+-" in line)]
    rows = {mark: i for i, line in enumerate(plot) for mark in "12" if mark in line[8:]}
    assert rows["2"] < rows["1"]
    assert "--2" in plot[rows["2"]] and all(len(line) <= 72 for line in plot)
    label = {line[:6].strip(): i for i, line in enumerate(plot) if line[:6].strip()}
    rate = attainable(Work(1, 4), *H100)  # 837 GFLOP/s, a little below the line of 1 T
    assert label["1 T"] <= rows["1"] <= label["1 T"] + 1 and rate < 1e12
    table = shown[shown.index("h100 bf16: 989 TFLOP/s, 3.35 TB/s, ridge 295") :]
    assert " ".join(table[1].split()) == "operation FLOPs bytes FLOP/B attainable least time wall"
    assert " ".join(table[2].split()) == "1 low 1 4 B 0.25 838 GFLOP/s 0.00119 ns memory"
    assert " ".join(table[3].split()) == "2 high 80 k 8 B 10,000 989 TFLOP/s 0.0809 ns compute"


def test_two_points_in_one_place_are_a_star_and_rates_are_points():
    work = Work(1, 4)
    assert text({"a": work, "b": work}, [H100]).count("*") == 1
    lines = text({"a": work}, [H100], {"a": 1e11}).splitlines()
    assert any(re.match(r" 100 G \| +1$", line) for line in lines)
    assert "reached" in "".join(lines) and "100 GFLOP/s" in lines[-1]


def test_the_second_roof_is_of_other_characters():
    shown = text({}, [H100, V100])
    assert "====" in shown and "----" in shown and "////" in shown
    assert shown.splitlines()[-1].startswith("v100 fp32")


def test_a_plot_needs_some_room():
    with pytest.raises(ValueError, match="width is 39"):
        text({}, [H100], width=39)
    assert text(SOME, [H100], width=40)


# --- from records ---------------------------------------------------------------------------------


def record(*results):
    made = [SimpleNamespace(name=n, who=w, unit=u, value=v) for n, w, u, v in results]
    more = {"command": "weft bench roofline", "date": "2026-01-31T12:00:00+00:00"}
    return SimpleNamespace(chip="cpu", results=made, **more)


RECORD = record(
    ("copy", "roof", "B/s", 2e10),
    ("triad", "roof", "B/s", 3e10),
    ("fp32", "roof", "FLOP/s", 2e11),
    ("bf16", "roof", "FLOP/s", 1e10),
    ("bf16 matmul 8 8 8", "reached", "FLOP/s", 5e9),
    ("fp32 softmax 64 32", "reached", "FLOP/s", 4e9),
    ("fp32 softmax 64 32", "attainable", "FLOP/s", 9e9),
    ("fp32 2*decode 64 4 2 8", "reached", "FLOP/s", 3e9),
)


def test_a_record_is_a_chip_with_the_best_bandwidth():
    chip = from_record(RECORD)
    assert dict(chip.rates) == {"fp32": 2e11, "bf16": 1e10} and chip.bandwidth == 3e10
    assert chip.name == "cpu (measured)" and "weft bench roofline" in chip.source


def test_a_record_gives_the_points_of_one_dtype():
    points, roofs, rates = of_record(RECORD)
    assert roofs == [(from_record(RECORD), "fp32")]
    assert rates == {"softmax 64 32": 4e9, "2*decode 64 4 2 8": 3e9}
    assert points == {name: operation(name, "fp32") for name in rates}
    points, roofs, rates = of_record(RECORD, "bf16")
    assert rates == {"matmul 8 8 8": 5e9} and points["matmul 8 8 8"].bytes == 2 * 192
    assert len(dots(parse(svg(points, roofs, rates)))) == 2


def test_a_record_of_something_else_is_refused():
    with pytest.raises(ValueError, match="record has no roof"):
        from_record(record(("gpipe", "weft", "s", 1.0)))
    with pytest.raises(ValueError, match="dtype is 'fp8', must be one that cpu"):
        of_record(RECORD, "fp8")


# --- sliders --------------------------------------------------------------------------------------


def summary(html: str) -> str:
    return re.search(r"<p class='weft-summary'>(.*)</p>", html)[1]


@pytest.mark.parametrize(
    ("function", "states"),
    [
        (
            explore.matmul,
            [{"chip": c, "rows": r} for c in ("a100-40", "b200") for r in (1, 2**9, 2**14)],
        ),
        (explore.matmul, [{"dtype": "fp8", "side": s} for s in (2**6, 2**10, 2**14)]),
        (
            explore.attention,
            [{"chip": c, "length": n} for c in CHIPS for n in (2**4, 2**11, 2**17)],
        ),
        (explore.attention, [{"sram": s, "width": w} for s in (0, 64, 228) for w in (64, 256)]),
        (explore.fusion, [{"chip": c, "kernels": k} for c in CHIPS for k in (1, 3, 8)]),
        (explore.fusion, [{"chain": "bias-dropout-add", "kernels": k} for k in (1, 2, 3)]),
        (explore.transformer, [{"model": m, "batch": b} for m in SHAPES for b in (1, 4)]),
        (explore.transformer, [{"chip": c, "algorithm": "naive"} for c in CHIPS]),
        (explore.levels, [{"chip": c, "t": t} for c in L2 for t in (1, 16)]),
        (
            explore.levels,
            [{"tile": t, "rows": r} for t in ("64x64", "256x256") for r in (16, 4096)],
        ),
        (explore.levels, [{"link": "ib-ndr"}]),
        (explore.rows, [{"chip": c, "rows": r} for c in CHIPS for r in (1, 2**14)]),
        (explore.rows, [{"side": 512, "launch": 12}, {"side": 2**14, "launch": 1}]),
    ],
)
def test_every_state_of_a_slider_has_a_picture(function, states):
    for state in [{}, *states]:
        shown = function(**state)
        assert shown.startswith("<div") and dots(parse(re.search(r"<svg.*</svg>", shown)[0]))
        assert summary(shown).endswith(".") and "e+" not in summary(shown)


@pytest.mark.parametrize(
    ("function", "state", "complaint"),
    [
        (explore.matmul, {"chip": "v100"}, "dtype is &#x27;bf16&#x27;"),
        (explore.matmul, {"chip": "x"}, "must be one of v100"),
        (explore.attention, {"sram": 1, "width": 256}, "sram is 1024 bytes"),
        (explore.transformer, {"model": "x"}, "must be one of gpt-1.7b"),
        (
            explore.fusion,
            {"chain": "bias-dropout-add"},
            "kernels is 8, must be at most the number of steps, 3",
        ),
        (explore.fusion, {"kernels": 0}, "kernels is 0"),
        (explore.transformer, {"algorithm": "x"}, "must be naive or flash"),
        (explore.levels, {"tile": "x"}, "must be one of 64x64"),
        (explore.levels, {"chip": "b200"}, "must be one of a100-80, h100, h200"),
        (explore.levels, {"t": 3}, "t is 3, must divide n = 57344"),
        (explore.rows, {"rows": 2**15}, "rows is 32768, must be from 1 to 16384"),
    ],
)
def test_a_state_that_does_not_exist_is_a_sentence(function, state, complaint):
    assert "<svg" not in function(**state) and complaint in summary(function(**state))


def test_each_level_has_its_point_under_its_own_roof():
    levels = column_parallel(4096, 57344, 8192, "h100", LINKS["nvlink4"], 8)
    found = dots(parse(levels_svg(levels, *H100)))
    assert [name for name, *_ in found] == [level.name for level in levels]
    for (_, intensity, rate, _), level in zip(found, levels, strict=True):
        assert intensity == close(level.work.intensity)
        slope = level.bandwidth * level.work.intensity
        assert rate == close(min(H100[0].rate("bf16"), slope))


def test_the_wall_changes_where_two_lines_cross():
    def wall_at(rows):
        return re.search(r"The wall is (\w+)", summary(explore.rows(rows=rows)))[1]

    enough = smallest_batch(4096, 4096, 2, *H100)
    assert [wall_at(m) for m in (1, enough - 1, enough)] == ["memory", "memory", "compute"]
    assert "The wall is launch" in summary(explore.rows(chip="b200"))
    for rows in (1, 2**14):
        least = seconds(operation(f"matmul:{rows},4096,4096", "bf16"), *H100)
        ((_, at, time, _),) = dots(parse(rows_svg(4096, *H100, 6e-6, rows)))
        assert (at, time) == (close(rows), close(least))


def test_the_slider_says_how_many_rows_are_enough():
    enough = int(re.search(r"(\d+) rows reach", summary(explore.matmul(side=2**12)))[1])
    for rows, bound in ((enough - 1, "memory"), (enough, "compute")):
        assert wall(operation(f"matmul:{rows},4096,4096", "bf16"), *H100) == bound
    assert "No number of rows" in summary(explore.matmul(side=2**7))
    assert "bound by compute" in summary(explore.matmul(rows=2**13))


def test_fusing_all_of_gelu_is_nine_times_as_fast_in_the_slider():
    assert len(CHAINS["gelu"]) == 8 and "9 times as long" in summary(explore.fusion())


# --- the command ----------------------------------------------------------------------------------


def test_roofline_prints_what_the_library_draws(capsys, tmp_path):
    assert cli.main(["roofline"]) == 0
    assert capsys.readouterr().out == text(SOME, [H100]) + "\n"
    picture = tmp_path / "a.svg"
    arguments = ["matmul:512,512,64", "2*decode:99,4,2,8", "--chip", "h200,v100", "--dtype=fp16"]
    assert cli.main(["roofline", *arguments, "--svg", str(picture)]) == 0
    points = {name: operation(name, "fp16") for name in arguments[:2]}
    roofs = [(CHIPS["h200"], "fp16"), (CHIPS["v100"], "fp16")]
    assert capsys.readouterr().out == text(points, roofs) + f"\nwritten: {picture}\n"
    assert picture.read_text(encoding="utf-8") == svg(points, roofs) + "\n"


def test_roofline_draws_a_record(capsys, tmp_path):
    from weft.bench.record import Measurement, Record

    results = [Measurement.of(r.name, r.who, r.unit, [r.value]) for r in RECORD.results]
    made = Record.here("roofline", "A roof", "roofline", "weft bench roofline", results)
    path = made.write(tmp_path)
    assert cli.main(["roofline", "--record", str(path)]) == 0
    assert capsys.readouterr().out == text(*of_record(made)) + "\n"
    assert cli.main(["roofline", "dot:64", "--record", str(path), "--chip", "v100"]) == 0
    shown = capsys.readouterr().out
    assert "v100 fp32" in shown and "cpu (measured) fp32" in shown and "dot:64" in shown


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["sing:4"], "unknown operation 'sing:4': choose from copy"),
        (["matmul:4,4"], "must be matmul:m,n,k"),
        (["matmul:0,4,4"], "m is 0"),
        (["--chip", "x100"], "unknown chip 'x100': choose from v100"),
        (["--dtype", "int8"], "dtype is 'int8'"),
        (["--chip", "v100"], "dtype is 'bf16', must be one that v100 has"),
        (["--svg", "no/such/a.svg"], "there is no folder no/such"),
        (["--record", "no.json"], "no.json: No such file"),
        (["--speed", "9"], "--speed"),
    ],
)
def test_an_error_is_one_line_and_two(arguments, complaint, capsys):
    try:
        code = cli.main(["roofline", *arguments])
    except SystemExit as exit:
        code = exit.code
    shown = capsys.readouterr()
    assert code == 2 and shown.out == ""
    assert complaint in shown.err and shown.err.count("\n") == 1


def test_roofline_loads_nothing_heavy(root):
    program = (
        "import sys; from weft.cli import main; main(['roofline', '--chip', 'h100,b200']);"
        "print([m for m in ('torch', 'numpy', 'rich', 'triton') if m in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": str(root / "lib")}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.stdout.endswith("\n[]\n"), run.stderr


@pytest.mark.alone
def test_roofline_takes_less_than_three_tenths_of_a_second(root):
    command = [sys.executable, "-m", "weft", "roofline"]
    environment = os.environ | {"PYTHONPATH": str(root / "lib")}

    def taken() -> float:
        since = time.perf_counter()
        assert subprocess.run(command, env=environment, capture_output=True).returncode == 0
        return time.perf_counter() - since

    assert min(taken() for _ in range(5)) < 0.3


def test_least_times_are_the_chips(capsys):
    assert cli.main(["roofline", "matmul:4096,4096,4096", "--chip", "a100-80"]) == 0
    work = operation("matmul:4096,4096,4096", "bf16")
    least = quantity(seconds(work, *A100), "s")
    assert least in capsys.readouterr().out.splitlines()[-1]
    assert isinstance(A100[0], Chip)
