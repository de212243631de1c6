"""The book's directives: what they make of good input, and where they say that input is bad."""

import ast
import base64
import json
import re
import sys
import zlib
from pathlib import Path

import pytest
from book_site import ROOT, small_book

from weft.bench.record import Measurement, Record
from weft.explore.pipeline import schedule
from weft.plan.pipeline.bubble import fraction

PLAN = {"schedule": "gpipe", "p": 3, "m": 2}
SLIDERS = """\
```{explore} pipeline.schedule
:name: fig-small
:caption: A caption with {calc}`pipeline.fraction(p=3, m=2):.0%` in it.
:alt: What the picture shows.
:frames:

schedule: one_f_one_b (1F1B), gpipe (GPipe) = gpipe | Schedule
p: 2..3 = 3 | Ranks
m: 2..4 by 2 | Microbatches
```
"""
PYTHON_BOX = SLIDERS.replace(":frames:\n", "").replace("fig-small", "fig-python")
SECOND_BOX = PYTHON_BOX.replace("fig-python", "fig-second")
PICTURE = """\
```{picture} pipeline.svg(simulate(gpipe(2, 3)))
:name: fig-grid
:caption: Two ranks.
:alt: A grid of two rows.
```
"""
GUESS = """\
```{guess} sleep
:unit: %
What share is idle?
```

```{guess-answer} sleep
:answer: pipeline.fraction(p=8, m=32):.1%
As the formula says.
```
"""


def record(chip: str = "cpu", **changes) -> Record:
    """A record made for the tests; the book shows none of these."""
    results = (
        Measurement.of("gpipe", "weft", "s", [0.3, 0.1, 0.2]),
        Measurement.of("gpipe", "torch", "s", [0.5, 0.4, 0.6]),
        Measurement.of("1F1B step", "weft", "s", [0.25]),
        Measurement.of("ratio", "weft", "1", [1.5, 0.5]),
    )
    given = {
        "name": "made-up", "title": "Made up for a test", "topic": "none",
        "command": "weft bench none", "results": results, "machine": {"chip": chip, "cores": 2},
        "versions": {"python": "3.11.0"}, "date": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789ab",
    }  # fmt: skip
    return Record(**given | changes)


def with_records(folder: Path, *records: Record) -> Path:
    for one in records:
        one.write(folder / "source" / "book" / "measured")
    return folder


@pytest.fixture(scope="module")
def extension():
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    import weft_book

    yield weft_book
    sys.path.remove(str(ROOT / "book" / "_ext"))


GOOD = {
    "index": "# All boxes\n\n"
    "It sleeps {calc}`pipeline.fraction(p=8, m=32):.1%`, {calc}`fraction(8, 32):.3f},"
    "\n\n| a | b |\n|---|---|\n| {calc}`math.floor(7 / 2)` | {calc}`len(gpipe(4, 8).rows)` |\n\n"
    "See {numref}`fig-small` and {numref}`tab-made-up`.\n\n".replace(":.3f},", ":.3f`."),
    "boxes": f"# Boxes\n\n{SLIDERS}\n{PYTHON_BOX}\n{SECOND_BOX}\n{PICTURE}\n{GUESS}\n\n"
    "```{picture} '<b>' + record('made-up', 'h100').results[2].name + '</b>'\n"
    ":caption: A record, drawn.\n:alt: The name of its third result.\n```\n",
    "measured": "# Measured\n\n"
    "{measured-value}`made-up@cpu gpipe weft:.2f` {measured-value}`made-up@h100 '1F1B step'` "
    "{measured-value}`made-up@cpu ratio` "
    "{calc}`measured('made-up', 'gpipe', 'torch', 'cpu') / measured('made-up', 'gpipe', 'weft',"
    " 'cpu'):.2f`\n\n"
    "```{measured} made-up\n:name: tab-made-up\n:caption: As a table.\n:not-yet: h200\n```\n\n"
    "```{measured} made-up\n:caption: As a plot.\n:as: plot\n:chips: cpu\n"
    ":results: gpipe, 1F1B*\n:who: weft\n:format: .3f\n```\n\n"
    "```{measured} made-up\n:chips: cpu\n:who: torch\n```\n",
}


CURVES = {
    "curves": "# Curves\n\n"
    "```{measured} made-up-sizes\n:caption: As curves.\n:as: curves\n:not-yet: h200, b200\n"
    ":roof: made-up-sizes 'roof, b' torch\n:results: causal*\n```\n\n"
    "```{measured} made-up-sizes\n:caption: As a ladder.\n:as: ladder\n:chips: cpu\n"
    ":not-yet: h200\n:results: causal? T = 4\n:roof: made-up-sizes 'roof, b' torch\n"
    "weft: {fraction(8, 32):.1%} < 1\n```\n\n"
    "```{measured} made-up-sizes\n:caption: On a GPU.\n:chips: h200\n:not-yet: h200\n```\n\n"
    "{measured-value}`made-up-sizes@cpu 'causal, T = 4' weft` "
    "{measured-value}`hopper-roof@h200 matmul`\n",
    "quiet": "# Quiet\n\n"
    "```{measured} made-up-sizes\n:caption: Only when it is there.\n:chips: h200\n"
    ":not-yet: h200\n:quiet:\n```\n",
}


def sized(chip: str = "cpu") -> Record:
    """A record whose results end in a size, with a hole and a level line."""
    rates = {"weft": {2: 2e9, 4: 5e9, 8: 3e9}, "torch": {2: 1e9, 8: 4e9}}
    results = [
        Measurement.of(f"causal, T = {size}", who, "FLOP/s", [rate])
        for who, line in rates.items()
        for size, rate in line.items()
    ]
    results += [Measurement.of("causal, T = 2", "weft / torch", "1", [2.0])]
    results += [Measurement.of("roof, b", "torch", "FLOP/s", [6e9])]
    return record(chip, name="made-up-sizes", results=tuple(results))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = with_records(tmp_path_factory.mktemp("good"), record(), record("h100"), sized())
    return small_book(folder, GOOD | CURVES)


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    """The same pages when two more records have come, and nothing else."""
    more = record(), record("h100"), record("h200"), sized(), sized("h200")
    return small_book(with_records(tmp_path_factory.mktemp("later"), *more), GOOD | CURVES)


def figures(built) -> list[str]:
    return built.read("curves.html").split("<figure ")[1:]


def test_good_pages_build_without_a_warning(good):
    assert not good.failed, good.said


def test_calc_prints_what_python_prints(good):
    page = good.read("index.html")
    shown = re.findall(r'<span class="calc" title="([^"]*)">([^<]*)</span>', page)
    assert shown == [
        ("computed: pipeline.fraction(p=8, m=32)", f"{fraction(p=8, m=32):.1%}"),
        ("computed: fraction(8, 32)", f"{fraction(8, 32):.3f}"),
        ("computed: math.floor(7 / 2)", "3"),
        ("computed: len(gpipe(4, 8).rows)", "4"),
    ]
    assert "Fig. 1" in page


def test_a_picture_can_be_of_a_record(good):
    assert "<b>1F1B step</b>" in good.read("boxes.html")


def test_explore_draws_the_default_state_and_packs_every_state(good):
    page = good.read("boxes.html")
    assert page.count(schedule(**PLAN)) == 3
    packed = re.search(r'<script type="application/x-frames">([^<]*)</script>', page)[1]
    frames = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert frames == [
        schedule(schedule=name, p=p, m=m)
        for name in ("one_f_one_b", "gpipe")
        for p in (2, 3)
        for m in (2, 4)
    ]


def test_explore_names_its_controls_for_everybody(good):
    page = good.read("boxes.html")
    labels = re.findall(r'<label for="fig-small-\d">([^<]*)</label>', page)
    assert labels == ["Schedule", "Ranks", "Microbatches"]
    assert 'aria-label="What the picture shows."' in page
    assert 'aria-valuetext="3"' in page
    assert "<option selected>GPipe</option>" in page


def test_the_library_lies_beside_the_page_with_a_list(good):
    folder = good.folder / "_static" / "pylib"
    files = json.loads((folder / "files.json").read_text())["files"]
    assert "weft/plan/simulate/engine.py" in files and "states.py" in files
    for name in files:
        assert (folder / name).is_file()
    ours = (ROOT / "lib/weft/plan/simulate/engine.py").read_bytes()
    assert (folder / "weft/plan/simulate/engine.py").read_bytes() == ours


def test_the_answer_to_a_guess_is_folded_and_not_in_the_question(good):
    page = good.read("boxes.html")
    question, answer = page.split('<div class="weft-guess-answer"')
    assert "17.9" not in question.split('<div class="weft-guess"')[1]
    folded = re.search(r"<details>(.*?)</details>", answer, re.S)[1]
    assert f"{fraction(p=8, m=32):.1%}" in folded and "As the formula says." in folded
    assert f'data-value="{100 * fraction(p=8, m=32)!r}"' in answer


def test_measured_shows_values_chips_and_where_they_come_from(good):
    page = good.read("measured.html")
    values = re.findall(r'<span class="measured-value">([^<]*)</span>', page)
    assert values == ["0.20 s", "250 ms", "1"]
    assert "measured(" in page and ">2.50</span>" in page
    for said in ("2026-01-02", "python 3.11.0", "commit 0123456789ab", "weft bench none"):
        assert page.count(said) >= 3
    assert "<b>h200</b> not yet measured" in page


def test_measured_tables_are_counted_as_tables_and_plots_as_figures(good):
    page = good.read("measured.html")
    captions = re.findall(
        r'caption-number">(\w+)[^<]*</span><span class="caption-text">([^<]*)', page
    )
    assert captions == [
        ("Table", "As a table."),
        ("Fig", "As a plot."),
        ("Table", record().title + "."),
    ]
    assert re.search(
        r'href="measured.html#tab-made-up"><span[^>]*>Table \d+</span>', good.read("index.html")
    )


def test_measured_leaves_out_rows_and_columns_without_a_value(good):
    table = good.read("measured.html").split("<table")[3].split("</table>")[0]
    assert re.findall(r'data-result="([^"]*)"', table) == ["gpipe"]
    assert re.findall(r'<th scope="col">(.*?)</th>', table) == ["torch"]
    assert "Medians of 3 samples" in good.read("measured.html")


def test_measured_plot_has_a_dot_for_each_sample_of_what_was_chosen(good):
    plot = good.read("measured.html").split('<table class="measured-plot"')[1].split("</table>")[0]
    assert re.findall(r'data-result="([^"]*)"', plot) == ["gpipe", "1F1B step"]
    assert plot.count("<i ") == 4 and plot.count("<b ") == 2
    assert 'style="left:100.00%"' in plot and ">0.200 s<" in plot and "torch" not in plot


def test_curves_are_drawn_with_their_numbers_beside_them(good):
    curves, ladder, alone = figures(good)
    assert curves.count("<svg") == 1 and "2 curves over T from 2 to 8" in curves
    assert "A level line, roof, b, is at 6 GFLOP/s." in curves
    folded = curves.split("<details")[1]
    assert "<summary>The numbers</summary>" in folded and "weft / torch" in folded
    assert re.findall(r'data-result="([^"]*)"', folded)[:2] == ["causal, T = 2", "causal, T = 4"]
    assert "<b>h200</b> not yet measured" in curves and "<b>b200</b> not yet measured" in curves
    assert ladder.count("<svg") == 1 and "weft 5 GFLOP/s (17.9% &lt; 1)" in ladder
    assert "torch" not in ladder.split("</svg>")[0].split("<desc")[1]  # it has no T = 4
    assert "<svg" not in alone and "<table" not in alone and "not yet measured" in alone
    values = re.findall(r'<span class="measured-value">([^<]*)</span>', good.read("curves.html"))
    assert values == ["5 GFLOP/s", "not yet measured"]


def test_a_record_that_comes_later_is_shown_without_an_edit(later):
    assert not later.failed, later.said
    curves, ladder, alone = figures(later)
    assert curves.count("<svg") == ladder.count("<svg") == 2 and curves.count('"chip">h200<') >= 2
    assert "<b>h200</b> not yet measured" not in curves and "<b>b200</b> not yet" in curves
    assert "<table" in alone and "<b>cpu</b>" not in alone and "<b>h200</b>" in alone
    assert "<b>h200</b> not yet measured" not in later.read("measured.html")


def test_a_quiet_box_comes_with_its_record(good, later):
    assert "<figure" not in good.read("quiet.html")
    assert "Only when it is there." not in good.read("quiet.html")
    assert "<b>h200</b>" in later.read("quiet.html")
    assert "Only when it is there." in later.read("quiet.html")


# --- the chapters' own boxes ----------------------------------------------------------------------

BOX = re.compile(r"^(`{3,})\{measured\} (\S+)\n.*?^\1$", re.M | re.S)
ROLE = re.compile(r"\{measured-value\}`([^`]+)`")


def asked_for() -> dict[str, set[str]]:
    """The record that each page of the book asks for, by box or in a sentence."""
    found = {}
    for page in sorted((ROOT / "book").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        names = {box[2] for box in BOX.finditer(text)}
        names |= {role.split()[0].partition("@")[0] for role in ROLE.findall(text)}
        found[page.stem] = names
    return found


def test_every_record_has_its_place_and_every_place_its_record():
    from weft.bench import jobs

    shown = set().union(*asked_for().values())
    made = {
        name: topic
        for device in ("cpu", "cuda")
        for topic in jobs.topics()
        for name in [job.name for job in jobs.jobs(topic, device)]
    }
    chapters = (ROOT / "book" / "chapters.md").read_text(encoding="utf-8")
    to_come = set(re.findall(r"\| `(\w+)` \|", chapters))  # in the table without a link
    unshown = {name for name in made.keys() - shown if made[name] not in to_come}
    assert unshown == set(), "no page shows them"
    assert shown - made.keys() == set(), "no benchmark makes them"


def test_a_gpu_record_that_could_come_is_waited_for():
    """In a box that says :not-yet: h200, so that a file alone completes the page."""
    from weft.bench import jobs

    waited = {
        box[2]
        for page in (ROOT / "book").glob("*.md")
        for box in BOX.finditer(page.read_text(encoding="utf-8"))
        if ":not-yet: h200" in box[0]
    }
    topics = ("attention", "hopper", "decode", "precision", "roofline", "zero")
    names = {job.name for t in topics for job in jobs.jobs(t, "cuda")}
    assert names <= waited


def test_the_book_knows_which_benchmark_makes_a_record(extension):
    from weft_book.records import topic_of

    from weft.bench import jobs

    for topic in jobs.topics():
        for job in jobs.jobs(topic):
            assert topic_of(job.name) == topic, job.name
    assert topic_of("made-up") is None


@pytest.fixture(scope="module")
def chapters():
    """What the chapters show of records, and nothing else of them."""
    texts = {}
    for page in sorted((ROOT / "book").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        boxes = [box[0] for box in BOX.finditer(text)]
        roles = [f"{{measured-value}}`{role}`" for role in ROLE.findall(text)]
        numbers = [c for c in re.findall(r"\{calc\}`[^`]+`", text) if "measured(" in c]
        if boxes or roles:
            texts[page.stem] = "\n\n".join([f"# {page.stem}", *roles, *numbers, *boxes])
    return texts


def test_the_chapters_take_the_records_of_a_gpu_without_an_edit(tmp_path, chapters):
    from measured_names import gpu_records

    from weft.bench.record import read_all

    committed = [r for r in read_all(ROOT / "book" / "measured") if r.chip == "cpu"]
    with pytest.MonkeyPatch.context() as patch:
        measured = list(gpu_records(patch, committed))
    built = small_book(with_records(tmp_path, *committed, *measured), chapters)
    assert not built.failed, built.said
    for name in ("attention", "hopper", "backward", "decode", "precision", "roofline", "zero"):
        page = built.read(f"{name}.html")
        assert "<b>h200</b>" in page and "<b>h200</b> not yet measured" not in page, name
    pages = built.read("hopper.html") + built.read("backward.html")
    assert pages.count("<svg") == 27


@pytest.mark.parametrize("builder", ["text", "latex", "gettext"])
def test_other_builders_say_what_the_page_shows(tmp_path, builder):
    built = small_book(
        with_records(tmp_path, record(), record("h100"), sized()), GOOD | CURVES, builder
    )
    assert not built.failed, built.said
    text = "\n".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in built.folder.rglob("*")
        if path.suffix in (".txt", ".tex", ".pot") and path.is_file()
    )
    for said in ("What the picture shows.", "What share is idle?", "As the formula says."):
        assert said in re.sub(r"\s+", " ", text)
    if builder == "gettext":
        assert all(f'msgid "{label}"' in text for label in ("Ranks", "Schedule", "1F1B"))
    else:
        assert re.search(r"17\.9\s*\\?%", text)


BAD = {
    "{calc}`pipeline.fractoin(p=8, m=32)`": "`pipeline.fractoin(p=8, m=32)` fails: AttributeError",
    "{calc}`fractoin(8, 32)`": "weft.plan defines no `fractoin`; did you mean `fraction`?",
    "{calc}`gpipe(0, 4)`": "fails: ValueError: p is 0",
    "{calc}`1 +`": "`1 +` is not a Python expression",
    "{calc}`1.5:d`": "fails: ValueError",
    "{calc}`measured('gone', 'gpipe')`": "no record `gone` in book/measured",
    "{measured-value}`made-up`": "is not RECORD[@CHIP] RESULT [WHO][:FORMAT]",
    "{measured-value}`made-up ratio`": "`made-up` was measured on cpu, h100; say which",
    "{measured-value}`made-up@v100 ratio`": "measured on cpu, h100, not on v100",
    "{measured-value}`made-up@cpu gpipe`": "result 'gpipe' is more than one in",
    "{measured-value}`made-up@cpu zb_h1`": "result 'zb_h1' is not in",
    "```{picture} gpipe(2, 2)\n:caption: c\n:alt: a\n```": "gives Plan, no picture",
    "```{picture} pipeline.svg(1, 2)\n:caption: c\n:alt: a\n```": "fails: AttributeError",
    "```{picture} pipeline.svg(simulate(gpipe(2, 2)))\n:alt: a\n```": "it has no :caption:",
    SLIDERS.replace(":alt: What the picture shows.\n", ""): "it has no :alt:",
    SLIDERS.replace("pipeline.schedule", "pipeline.gone"): "has no attribute 'gone'",
    SLIDERS.replace("pipeline.schedule", "pipeline.bubble"): "unexpected keyword argument",
    SLIDERS.replace("pipeline.schedule", "schedule"): "`schedule` is not MODULE.FUNCTION",
    SLIDERS.replace("2..3 = 3", "2..3 = 9"): "default `9` is not one of 2, 3",
    SLIDERS.replace("2..3 = 3", "3..2"): "`3..2` does not go from low to high",
    SLIDERS.replace("2..3 = 3", "2..x"): "`2..x` is not a range",
    SLIDERS.replace("2..3 = 3", "2"): "`2` is neither a range, nor two or more values",
    SLIDERS.replace("| Ranks", ""): "has no label",
    SLIDERS.replace("p: 2..3", "p 2..3"): "does not begin with `name:`",
    SLIDERS.replace("2..4 by 2", "1..2000"): "8000 states are too many for :frames:",
    SLIDERS.replace("2..4 by 2", "1..90"): "bytes in the page (at most 300000)",
    SLIDERS.replace(":frames:", ":frames:\n:play: n"): ":play: n is no control of a box with",
    PYTHON_BOX.replace("\n\nschedule", "\n:play: m\n\nschedule"): ":play: m is no control of a box",
    "```{guess} alone\nHow many?\n```": "`alone` has no {guess-answer}",
    "```{guess} empty\n```": "it has no question",
    "```{guess-answer} early\n:answer: 1\n```": "no guess `early` stands above it",
    GUESS.replace(":answer: pipeline.fraction(p=8, m=32):.1%\n", ""): "it has no :answer:",
    GUESS.replace("pipeline.fraction(p=8, m=32):.1%", "str(1) + 'x'"): "gives '1x', no number",
    "```{measured} gone\n:caption: c\n```": "no record `gone` in book/measured",
    "```{measured} gone\n:caption: c\n:not-yet: h100\n```": "no benchmark in weft.bench is called",
    "```{measured} made-up\n:caption: c\n:chips: v100\n```": "not on v100",
    "```{measured} made-up\n:as: curves\n:chips: cpu\n```": "'gpipe' has no one size",
    "```{measured} made-up\n:as: ladder\n:chips: cpu\nweft\n```": "`weft` is no reason for a step",
    "```{measured} made-up\n:chips: cpu\nweft: why\n```": "`weft: why` is no reason for a step",
    "```{measured} made-up\n:as: ladder\n:chips: cpu\nweft: {gone}\n```": "defines no `gone`",
    "```{measured} made-up\n:as: ladder\n:chips: cpu\n:roof: made-up\n```": "is not RECORD RESULT",
    "```{measured} made-up\n:as: ladder\n:chips: cpu\n:roof: gone x\n```": "is called `gone`",
    "{measured-value}`made-up@h200 ratio`": "measured on cpu, h100, not on h200",
    "```{measured} made-up\n:caption: c\n:who: nobody\n```": "`nobody` matches none of",
    "```{measured} made-up\n:caption: c\n:results: zb*\n```": "`zb*` matches none of",
    "```{measured} made-up\n:caption: c\n:results: ratio\n:who: torch\n```": "not been measured",
}  # fmt: skip


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """One build of many bad pages: the bad thing begins on the third line of each."""
    folder = with_records(tmp_path_factory.mktemp("bad"), record(), record("h100"))
    return small_book(folder, {f"bad{i}": f"# Bad\n\n{text}\n" for i, text in enumerate(BAD)})


@pytest.mark.parametrize("number", range(len(BAD)), ids=lambda i: list(BAD)[i][:40].split("\n")[0])
def test_bad_input_fails_the_build_with_file_and_line(bad, number):
    wanted = list(BAD.values())[number]
    assert bad.failed
    warnings = [line for line in bad.said.splitlines() if f"bad{number}.md:" in line]
    found = [line for line in warnings if wanted in line]
    assert found, f"wanted: {wanted}\nsaid: {warnings}"
    line = int(re.search(r"\.md:(\d+):", found[0])[1])
    last = 2 + list(BAD)[number].rstrip().count("\n") + 1
    assert 3 <= line <= last


def test_a_file_that_is_no_record_fails_the_build_where_it_is_asked_for(tmp_path):
    folder = tmp_path / "source" / "book" / "measured"
    folder.mkdir(parents=True)
    (folder / "made-up.cpu.json").write_text("{}")
    built = small_book(tmp_path, {"page": "# P\n\n```{measured} made-up\n:caption: c\n```\n"})
    assert built.failed and re.search(r"page\.md:3: .*is not a record", built.said)


def test_a_record_under_the_wrong_file_name_fails_the_build(tmp_path):
    path = record().write(tmp_path / "source" / "book" / "measured")
    path.rename(path.with_name("other.cpu.json"))
    built = small_book(tmp_path, {"page": "# P\n\n```{measured} made-up\n:caption: c\n```\n"})
    assert built.failed and "its name must be made-up.cpu.json" in built.said


def test_a_page_is_read_again_when_its_record_changes(tmp_path):
    texts = {"page": "# P\n\n{measured-value}`made-up gpipe weft`\n", "other": "# O\n"}
    first = small_book(with_records(tmp_path, record()), texts)
    changed = record(results=(Measurement.of("gpipe", "weft", "s", [7.0]),))
    second = small_book(with_records(tmp_path, changed), texts)
    assert not (first.failed or second.failed), second.said
    assert "7 s" in second.read("page.html")
    assert re.search(r"0 added, \d changed", second.said)


def test_every_page_is_written_again_when_a_style_changes(tmp_path):
    style = tmp_path / "source" / "book" / "_static" / "some.css"
    style.parent.mkdir(parents=True)
    said = []
    for text in ("a {}", "a {}", "b {}"):
        style.write_text(text)
        said.append(small_book(tmp_path, {"page": "# P\n"}).said)
    counts = [re.search(r"(\d) added, (\d) changed", text) for text in said]
    assert [count and count.groups() for count in counts] == [("2", "0"), ("0", "0"), ("0", "2")]


@pytest.mark.parametrize(
    ("line", "values", "default"),
    [
        ("p: 2..4 | P", (2, 3, 4), 0),
        ("p: 2..8 by 3 = 5 | P", (2, 5, 8), 1),
        ("c: 0..0.3 by 0.1 = 0.3 | C", (0.0, 0.1, 0.2, 0.3), 3),
        ("c: -1..1 = 0 | C", (-1, 0, 1), 1),
        ("s: a (One, two), b = b | S", ("a", "b"), 1),
        ("s: 1, 2.5, x | S", (1, 2.5, "x"), 0),
        ("s: infinity, nan, 1e3 = nan | S", ("infinity", "nan", 1000.0), 1),
        ("f: [ ] | F", (False, True), 0),
        ("f: [x] | F", (False, True), 1),
    ],
)
def test_a_control_is_read_from_its_line(extension, line, values, default):
    from weft_book.controls import parse

    control = parse(line)
    assert control.values == values and control.default == default
    assert [type(value) for value in control.values] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("what", "values", "texts"),
    [
        ("0..1 by 0.25 = 0.5", (0, 0.25, 0.5, 0.75, 1), "0 0.25 0.5 0.75 1"),
        ("512..4096 times 2 = 1024", (512, 1024, 2048, 4096), "512 1,024 2,048 4,096"),
        ("512 KiB..2 MiB times 2", (2**19, 2**20, 2**21), "512 KiB,1 MiB,2 MiB"),
        ("2^-8..2^0 times 16 = 2^-4", (2**-8, 2**-4, 1), "2⁻⁸ 2⁻⁴ 2⁰"),
    ],
)
def test_a_slider_shows_its_values(extension, what, values, texts):
    from weft_book.controls import parse

    control = parse(f"name: {what} | Label")
    assert control.values == values
    assert control.texts == tuple(texts.split("," if "KiB" in texts else " "))
    assert control.default == (2 if "0.5" in what else 1 if "=" in what else 0)


@pytest.mark.parametrize(
    "what", ["1..1000 times 2", "0..8 times 2", "1..8 times 1", "1 kB..2 kB", "1..2^x times 2"]
)
def test_a_range_that_ends_nowhere_is_refused(extension, what):
    from weft_book.controls import parse

    with pytest.raises(ValueError, match=r"does not go from low to high|is not a range"):
        parse(f"name: {what} | Label")


def test_no_slider_of_the_book_shows_an_exponent():
    for page in sorted((ROOT / "book").glob("*.md")):
        for label in re.findall(r"^\w+: .*\.\..* \| (.+)$", page.read_text(), re.M):
            assert not re.search("as a power|powers of|exponent", label, re.I), (page.name, label)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("x", ("x", "")),
        ("x:.1%", ("x", ".1%")),
        ("x[1:2]", ("x[1:2]", "")),
        ("{'a': 1}['a']:>4", ("{'a': 1}['a']", ">4")),
        ("max([1, 2], key=lambda x: -x)", ("max([1, 2], key=lambda x: -x)", "")),
    ],
)
def test_an_expression_is_parted_from_its_format(extension, text, parts):
    from weft_book.calc import split_format

    assert split_format(text) == parts


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("sum(len(row) for row in gpipe(2, 3).rows)", "12"),
        ("(lambda n: n + 1)(2)", "3"),
        ("simulate(gpipe(2, 2)).makespan:g", "9"),
        ("simulate.simulate(gpipe(2, 2)).makespan:g", "9"),
        ("math.pi:.2f", "3.14"),
    ],
)
def test_names_mean_the_library(extension, text, printed):
    from weft_book.calc import evaluate

    assert evaluate(text)[1] == printed


def test_a_name_with_two_homes_has_to_say_which(extension, monkeypatch):
    from weft_book import calc

    monkeypatch.setattr(calc, "plan_names", lambda: {"seconds": {"roofline": 1, "memory": 2}})
    with pytest.raises(calc.WrongExpression, match=r"memory\.seconds or roofline\.seconds"):
        calc.evaluate("seconds")


# --- what the book shows of the library -------------------------------------------------------


def shown_code() -> list[tuple[str, str]]:
    """Each function or class that a chapter includes, as (where, text)."""
    found = []
    for page in sorted(ROOT.glob("book/*.md")):
        text = page.read_text(encoding="utf-8")
        for file, name in re.findall(r"{literalinclude} (\S+)\n:pyobject: (\S+)", text):
            source = (page.parent / file).read_text(encoding="utf-8")
            node = ast.parse(source)
            for part in name.split("."):
                node = next(n for n in node.body if getattr(n, "name", None) == part)
            lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
            found += [(f"{page.name} shows {name}", line) for line in lines]
    return found


def test_code_that_the_book_shows_fits_beside_both_sidebars():
    assert shown_code()
    assert [(where, line) for where, line in shown_code() if len(line) > 84] == []
