"""The search for schedules: its properties, the optimum of small cases, and the paper's table."""

from itertools import accumulate, product
from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.plan.pipeline.published import PROFILES
from weft.plan.pipeline.schedules import Action, Plan, gpipe, looped, one_f_one_b, zb_h1, zb_h2
from weft.plan.pipeline.search.find import bound, search
from weft.plan.schedule import validate
from weft.plan.simulate.engine import Deadlock, simulate

NAMED = (gpipe, one_f_one_b, zb_h1, zb_h2)

PAPER = [(*profile.sizes, profile.zb_1p, profile.zb_2p) for profile in PROFILES]
KEPT = [profile.kept for profile in PROFILES]


# --- the table ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", PAPER)
def test_zb_1p_is_reached_and_is_the_best_there_is(row):
    p, m, f, b, w, c, zb_1p, _ = row
    found = search(p, m, f, b, w, c, memory=p)
    assert max(found.peak_live) <= p
    assert round(found.bubble_rate, 4) <= zb_1p
    assert isclose(found.bubble_rate, bound(p, m, f, b, w, c, memory=p), abs_tol=1e-9)


@pytest.mark.parametrize("row,kept", list(zip(PAPER, KEPT, strict=True)))
def test_zb_2p_is_reached_with_the_papers_count_of_memory(row, kept):
    p, m, f, b, w, c, _, zb_2p = row
    found = search(p, m, f, b, w, c, memory=2 * p, kept=kept)
    assert max(held(found.plan, kept)) <= 2 * p + 1e-9
    assert round(found.bubble_rate, 4) <= zb_2p


@pytest.mark.parametrize("row", PAPER)
def test_zb_2p_is_out_of_reach_where_activations_stay_whole_until_w(row):
    p, m, f, b, w, c, _, zb_2p = row
    least = bound(p, m, f, b, w, c, memory=2 * p)
    assert least > 2 * zb_2p
    found = search(p, m, f, b, w, c, memory=2 * p)
    assert max(found.peak_live) <= 2 * p
    assert isclose(found.bubble_rate, least, abs_tol=1e-9)


# --- any task -----------------------------------------------------------------------------------

times = st.integers(0, 4) | st.floats(0.1, 4.0).map(lambda x: round(x, 2))


@st.composite
def tasks(draw) -> dict:
    """The arguments of a search: numbers and sequences, tight memory and wide."""
    p, m = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    task = {"p": p, "m": m, "c": draw(st.sampled_from([0, 0.25, 1, 3.5]))}
    for name in "fbw":
        task[name] = draw(times | st.lists(times, min_size=p, max_size=p))
    limits = st.integers(1, 2 * p)
    task["memory"] = draw(limits | st.lists(limits, min_size=p, max_size=p))
    task["kept"] = draw(st.sampled_from([1.0, 1.0, 0.5, 0.3, 0.0]))
    return task


def durations(task: dict) -> dict:
    return {name: task[name] for name in "fbwc"}


def held(plan: Plan, kept: float) -> list[float]:
    """The most each rank holds: a whole activation from F until B, `kept` of it until W."""
    change = {"F": 1.0, "B": kept - 1, "W": -kept, "BW": -1.0}
    return [max(accumulate(change[action.kind] for action in row)) for row in plan.rows]


def limits(task: dict) -> list[int]:
    memory = task["memory"]
    return memory if isinstance(memory, list) else [memory] * task["p"]


@settings(max_examples=60)
@given(tasks())
def test_what_is_found_is_valid_and_within_the_memory(task):
    found = search(**task)
    validate(found.plan)
    assert (found.plan.p, found.plan.m, found.plan.v) == (task["p"], task["m"], 1)
    assert {action.kind for row in found.plan.rows for action in row} == {"F", "B", "W"}
    assert found == simulate(found.plan, **durations(task))
    for most, limit in zip(held(found.plan, task["kept"]), limits(task), strict=True):
        assert most <= limit + 1e-9
    if task["kept"] == 1:
        assert all(map(int.__le__, found.peak_live, limits(task)))


@settings(max_examples=60)
@given(tasks())
def test_it_is_between_the_bound_and_the_best_named_schedule(task):
    rate = search(**task).bubble_rate
    assert bound(**task) <= rate + 1e-9
    for schedule in NAMED:
        plan = schedule(task["p"], task["m"])
        if all(map(float.__le__, held(plan, task["kept"]), map(float, limits(task)))):
            assert rate <= simulate(plan, **durations(task)).bubble_rate + 1e-9


@settings(max_examples=15)
@given(tasks())
def test_the_same_question_has_the_same_answer(task):
    assert search(**task) == search(**task)


@settings(max_examples=20)
@given(tasks())
def test_a_number_means_the_same_for_every_stage(task):
    task |= {"f": 1.5, "b": 1.25, "w": 1, "memory": 3}
    spread = task | {name: [task[name]] * task["p"] for name in ("f", "b", "w", "memory")}
    assert search(**task) == search(**spread)


# --- the optimum, where all schedules can be tried ------------------------------------------------


def orders(m: int, limit: int, kept: float) -> list[str]:
    """Every order in which one rank can run m microbatches within its memory."""
    found = []

    def extend(order: str) -> None:
        f, b, w = map(order.count, "FBW")
        if w == m:
            found.append(order)
        if f < m and (f + 1 - b) + kept * (b - w) <= limit + 1e-9:
            extend(order + "F")
        if b < f:
            extend(order + "B")
        if w < b:
            extend(order + "W")

    extend("")
    return found


def best_of_all(task: dict) -> float:
    """The least bubble rate of all schedules, by trying each."""
    p, m = task["p"], task["m"]
    rates = []
    for rows in product(*(orders(m, limit, task["kept"]) for limit in limits(task))):
        actions = [
            tuple(Action(kind, order[:i].count(kind), stage) for i, kind in enumerate(order))
            for stage, order in enumerate(rows)
        ]
        plan = Plan("tried", p, m, 1, tuple(actions), looped(p))
        try:
            rates.append(simulate(plan, **durations(task)).bubble_rate)
        except Deadlock:
            continue
    return min(rates)


# p, m, f, b, w, c, memory, kept; the last two are found only by moving actions
SMALL = [
    (2, 3, 1, 1, 1, 0, 3, 1.0),
    (2, 3, 2, 3, 1, 0.5, 2, 1.0),
    (2, 3, [1, 3], [2, 2], [1, 2], 0.25, [3, 2], 1.0),
    (2, 3, [3, 1], [1, 4], [2, 0.5], 1, [3, 1], 1.0),
    (2, 3, 1.3, 1.2, 0.7, 0.1, 2, 0.4),
    (2, 3, [2, 0.5], [0.5, 2], [3, 1], 0, [2, 3], 0.5),
    (3, 2, [2.8, 4, 0.72], [2, 1, 1.26], [2, 4, 2.18], 0, [2, 3, 1], 0.4),
    (3, 2, [3, 1.32, 1.34], [2, 2, 1.04], [1.43, 3, 1.39], 0.25, [3, 2, 1], 1.0),
]


@pytest.mark.parametrize("small", SMALL)
def test_no_schedule_at_all_is_better(small):
    task = dict(zip(("p", "m", "f", "b", "w", "c", "memory", "kept"), small, strict=True))
    best = best_of_all(task)
    assert bound(**task) <= best + 1e-9
    assert isclose(search(**task).bubble_rate, best, abs_tol=1e-9)


@pytest.mark.parametrize("p,m", [(2, 4), (3, 6), (4, 8), (5, 12)])
def test_the_bound_is_what_the_handmade_schedules_reach_at_equal_durations(p, m):
    assert isclose(simulate(zb_h1(p, m)).bubble_rate, bound(p, m, memory=p))
    assert bound(p, m, memory=2 * p - 1) == 0
    assert search(p, m, memory=2 * p - 1).bubble_rate == 0


def test_one_activation_at_a_time_is_run_one_after_the_other():
    found = search(p=3, m=4, memory=1)
    assert found.peak_live == (1, 1, 1)
    assert isclose(found.bubble_rate, bound(p=3, m=4, memory=1))
    assert found.makespan == 4 * (3 + 3 + 1)  # down, up again, and W before the next


def test_more_memory_is_put_to_use():
    rates = [search(4, 8, 2, 2, 1, memory=memory).bubble_rate for memory in (1, 2, 4, 7)]
    assert rates == sorted(rates, reverse=True) and len(set(rates)) == 4


def test_it_starts_from_the_named_schedules_that_fit(monkeypatch):
    find = "weft.plan.pipeline.search.find"
    monkeypatch.setattr(f"{find}._play_all", lambda *_: {})
    monkeypatch.setattr(f"{find}._move_actions", lambda given, orders, *_: orders)
    task = {"f": 2, "b": 3, "w": 1, "c": 0.5}
    split = search(4, 8, **task, memory=4)
    assert split.plan.rows == zb_h1(4, 8).rows  # zb_h2 is better, and too large
    assert search(4, 8, **task, memory=7).plan.rows == zb_h2(4, 8).rows


def test_progress_is_told_from_beginning_to_end():
    told = []
    search(3, 5, [1, 2, 3], c=1, memory=3, progress=lambda done, of: told.append(done / of))
    assert told == sorted(told) and len(told) > 2
    assert told[0] == 0 and told[-1] == 1


def test_the_numbers_may_be_numpys():
    numpy = pytest.importorskip("numpy", reason="its numbers")
    p, m, two = numpy.int64(3), numpy.int32(5), numpy.float64(2)
    limits = numpy.array([3, 3, 2])
    found = search(p, m, f=two, c=numpy.array(0.5), memory=limits, kept=numpy.float32(0.5))
    assert found == search(3, 5, f=2, c=0.5, memory=[3, 3, 2], kept=0.5)


# --- what cannot be asked -----------------------------------------------------------------------


@pytest.mark.parametrize("ask", [search, bound])
@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"p": 0}, "p is 0, must be a whole number of at least 1"),
        ({"m": 0}, "m is 0, must be a whole number of at least 1"),
        ({"m": 2.5}, "m is 2.5, must be a whole number"),
        ({"f": -1}, "f is -1, must be a finite number of at least 0"),
        ({"b": float("nan")}, "b is nan, must be a finite number"),
        ({"w": [1, 1]}, "w has 2 durations, must have one for each of 3 stages"),
        ({"c": "far"}, "c is 'far', must be a finite number"),
        ({"memory": 0}, "memory is 0, must be a whole number of at least 1"),
        ({"memory": 1.5}, "memory is 1.5, must be a whole number"),
        ({"memory": [3, 0, 3]}, "memory is 0, must be a whole number of at least 1"),
        ({"memory": [3, 3]}, "memory has 2 limits, must have one for each of 3 ranks"),
        ({"kept": 1.5}, "kept is 1.5, must be a share from 0 to 1"),
    ],
)
def test_a_wrong_argument_is_named(ask, wrong, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        ask(**({"p": 3, "m": 4} | wrong))
