"""launch: values by rank, every way to fail, nothing left running, the same under torchrun."""

import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from weft.process import forkserver
from weft.process.job import Job, Outcome, Surroundings
from weft.run.world import RankFailed, launch, pickling
from weft.run.world.report import RankOutput, failure
from weft.run.world.witness import Witness

LIB = Path(__file__).parents[1]


def alive(pid: int) -> bool:
    """Whether a process runs (one that has ended and waits to be reaped does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def gone(pids: list[int], within: float = 0.0) -> bool:
    """Whether none of these processes runs any more, `within` seconds from now."""
    end = time.monotonic() + within
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, pids))


def pids_in(folder: Path, count: int, within: float = 30.0) -> list[int]:
    """The process ids that ranks wrote as file names, once there are `count`."""
    end = time.monotonic() + within
    while len(found := [int(path.name) for path in folder.iterdir()]) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} processes after {within} s"
        time.sleep(0.02)
    return found


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(LIB), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


@pytest.mark.parametrize("n", [1, torch.tensor(3), 5], ids=int)
def test_values_come_back_by_rank(n):
    def add(world, start, *, scale=2):
        total = torch.tensor([start + world.rank], dtype=torch.float64)
        dist.all_reduce(total, group=world.group())
        return world.rank, world.size, str(world.device), total.item() * scale

    total, size = 2.0 * sum(10 + rank for rank in range(n)), int(n)
    assert repr(launch(add, n, 10)) == repr([(r, size, "cpu", total) for r in range(size)])


def test_tensors_lambdas_and_own_classes_come_back():
    class Box:
        def __init__(self, content):
            self.content = content

    boxes = launch(lambda world: Box(torch.full((3,), float(world.rank))), 2)
    assert all(type(box) is Box for box in boxes)
    assert [box.content.tolist() for box in boxes] == [[0.0] * 3, [1.0] * 3]


def test_functions_that_name_torch_ops():
    assert launch(lambda world: torch.ops.aten.add(torch.ones(1), world.rank).item(), 2) == [1, 2]


def test_a_large_value_comes_back_whole():
    values = launch(lambda world: torch.arange(3_000_000) + world.rank, 2)
    assert all(torch.equal(value, torch.arange(3_000_000) + i) for i, value in enumerate(values))


def test_ranks_see_the_callers_surroundings(tmp_path, monkeypatch):
    launch(lambda world: None, 1)  # what follows the server cannot have seen when it started
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A_WORD", "warp")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "only_here.py").write_text("def thread_count(world):\n    import torch\n"
                                           "    return torch.get_num_threads()\n")  # fmt: skip
    import only_here

    def look(world):
        return os.getcwd(), os.environ["A_WORD"]

    assert launch(look, 2) == [(str(tmp_path), "warp")] * 2
    assert launch(only_here.thread_count, 2) == [1, 1]


def test_ranks_warn_as_the_caller_does():
    def warn(world):
        warnings.warn("worn", UserWarning, stacklevel=1)

    with pytest.raises(RankFailed, match="UserWarning: worn"):
        launch(warn, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert launch(warn, 2) == [None, None]


def test_functions_of_a_module_that_no_path_leads_to(tmp_path):
    path = tmp_path / "loose.py"
    path.write_text("import torch\nbase = 5\ndef work(world):\n    return helper(world.rank)\n"
                    "def helper(rank):\n    return torch.tensor(base + rank)\n")  # fmt: skip
    spec = importlib.util.spec_from_file_location("loose", path)
    loose = importlib.util.module_from_spec(spec)
    sys.modules["loose"] = loose
    try:
        spec.loader.exec_module(loose)
        assert launch(loose.work, 2) == [torch.tensor(5), torch.tensor(6)]
    finally:
        del sys.modules["loose"]


def test_launches_from_two_threads_do_not_meet():
    results = {}

    def work(key):
        def gather(world):
            values = [None] * world.size
            dist.all_gather_object(values, (key, world.rank), group=world.group())
            return values

        results[key] = launch(gather, 3)

    threads = [threading.Thread(target=work, args=(key,)) for key in ("warp", "weft")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {key: [[(key, rank) for rank in range(3)]] * 3 for key in ("warp", "weft")}


@pytest.mark.alone
def test_four_ranks_in_under_a_second():
    def meet(world):
        dist.barrier(group=world.group())
        return world.rank

    launch(meet, 4)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        assert launch(meet, 4) == [0, 1, 2, 3]
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1.0, seconds


def test_output_is_whole_lines_in_order_of_rank(capsys):
    def talk(world):
        for i in range(50):
            print("warp", i)
            time.sleep(0.001 * (world.size - world.rank))
        print("no newline", end="", file=sys.stderr)

    launch(talk, 3)
    captured = capsys.readouterr()
    lines = [f"[{rank}] warp {i}" for rank in range(3) for i in range(50)]
    assert captured.out.splitlines() == lines
    assert captured.err.splitlines() == [f"[{rank}] no newline" for rank in range(3)]


def test_a_line_that_does_not_end_is_shown_before_it_ends(tmp_path, monkeypatch):
    shown = []

    class Stdout(io.StringIO):
        def write(self, text):
            shown.append(text)
            (tmp_path / "seen").touch()

    def talk(world):
        print("é" * 100_000, end="", flush=True)
        while not (tmp_path / "seen").exists():  # the launch's time ends it
            time.sleep(0.01)
        print("\nmore")

    monkeypatch.setattr(sys, "stdout", Stdout())
    launch(talk, 1, timeout=60)
    assert "".join(shown) == f"[0] {'é' * 100_000}\n[0] more\n"


def test_fifty_megabytes_without_a_newline_come_whole(capsys):
    output, data = RankOutput(2), os.urandom(1 << 15).hex().encode()
    for _ in range(800):
        output.show(1, "stdout", data)
    output.show(0, "stdout", b"first")
    output.close()
    assert capsys.readouterr().out == f"[0] first\n[1] {data.decode() * 800}\n"


# --- grids ------------------------------------------------------------------------------------


def test_a_grid_has_groups_along_its_axes():
    def sums(world):
        grid = world.grid(d=2, p=3)
        totals = {}
        for name in ("d", "p"):
            total = torch.tensor([world.rank])
            dist.all_reduce(total, group=grid.group(name))
            axis = grid.axis(name)
            assert axis is world.grid(x=2, y=3).axis("xy"["dp".index(name)])
            totals[name] = (axis.rank, axis.size, total.item())
        return totals

    rows = launch(sums, 6)
    for rank, row in enumerate(rows):
        d, p = divmod(rank, 3)
        assert row["d"] == (d, 2, p + (p + 3))
        assert row["p"] == (p, 3, sum(3 * d + i for i in range(3)))


def test_an_axis_can_be_laid_out_again():
    def inner(world):
        axis = world.grid(a=2, b=4).axis("b").grid(c=2, e=2).axis("c")
        return axis.rank, dist.get_process_group_ranks(axis.group())

    expected = [(b // 2, [4 * a + b % 2, 4 * a + b % 2 + 2]) for a in range(2) for b in range(4)]
    assert launch(inner, 8) == expected


def test_wrong_axes_are_named():
    def wrong(world):
        messages = []
        for axes in ({}, {"p": 2}, {"p": 0, "d": 3}, {"p": 3.0}):
            with pytest.raises(ValueError, match="axes") as caught:
                world.grid(**axes)
            messages.append(str(caught.value))
        with pytest.raises(ValueError, match=r"axis = 't': must be one of \['p'\]"):
            world.grid(p=3).group("t")
        return messages

    messages = launch(wrong, 3)[0]
    assert "their product is 2, must be the number of ranks, 3" in messages[1]


# --- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, r"n = 0: must be a whole number"),
        ({"n": -1}, r"n = -1"),
        ({"n": 2.0}, r"n = 2\.0"),
        ({"n": True}, r"n = True"),
        ({"timeout": 0}, r"timeout = 0: must be a number of seconds above 0"),
        ({"timeout": -1}, r"timeout = -1"),
        ({"timeout": float("nan")}, r"timeout = nan"),
        ({"timeout": None}, r"timeout = None"),
        ({"fn": 3}, r"fn = 3: must be callable"),
        ({"backend": "smoke"}, r"backend = 'smoke': must be one of \['gloo', 'nccl'\]"),
        ({"backend": "nccl", "n": 1000}, r"1000 ranks need as many CUDA devices"),
    ],
)
def test_a_wrong_argument_is_named_before_any_process_starts(change, message, monkeypatch):
    monkeypatch.setattr(forkserver, "own", lambda *_: pytest.fail("a process was started"))
    arguments = {"fn": print, "n": 2, **change}
    with pytest.raises(ValueError, match=message):
        launch(arguments.pop("fn"), arguments.pop("n"), **arguments)


def test_what_cannot_be_pickled_is_named_before_any_process_starts(monkeypatch):
    monkeypatch.setattr(forkserver, "own", lambda *_: pytest.fail("a process was started"))
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r"fn = .*lambda.* cannot be pickled.*lock"):
        launch(lambda world: lock, 2)
    with pytest.raises(ValueError, match=r"args\[1\] = .*lock.* cannot be pickled"):
        launch(print, 2, "fine", lock)


def test_without_cloudpickle_functions_of_modules_work_and_others_are_explained(monkeypatch):
    monkeypatch.setattr(pickling, "cloudpickle", None)
    monkeypatch.setattr(pickling, "_Pickler", pickling._PlainPickler)
    assert launch(repr, 2)[1].startswith("World(rank=1, size=2")
    namespace = {"__name__": "__main__"}
    exec("def cell(world): pass", namespace)
    with pytest.raises(ValueError, match="install cloudpickle"):
        launch(namespace["cell"], 2)
    with pytest.raises(ValueError, match=r"fn = .* cannot be pickled"):
        launch(lambda world: world.rank, 2)


# --- failures ---------------------------------------------------------------------------------


def fails(fn, n=3, *args, timeout=30.0, within=10.0) -> RankFailed:
    """What launch raises, which must be at once, and leave none of the ranks."""
    start = time.monotonic()
    with pytest.raises(RankFailed) as caught:
        launch(fn, n, *args, timeout=timeout)
    assert time.monotonic() - start < within
    return caught.value


def test_a_rank_that_raises_is_named_first_with_its_traceback():
    def work(world):
        if world.rank == 1:
            raise KeyError("lost weft")
        dist.barrier(group=world.group())

    failure = fails(work)
    assert failure.rank == 1
    assert failure.cause == "KeyError: 'lost weft'"
    assert str(failure).startswith("rank 1 of 3: KeyError: 'lost weft'")
    assert 'raise KeyError("lost weft")' in str(failure)
    assert "weft/process" not in str(failure) and "run/world" not in str(failure)
    assert [outcome.kind for outcome in failure.failures[1:]] == ["stopped", "stopped"]


def test_the_first_of_two_that_raise_is_named_first():
    def work(world):
        time.sleep(0.1 * (world.size - world.rank))
        raise ValueError(f"rank {world.rank}")

    failure = fails(work)
    assert failure.rank == 2
    assert "then rank 1: ValueError: rank 1" in str(failure)


def test_a_killed_rank_is_the_cause_and_not_the_closed_connections():
    def work(world):
        dist.barrier(group=world.group())
        if world.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier(group=world.group())

    failure = fails(work)
    assert failure.rank == 2
    assert str(failure).startswith("rank 2 of 3: killed by SIGKILL")


def test_a_crash_brings_its_stack_along():
    def work(world):
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)

    failure = fails(work)
    assert (failure.rank, failure.cause) == (1, "killed by SIGSEGV")
    assert "in work" in failure.detail


@pytest.mark.parametrize(("leave", "cause"), [
    (lambda: os._exit(3), "exited with code 3 before it returned"),
    (lambda: sys.exit(4), "SystemExit: 4"),
])  # fmt: skip
def test_a_rank_that_leaves_is_named(leave, cause):
    def work(world):
        if world.rank == 0:
            leave()
        time.sleep(60)

    failure = fails(work)
    assert (failure.rank, failure.cause) == (0, cause)


def test_a_rank_that_hangs_is_named_before_those_that_wait_for_it():
    def work(world):
        if world.rank == 2:
            time.sleep(60)
        dist.all_reduce(torch.ones(1), group=world.group())

    failure = fails(work, timeout=1.0, within=5.0)
    assert str(failure).startswith("rank 2 of 3: still running after 1 s")
    assert "time.sleep(60)" in failure.detail
    assert "dist.all_reduce(torch.ones(1), group=world.group())" in str(failure)


def test_a_stopped_rank_does_not_outlast_the_timeout():
    def work(world):
        os.kill(os.getpid(), signal.SIGSTOP)

    failure = fails(work, timeout=1.0, within=5.0)
    assert {outcome.kind for outcome in failure.failures} == {"hung"}


def test_who_waits_for_a_rank_that_returned_hears_of_it():
    def work(world):
        if world.rank == 1:
            dist.recv(torch.zeros(1), group_src=0, group=world.group())

    failure = fails(work, 2)
    assert (failure.rank, failure.cause) == (0, "returned while others waited: 1")
    assert "then rank 1: RuntimeError" in str(failure) and "Connection closed" in str(failure)


def test_a_rank_that_left_is_not_to_blame_for_what_others_did():
    def work(world):
        if world.rank == 1:
            raise ValueError("my own")

    failure = fails(work, 2, within=60.0)
    assert (failure.rank, failure.cause) == (1, "ValueError: my own")
    assert "had returned: 0" in str(failure)


def test_the_first_of_two_that_left_is_named_where_others_hang():
    hangs = '  File "/x/torch/distributed/distributed_c10d.py", line 1 in recv\n'
    work = '  File "/x/script.py", line 2 in work\n'
    left = [Outcome(0, "returned", time=2.0), Outcome(1, "returned", time=1.0)]
    failed = failure([*left, Outcome(2, "hung", detail=hangs + work)], 3, 5.0)
    assert (failed.rank, failed.cause) == (1, "returned while others waited: 2")
    assert "had returned: 0" in str(failed)
    failed = failure([*left, Outcome(2, "hung", detail=work)], 3, 5.0)
    assert (failed.rank, failed.cause) == (2, "still running after 5 s")
    assert failure(left, 2, 5.0) is None


def only_here() -> type:
    """A class whose instances can be pickled, and unpickled in this process alone."""

    class OnlyHere:
        def __init__(self):
            self.home = os.getpid()

        def __setstate__(self, state):
            if state["home"] != os.getpid():
                raise ModuleNotFoundError("No module named 'elsewhere'")

    return OnlyHere


def test_what_cannot_be_unpickled_in_a_rank_is_named():
    failure = fails(lambda world, thing: thing, 3, only_here()())
    assert failure.rank in range(3)
    assert "cannot be unpickled in a rank" in failure.cause
    assert "No module named 'elsewhere'" in failure.cause


def test_what_cannot_be_pickled_in_a_rank_is_named():
    def work(world):
        return threading.Lock() if world.rank == 1 else None

    failure = fails(work)
    assert failure.rank == 1
    assert "what fn returned, a lock, cannot be pickled" in failure.cause


def test_what_cannot_be_unpickled_here_is_named():
    make = only_here()
    failure = fails(lambda world: make() if world.rank == 1 else None)
    assert failure.rank == 1
    assert "cannot be unpickled here" in failure.cause


def test_after_a_failure_the_next_launch_works():
    fails(lambda world: 1 / 0)
    assert launch(lambda world: world.rank, 3) == [0, 1, 2]


# --- nothing is left --------------------------------------------------------------------------


def with_children(folder, ending):
    """A rank that starts two processes, one of which hides in a session of its own."""

    def work(world):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        children = [
            subprocess.Popen(["sleep", "300"], start_new_session=hides, **quiet)
            for hides in (False, True)
        ]
        for pid in (os.getpid(), *(child.pid for child in children)):
            (Path(folder) / str(pid)).touch()
        dist.barrier(group=world.group())
        ending(world)

    return work


@pytest.mark.parametrize("how", ["returns", "raises", "hangs"])
def test_nothing_is_left_running(how, tmp_path):
    endings = {
        "returns": lambda world: None,
        "raises": lambda world: 1 // world.rank,
        "hangs": lambda world: time.sleep(300),
    }
    work = with_children(str(tmp_path), endings[how])
    if how == "returns":
        launch(work, 2)
    else:
        fails(work, 2, timeout=2.0)
    pids = pids_in(tmp_path, 6)
    assert len(pids) == 6
    assert gone(pids)


@pytest.mark.parametrize("ending", ["interrupted", "killed"])
def test_nothing_is_left_when_the_caller_ends(ending, tmp_path):
    folder = tmp_path / "pids"
    folder.mkdir()
    path = script(tmp_path, """
        import os, signal, subprocess, sys, time
        from pathlib import Path
        from weft.run.world import launch

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it

        def work(world, folder):
            child = subprocess.Popen(["sleep", "300"], start_new_session=True)
            for pid in (os.getpid(), os.getppid(), child.pid):
                (Path(folder) / str(pid)).touch()
            time.sleep(300)

        try:
            launch(work, 2, sys.argv[1])
        except KeyboardInterrupt:  # by now all but the watcher, who told us, must be gone
            left = [p.name for p in Path(sys.argv[1]).iterdir() if Path("/proc", p.name).exists()]
            print("left:", len(left) > 1, file=sys.stderr)
            raise
    """)  # fmt: skip
    caller = subprocess.Popen(
        [sys.executable, path, folder],
        env=environment(),
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    with caller:
        pids = pids_in(folder, 5)  # two ranks, a child of each, and what watches over them
        assert all(map(alive, pids))
        os.killpg(caller.pid, signal.SIGINT if ending == "interrupted" else signal.SIGKILL)
        errors = caller.communicate(timeout=20)[1]
    assert gone(pids, within=0.0 if ending == "interrupted" else 10.0)
    if ending == "interrupted":
        assert "left: False" in errors and "KeyboardInterrupt" in errors
        assert caller.returncode == -signal.SIGINT


def test_if_the_watcher_is_killed_the_launch_ends_and_so_do_the_ranks(tmp_path):
    def work(world):
        (tmp_path / str(os.getpid())).touch()
        dist.barrier(group=world.group())
        if world.rank == 0:
            os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(RuntimeError, match="watches over the ranks was killed"):
        launch(work, 2, timeout=20)
    assert gone(pids_in(tmp_path, 2), within=5.0)
    assert launch(lambda world: world.rank, 2) == [0, 1]


STOPS = """
import os, signal, subprocess, time
from pathlib import Path

def work(job, rank, folder):
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    os.kill(os.getppid(), signal.SIGSTOP)
    for pid in (os.getpid(), os.getppid(), child.pid):
        (Path(job.payload.decode()) / str(pid)).touch()
    time.sleep(300)
"""


@pytest.mark.parametrize("waits", [True, False], ids=["waited for", "given up"])
def test_a_watcher_that_is_stopped_is_ended_with_all_below_it(tmp_path, monkeypatch, waits):
    (tmp_path / "pids").mkdir()
    (tmp_path / "stops.py").write_text(STOPS)
    monkeypatch.syspath_prepend(tmp_path)
    payload, timeout = bytes(tmp_path / "pids"), 4.0 if waits else 3600.0
    job = Job("stops:work", payload, 1, timeout, Surroundings.here())
    start = time.monotonic()
    with forkserver.own(("torch",)).start(job) as ranks:
        pids = pids_in(tmp_path / "pids", 3)
        if waits:
            with pytest.raises(RuntimeError, match="was killed, or was stopped"):
                ranks.wait()
        else:  # as a grader does, which keeps its own time
            assert ranks.wait(patience=0.1) is None
    assert gone(pids, within=30.0)
    assert time.monotonic() - start < forkserver.PATIENCE
    assert launch(lambda world: world.rank, 2) == [0, 1]


def test_what_a_killed_run_leaves_in_temporary_folders_goes_at_the_next_start(tmp_path):
    path = script(tmp_path, """
        import os, signal, sys, time
        from weft.run.world import launch

        def work(world, caller):
            os.kill(caller, signal.SIGKILL)
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)

        if sys.argv[1] == "killed":
            launch(work, 1, os.getpid())
        launch(lambda world: world.rank, 1)
    """)  # fmt: skip
    folder = tmp_path / "temporary"
    folder.mkdir()
    for how, code in (("killed", -signal.SIGKILL), ("well", 0)):
        done = subprocess.run(
            [sys.executable, path, how], env={**environment(), "TMPDIR": str(folder)}
        )
        assert done.returncode == code
        assert len(list(folder.glob("weft-*"))) == (1 if how == "killed" else 0)


def test_where_no_process_can_be_had_the_reason_is_given(tmp_path):
    path = script(tmp_path, """
        from weft.run.world import launch

        print(launch(lambda world: world.rank, 2))
        try:
            launch(lambda world: world.rank, 10**5)  # more pipes than a process may open
        except RuntimeError as error:
            print(type(error).__name__, "Too many open files" in str(error))
        print(launch(lambda world: world.rank, 3))
    """)  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", f"ulimit -n 60; {sys.executable} {path}"],
        env={**environment(), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["[0, 1]", "RuntimeError True", "[0, 1, 2]"], done.stderr
    assert not list(tmp_path.glob("weft-*"))


def test_a_rank_may_launch_ranks_of_its_own():
    def outer(world):
        rank = world.rank
        return launch(lambda inner: (rank, inner.rank), 2)

    assert launch(outer, 2) == [[(outer, inner) for inner in range(2)] for outer in range(2)]


def test_a_killed_forkserver_is_replaced():
    launch(lambda world: None, 1)
    forkserver._own.process.kill()
    forkserver._own.process.wait()
    assert launch(lambda world: world.rank, 3) == [0, 1, 2]


def test_a_script_needs_no_main_guard_and_leaves_no_forkserver(tmp_path):
    path = script(tmp_path, """
        from dataclasses import dataclass
        from weft.run.world import launch
        from weft.process import forkserver

        @dataclass
        class Point:
            x: int

        points = launch(lambda world, point: Point(point.x + world.rank), 2, Point(1))
        assert points == [Point(1), Point(2)]
        print(forkserver._own.process.pid)
    """)  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "error", path], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert gone([int(done.stdout)])


# --- in a notebook, under torchrun ------------------------------------------------------------


def test_functions_and_classes_of_a_notebook_cell():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    cells = [
        "import torch, weft.run.world as w",
        "class Twice(torch.nn.Module):\n    def forward(self, x):\n        return factor * x",
        "factor = 2\ndef work(world):\n    return Twice()(torch.tensor(world.rank)).item()",
        "w.launch(work, 3)",
        "def wrong(world):\n    raise ValueError('in a cell')  # here",
        "try:\n    w.launch(wrong, 2)\nexcept w.RankFailed as failure:\n    print(failure)",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Jupyter's own
        nbclient.NotebookClient(book, timeout=60, kernel_name="python3").execute(env=environment())
    assert book.cells[3].outputs[0]["data"]["text/plain"] == "[0, 2, 4]"
    assert "raise ValueError('in a cell')  # here" in book.cells[5].outputs[0]["text"]


def torchrun(n: int, path: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n)]
    return subprocess.run(
        [*command, str(path), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_same_script_under_torchrun(tmp_path):
    path = script(tmp_path, """
        import json, sys
        import torch, torch.distributed as dist
        from weft.run.world import launch

        def total(world, scale):
            x = torch.tensor([scale * world.rank])
            dist.all_reduce(x, group=world.group())
            column = world.grid(p=world.size).axis("p").rank
            return world.rank, x.item(), (lambda: column)()

        first, second = launch(total, 3, 1), launch(total, 3, 2)
        with open(sys.argv[1], "a") as file:
            file.write(json.dumps([first, second]) + "\\n")
    """)  # fmt: skip
    direct = subprocess.run([sys.executable, path, tmp_path / "direct"], env=environment())
    under = torchrun(3, path, str(tmp_path / "under"))
    assert (direct.returncode, under.returncode) == (0, 0), under.stderr
    once = (tmp_path / "direct").read_text().splitlines()
    assert json.loads(once[0]) == [[[r, 3 * s, r] for r in range(3)] for s in (1, 2)]
    assert (tmp_path / "under").read_text().splitlines() == once * 3


def test_under_torchrun_n_is_the_number_of_ranks(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="n = 2: must be 3, the number of ranks that torchrun"):
        launch(print, 2)


def test_failures_under_torchrun(tmp_path):
    path = script(tmp_path, """
        import threading, time
        import torch.distributed as dist
        from weft.run.world import RankFailed, launch

        def work(world, how):
            if world.rank == 1 and how == "raises":
                raise ValueError("boom")
            if world.rank == 1 and how == "keeps":
                return threading.Lock()
            if world.rank == 1 and how == "hangs":
                time.sleep(300)
            dist.barrier(group=world.group())

        for how in ("raises", "keeps"):
            try:
                launch(work, 3, how)
            except RankFailed as failure:
                line = f"{failure.rank} {failure.cause}\\n"  # at once: three write to one pipe
                print(line, end="")
        launch(work, 3, "hangs", timeout=3)
    """)  # fmt: skip
    done = torchrun(3, path)
    lines = done.stdout.splitlines()
    assert lines.count("1 ValueError: boom") == 3
    assert sum("1 _pickle.PicklingError: what fn returned, a lock" in line for line in lines) == 3
    assert done.returncode != 0
    said = done.stderr.index
    assert said("rank 1 of 3: still running after 3 s") < said("and rank 0: still running after 3")
    assert 'script.py", line 12, in work' in done.stderr
    assert root_cause(done.stderr) == 1


def root_cause(said: str) -> int:
    """The rank that torchrun has seen fail first, as it says."""
    return int(re.search(r"Root Cause.*?\brank +: (\d+)", said, re.DOTALL)[1])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("killed", "Signal 9 (SIGKILL) received"),
        ("stopped", "rank 1 of 2: still running after 6 s\n\nIt does not answer: it is stopped"),
        ("left", "rank 1 of 2: returned while others waited: 0"),
    ],
)
def test_who_failed_is_named_first_under_torchrun(tmp_path, how, says):
    path = script(tmp_path, """
        import os, signal, sys
        import torch, torch.distributed as dist
        from weft.run.world import launch

        def work(world, how):
            dist.barrier(group=world.group())
            if world.rank == 1 and how == "left":
                return
            if world.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            dist.barrier(group=world.group())

        launch(work, 2, sys.argv[1], timeout=6)
    """)  # fmt: skip
    done = torchrun(2, path, how)
    assert done.returncode != 0
    assert says in done.stderr
    assert root_cause(done.stderr) == 1


@pytest.fixture
def witness(monkeypatch):
    """Rank 0 of three on this node; rank 1's process has ended, rank 2 is this process."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name, value in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 3)):
        monkeypatch.setenv(name, str(value))
    found = Witness(store, 0, 3)
    for rank, pid in ((1, ended.pid), (2, os.getpid())):
        store.set(f"process/{rank}", str(pid))
    found.look_around()
    yield found
    del store


def test_who_loses_a_connection_names_whose_process_is_gone(witness):
    mine = Outcome(0, "raised", "RuntimeError: Connection closed by peer [127.0.0.1]:1")
    first = witness.first(mine)
    assert (first.rank, first.kind, first.cause) == (
        1,
        "died",
        "its process ended before it returned",
    )
    assert witness.first(Outcome(0, "raised", "ValueError: late")) == first  # what is said is said


def test_who_fails_for_a_reason_of_its_own_names_itself(witness):
    mine = Outcome(0, "raised", "ConnectionResetError: [Errno 104] Connection reset by peer")
    assert witness.first(mine) == mine


def test_where_nobody_is_gone_a_lost_connection_is_ones_own(witness, monkeypatch):
    monkeypatch.setattr("weft.run.world.witness.GRACE", 0.1)
    witness.neighbours[1] = os.getpid()
    mine = Outcome(0, "raised", "RuntimeError: Read error: Connection reset by peer")
    assert witness.first(mine) == mine


def test_a_store_that_is_gone_is_no_reason_to_name_nobody(witness, monkeypatch):
    class Gone:
        def check(self, keys):
            raise dist.DistNetworkError("failed to recv")

    witness.store = Gone()
    assert witness.first(Outcome(0, "raised", "RuntimeError: Broken pipe")).rank == 1
    assert witness.first(Outcome(0, "raised", "torch.distributed.DistNetworkError: no")).rank == 1


@pytest.mark.gpu
def test_ranks_on_cuda_devices():
    n = torch.cuda.device_count()
    if not n:
        pytest.skip("needs a CUDA device")

    def total(world):
        x = torch.tensor([float(world.rank)], device=world.device)
        dist.all_reduce(x, group=world.group())
        values = [None] * world.size
        dist.all_gather_object(values, world.rank, group=world.group())
        return str(world.device), x.item(), values

    expected = [(f"cuda:{rank}", n * (n - 1) / 2, [*range(n)]) for rank in range(n)]
    assert launch(total, n) == expected
    assert launch(lambda world: str(world.device), n + 1) == ["cpu"] * (n + 1)
