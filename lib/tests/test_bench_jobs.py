"""Benchmarks in parts: what is begun, what is left, what is kept, and what is said of the goals."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from weft import cli
from weft.bench import goals, jobs
from weft.bench.goals import GOALS, Goal, reached, verdict
from weft.bench.jobs import Job, carry_out, chosen
from weft.bench.record import Record, Result, read_all


def made(name: str, *results: Result, chip: str = "h200", topic: str = "none") -> Record:
    """A record made for the tests."""
    results = results or (Result.of("step", "weft", "s", [1.0]),)
    return Record(
        name, "Made up", topic, "weft bench none", results,
        {"chip": chip}, {"python": "3"}, "2026-01-02T03:04:05+00:00", "0123456789ab",
    )  # fmt: skip


def job(*names: str, error: Exception | None = None) -> Job:
    def make(progress):
        for i, name in enumerate(names):
            progress(i, len(names), name)
            yield made(name)
        if error:
            raise error

    return Job(names, make, 1.0)


def silent(*_):
    pass


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

    outcome = carry_out([job("a", "b"), job("c")], keep, lambda *what: told.append(what))
    assert outcome == ([], {}) and [name for name, _ in kept] == ["a", "b", "c"]
    shares = [done / total for done, total, _ in told]
    assert shares == sorted(shares) and shares[-1] < 1
    assert [seen for _, seen in kept] == [2, 3, 5]  # b was not begun when a was kept


@pytest.mark.parametrize(("seconds", "begun"), [(0.5, ""), (2, "a"), (3, "abc"), (9, "abcd")])
def test_nothing_is_begun_when_the_time_is_over(seconds, begun):
    kept = []
    some = [job("a"), job("b", "c"), job("d")]
    outcome = carry_out(some, lambda r: kept.append(r.name), silent, seconds, ticking())
    assert kept == list(begun) and kept + outcome.left == ["a", "b", "c", "d"]


def test_a_job_that_fails_takes_no_other_with_it(capsys):
    kept = []
    some = [
        job("a", error=AssertionError("a is wrong")),
        job("b", error=ValueError("no b")),
        job("c"),
    ]
    outcome = carry_out(some, lambda r: kept.append(r.name), silent)
    assert kept == ["a", "b", "c"] and outcome.left == []
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
    outcome = carry_out([job("a", error=ValueError("bad")), job("b"), job("c")], silent, silent)
    assert outcome.left == ["b", "c"] and list(outcome.failed) == ["a"]


def test_records_can_be_chosen_by_name():
    found = [job("a", "b"), job("c")]
    assert chosen(found, []) == found
    (only,) = chosen(found, ["b"])
    assert only.names == ("b",) and [r.name for r in only.make(silent)] == ["b"]
    with pytest.raises(ValueError, match="unknown record 'x': choose from a, b, c"):
        chosen(found, ["c", "x"])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_topic_names_its_records_once(device):
    found = {topic: jobs.jobs(topic, device) for topic in jobs.topics()}
    assert {"attention", "hopper", "decode", "precision", "roofline", "zero"} <= found.keys()
    for topic, some in found.items():
        names = [name for one in some for name in one.names]
        assert len(names) == len(set(names)) and (names or (topic, device) == ("hopper", "cpu"))


# --- on the command line --------------------------------------------------------------------------


@pytest.fixture
def topics(monkeypatch):
    """Two topics in place of all that there are."""
    found = {"one": [job("a"), job("b")], "two": [job("c", error=ValueError("no chip\nmore"))]}
    monkeypatch.setattr(jobs, "topics", lambda: list(found))
    modules = {f"weft.bench.{name}": SimpleNamespace(jobs=lambda _, some=some: some)
               for name, some in found.items()}  # fmt: skip
    monkeypatch.setattr("importlib.import_module", modules.__getitem__)


def test_several_topics_are_measured_and_what_failed_is_said_last(topics, tmp_path, capsys):
    assert cli.main(["bench", "one", "two", "--out", str(tmp_path)]) == 2
    assert [record.name for record in read_all(tmp_path)] == ["a", "b", "c"]
    shown = capsys.readouterr()
    assert shown.err == "weft bench: c: no chip\n" and "left out" not in shown.out


def test_one_record_may_be_asked_for(topics, tmp_path, capsys):
    assert cli.main(["bench", "one", "two", "--only", "b", "--out", str(tmp_path)]) == 0
    assert [record.name for record in read_all(tmp_path)] == ["b"]
    assert cli.main(["bench", "one", "--only", "c"]) == 2
    assert "unknown record 'c': choose from a, b" in capsys.readouterr().err


def test_the_commit_can_be_told_where_git_cannot(topics, tmp_path, monkeypatch):
    unknown = replace(made("a"), commit="unknown")
    monkeypatch.setattr(jobs, "jobs", lambda _: [Job(("a", "b"), lambda _: [unknown, made("b")])])
    assert cli.main(["bench", "one", "--commit", "abc", "--out", str(tmp_path)]) == 0
    assert [record.commit for record in read_all(tmp_path)] == ["abc", "0123456789ab"]


def test_what_there_was_no_time_for_is_said(topics, tmp_path, capsys):
    assert cli.main(["bench", "one", "two", "--seconds", "0"]) == 0
    assert capsys.readouterr().out == "left out: a,b,c\n"


def test_records_are_listed_and_a_topic_must_be_one(topics, capsys):
    assert cli.main(["bench", "--list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["one", "a", "1"], ["one", "b", "1"], ["two", "c", "1"]]
    for arguments, said in (
        (["bench"], "no topic is named"),
        (["bench", "x"], "unknown topic 'x'"),
    ):
        assert cli.main(arguments) == 2
        assert f"{said}: choose from one, two" in capsys.readouterr().err.replace(" is", " is")


# --- the goals ------------------------------------------------------------------------------------


def rated(record: str, size: str, **rates: list[float]) -> Record:
    unit = next((goal.unit for goal in GOALS if goal.record == record), "FLOP/s")
    return made(
        record,
        *(Result.of(size, who.replace("_", " "), unit, values) for who, values in rates.items()),
    )


GOAL = Goal("Triton forward", "attention-forward-128", goals.LONG, 0.65)


def test_every_goal_is_of_a_record_that_a_gpu_makes():
    names = {n for topic in jobs.topics() for one in jobs.jobs(topic, "cuda") for n in one.names}
    assert {goal.record for goal in GOALS} <= names
    from weft.bench import attention, decode_kernel, precision

    sizes = {str(case) for case in decode_kernel.FULL.cases} | {n for n, _ in precision.FULL.models}
    sizes |= {f"causal, T = {length}" for length in attention.CUDA.lengths}
    assert {goal.size for goal in GOALS} <= sizes
    assert attention.parts(attention.CUDA).keys() >= {"attention-forward-128"}


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
