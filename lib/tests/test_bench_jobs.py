"""Benchmarks in parts: what is begun, what is left, what is kept, and what is said of the goals."""

import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from weft import cli
from weft.bench import goals, jobs, record
from weft.bench.goals import GOALS, Goal, reached, verdict
from weft.bench.jobs import BenchJob, BenchRun, carry_out, chosen, silent
from weft.bench.record import Measurement, Record, read_all


def made(name: str, *results: Measurement, chip: str = "h200", topic: str = "none") -> Record:
    """A record made for the tests."""
    results = results or (Measurement.of("step", "weft", "s", [1.0]),)
    return Record(
        name, "Made up", topic, "weft bench none", results,
        {"chip": chip}, {"python": "3"}, "2026-01-02T03:04:05+00:00", "0123456789ab",
    )  # fmt: skip


def job(name: str, error: Exception | None = None, on: tuple[str, ...] = ("cpu",)) -> BenchJob:
    def measure(run):
        for what in run.each((1, 2)):
            if error and what == 2:
                raise error
        return f"Made up on {run.device}", [Measurement.of("step", "weft", "s", [1.0])]

    return BenchJob(name, measure, on, 1.0)


def done(some, keep=lambda _: None, progress=silent, **how):
    return carry_out(some, "cpu", keep, progress, **how)


def ticking(step: float = 1.0):
    """A clock on which `step` passes whenever somebody looks."""
    now = [-step]

    def clock():
        now[0] += step
        return now[0]

    return clock


def test_records_are_kept_one_by_one_and_progress_only_grows():
    kept, told = [], []

    def keep(record):
        kept.append((record.name, len(told)))

    assert done([job("a"), job("b")], keep, lambda *what: told.append(what)) == ([], {})
    assert kept == [("a", 3), ("b", 6)]  # b was not begun when a was kept
    shares = [done / total for done, total, _ in told]
    assert shares == sorted(shares) == [0, 0, 0.25, 0.5, 0.5, 0.75]


@pytest.mark.parametrize(("seconds", "begun"), [(0.5, ""), (2, "a"), (3, "ab"), (9, "abc")])
def test_nothing_is_begun_when_the_time_is_over(seconds, begun):
    kept = []
    some = [job("a"), job("b"), job("c")]
    outcome = done(some, lambda r: kept.append(r.name), seconds=seconds, clock=ticking())
    assert kept == list(begun) and kept + outcome.left == ["a", "b", "c"]


def test_a_job_that_fails_takes_no_other_with_it(capsys):
    kept = []
    some = [job("a", AssertionError("a is wrong")), job("b", ValueError("no b")), job("c")]
    outcome = done(some, lambda r: kept.append(r.name))
    assert kept == ["c"] and outcome.left == []
    assert {name: str(error) for name, error in outcome.failed.items()} == {
        "a": "a is wrong", "b": "no b",
    }  # fmt: skip
    said = capsys.readouterr().err
    assert "Traceback" in said and "a is wrong" in said and "no b" not in said


def test_a_device_that_does_not_answer_any_more_ends_it(monkeypatch):
    def lost():
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    outcome = done([job("a", ValueError("bad")), job("b"), job("c")])
    assert outcome.left == ["b", "c"] and list(outcome.failed) == ["a"]


def test_a_record_says_what_made_it_and_where(monkeypatch):
    monkeypatch.setattr(record, "machine", lambda device: {"chip": device})
    both = job("some-thing", on=("cpu", "cuda"))._replace(tools=lambda: {"tool": "1.2"})
    cases = (both, "cuda", "cuda"), (both, "cpu", "cpu"), (job("a"), "cuda", "cpu")
    for one, device, chip in cases:
        made = one.record(BenchRun(device))
        assert (made.chip, made.title) == (chip, f"Made up on {chip}")
        assert (made.topic, made.command) == (one.name.partition("-")[0], f"weft bench {one.name}")
        assert made.versions.get("tool") == ("1.2" if one is both else None)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_topic_has_records_each_of_one_name(device):
    found = {topic: jobs.jobs(topic, device) for topic in jobs.topics()}
    assert {"attention", "hopper", "decode", "precision", "roofline", "zero"} <= found.keys()
    assert all(found.values())
    everything = [job.name for topic in found for job in jobs.jobs(topic)]
    assert len(everything) == len(set(everything))


def test_beside_a_gpu_the_processors_records_are_asked_for_by_name():
    def names(words, *how):
        return [job.name for job in chosen(words, *how)]

    assert names(["hopper"], (), "cpu") == ["hopper-rmse"] != names(["hopper"], (), "cuda")[-1:]
    timed = ["zero-step", "zero-peak", "zero-gpt2-step", "zero-gpt2-peak"]
    assert names(["zero"], (), "cuda") == timed
    assert names(["zero"], (), "cpu") == [*timed, "zero-bytes"]
    assert names(["pipeline"], (), "cuda") == names(["pipeline"], (), "cpu")
    assert names(["hopper"], ["hopper-rmse"], "cuda") == ["hopper-rmse"]


@pytest.mark.parametrize("word", [
    "decode_kernel", "hopper_rmse", "offload_disk", "pipeline_search", "zero_bytes", "decode-code",
])  # fmt: skip
def test_a_records_name_is_as_good_as_a_topic(word):
    (found,) = chosen([word])
    assert found.name == word.replace("_", "-")


# --- on the command line --------------------------------------------------------------------------


@pytest.fixture
def topics(monkeypatch):
    """Two topics in place of all that there are."""
    found = {
        "one": [job("a"), job("b")],
        "two": [job("c", ValueError("no chip\nmore")), job("d", ValueError("no chip\nless"))],
        "chip": [job("chip-a", on=("cuda",)), job("chip-b")],
    }
    monkeypatch.setattr(jobs, "topics", lambda: list(found))
    monkeypatch.setattr(jobs, "here", lambda: "cpu")
    modules = {f"weft.bench.{name}": SimpleNamespace(JOBS=some) for name, some in found.items()}
    monkeypatch.setattr("importlib.import_module", modules.__getitem__)


def test_several_topics_are_measured_and_what_failed_is_said_last(topics, tmp_path, capsys):
    assert cli.main(["bench", "one", "two", "--out", str(tmp_path)]) == 2
    assert [record.name for record in read_all(tmp_path)] == ["a", "b"]
    shown = capsys.readouterr()
    assert shown.err == "weft bench: c, d: no chip\n" and "left out" not in shown.out


def test_one_record_may_be_asked_for(topics, tmp_path, capsys):
    assert cli.main(["bench", "one", "two", "--only", "b", "--out", str(tmp_path)]) == 0
    assert [record.name for record in read_all(tmp_path)] == ["b"]
    assert cli.main(["bench", "one", "--only", "c"]) == 2
    assert "unknown record 'c': choose from a, b" in capsys.readouterr().err
    assert cli.main(["bench", "chip_b", "--out", str(tmp_path)]) == 0
    assert [record.name for record in read_all(tmp_path)] == ["b", "chip-b"]


def test_the_commit_can_be_told_where_git_cannot(topics, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "commit", lambda: "unknown")
    assert cli.main(["bench", "one", "--commit", "abc", "--out", str(tmp_path)]) == 0
    monkeypatch.setattr(record, "commit", lambda: "0123456789ab")
    assert cli.main(["bench", "chip", "--commit", "abc", "--out", str(tmp_path)]) == 0
    assert [record.commit for record in read_all(tmp_path)] == ["abc", "abc", "0123456789ab"]


def test_what_there_was_no_time_for_is_said(topics, tmp_path, capsys):
    assert cli.main(["bench", "one", "two", "--seconds", "0"]) == 0
    assert capsys.readouterr().out == "left out: a,b,c,d\n"


def test_records_are_listed_and_a_topic_must_be_one(topics, capsys):
    assert cli.main(["bench", "--list", "one", "chip"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    cpu = [["one", "a", "cpu", "1"], ["one", "b", "cpu", "1"]]
    assert rows == [*cpu, ["chip", "chip-a", "cuda", "1"], ["chip", "chip-b", "cpu", "1"]]
    assert cli.main(["bench", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7
    for arguments, said in (
        (["bench"], "no topic is named"),
        (["bench", "x"], "unknown topic 'x'"),
        (["bench", "chip-x"], "unknown topic 'chip-x'"),
    ):
        assert cli.main(arguments) == 2
        assert f"{said}: choose from one, two, chip" in capsys.readouterr().err


# --- the goals ------------------------------------------------------------------------------------


def rated(record: str, size: str, **rates: list[float]) -> Record:
    unit = next((goal.unit for goal in GOALS if goal.record == record), "FLOP/s")
    return made(
        record,
        *(
            Measurement.of(size, who.replace("_", " "), unit, values)
            for who, values in rates.items()
        ),
    )


GOAL = Goal("Triton forward", "attention-forward-128", goals.LONG, 0.65)


def test_every_goal_is_of_a_record_that_a_gpu_makes():
    from weft.bench import griffin, precision
    from weft.bench.attention.on_gpu import FULL
    from weft.bench.decode import kernel
    from weft.bench.experts import on_gpu as experts
    from weft.bench.linear import kernels
    from weft.bench.sparse import on_gpu as sparse
    from weft.bench.tensor import on_gpu as tensor

    names = {one.name for topic in jobs.topics() for one in jobs.jobs(topic, "cuda")}
    assert {goal.record for goal in GOALS} <= names
    sizes = {str(case) for case in kernel.FULL.cases} | precision.ON_GPU.keys()
    sizes |= {f"causal, T = {length}" for length in FULL.lengths}
    sizes |= {f"T = {length}" for length in kernels.FULL.lengths}
    sizes |= {str(case) for case in griffin.FULL.cases}
    sizes |= {sparse.size(*case) for case in product(sparse.WAYS, *sparse.FULL[:2])}
    sizes |= {f"forward, {shape}" for shape in experts.FULL.shapes}
    for layer, given in zip(tensor.WAYS, (tensor.NORM, tensor.SWIGLU, tensor.SCORES), strict=True):
        sizes |= {tensor.size(layer, *one) for one in product(tensor.WAYS[layer], given.widths)}
    assert {goal.size for goal in GOALS} <= sizes


def test_a_share_is_the_median_over_rounds_beside_the_best():
    rates = {"math": [1.0, 1.0, 1.0], "cudnn": [15.0, 10.0, 12.5]}  # 0.4, 0.8 and 0.56 of it
    record = rated(GOAL.record, GOAL.size, weft=[6.0, 8.0, 7.0], **rates)
    found = reached(GOAL, record)
    assert found.share == 0.56 and found.rate == 7.0 and not found.enough
    assert verdict(GOAL, [record]) == ("0.56, 7 FLOP/s", "missed by 13.8%", "0.56 to 0.56")
    assert verdict(GOAL._replace(share=0.56), [record])[1] == "reached"


def test_our_own_slower_versions_are_no_peers():
    record = rated(
        "decode-kernel", "x", weft=[9.0], copy=[10.0], **{"weft, a program per head": [30.0]}
    )
    goal = Goal("", "decode-kernel", "x", 0.9, unit="B/s")
    assert reached(goal, record).share == 0.9
    assert reached(goal._replace(over="copy"), record).enough


def test_a_rate_will_do_in_place_of_a_share():
    goal = GOAL._replace(over="cudnn", share=1.0, rate=660e12)
    slow, fast = (rated(goal.record, goal.size, weft=[r], cudnn=[700e12]) for r in (600e12, 661e12))
    assert verdict(goal, [slow])[1] == "missed by 9.1%" and verdict(goal, [fast])[1] == "reached"
    alone = rated(goal.record, goal.size, weft=[661e12])
    assert verdict(goal, [alone]) == ("661 TFLOP/s", "reached", "")
    assert verdict(goal._replace(rate=None), [alone])[1] == "missed by 100.0%"


def test_a_goal_may_be_a_rate_alone_and_a_ceiling_is_no_peer():
    goal = GOAL._replace(share=math.inf, rate=400e12)
    record = rated(
        goal.record, goal.size, weft=[300e12], math=[150e12], **{"one dense product": [600e12]}
    )
    assert goal.asked == "400 TFLOP/s"
    assert verdict(goal, [record])[:2] == ("2.00, 300 TFLOP/s", "missed by 25.0%")
    assert verdict(goal._replace(rate=299e12), [record])[1] == "reached"
    assert reached(goal._replace(over="one dense product"), record).share == 0.5


def test_what_another_chip_or_size_reaches_is_no_answer():
    record = rated(GOAL.record, "causal, T = 512", weft=[9.0], cudnn=[9.0])
    nothing = ("", "not yet measured", "")
    elsewhere = replace(rated(GOAL.record, GOAL.size, weft=[1.0]), machine={"chip": "cpu"})
    for records in ([], [record], [elsewhere]):
        assert verdict(GOAL, records) == nothing


def test_goals_are_printed_for_a_folder(tmp_path, capsys):
    rated(GOAL.record, GOAL.size, weft=[7e12], cudnn=[1e13]).write(tmp_path)
    assert cli.main(["bench", "--goals", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(GOALS)
    assert "0.70, 7 TFLOP/s  reached" in lines[1] and lines[3].endswith("not yet measured")
    assert cli.main(["bench", "--goals", str(tmp_path / "gone")]) == 2
    assert "gone: No such file or directory" in capsys.readouterr().err
