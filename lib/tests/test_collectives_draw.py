"""Pictures of collectives: cells, arrows, wires and curves are what the plan and the boxes say."""

import re
from collections import Counter

import pytest
from pictures import SVG, apart, inside, parse, tips, told, words

from weft.draw.collectives.cluster import CARD, GPU, NET, SWITCH, cluster_svg
from weft.draw.collectives.film import PARTIAL, WHOLE, film_svg, step_svg
from weft.draw.collectives.pictograms import SHOWN, SUM, pictograms_svg
from weft.draw.collectives.times import curves_svg, times_svg
from weft.explore import collectives as explore
from weft.plan.collectives import steps as plan
from weft.plan.collectives.boxes import BOXES
from weft.plan.collectives.nccl import nccl_choice
from weft.plan.collectives.price import crossover, seconds, through_switch
from weft.plan.collectives.steps import STEPS
from weft.plan.collectives.verify import begin, goal, play
from weft.plan.hardware import LINKS
from weft.plan.units import binary

CASES = [(name, n) for name in STEPS for n in (1, 2, 3, 5)]


def cells(root):
    """(rank, chunk) -> (whose data, colour) for the cells with something in them, and counts."""
    found = Counter()
    for mark, tip in tips(root):
        match = re.fullmatch(r"rank (\d+), chunk (\d+): the data of ranks? ([\d, ]+)", tip)
        if match:
            whose = tuple(map(int, match[3].split(", ")))
            full = mark.get("fill") == WHOLE.paint()["fill"]
            found[int(match[1]), int(match[2]), whose, full] += 1
    return found


def expected(steps, held):
    most = steps.n if steps.op in ("all_reduce", "reduce_scatter") else 1
    return Counter(
        (rank, chunk, tuple(sorted(bag)), bag.total() == most)
        for rank, copies in enumerate(held)
        for chunk, bag in copies.items()
    )


# --- who holds what -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), CASES)
def test_a_film_has_every_copy_after_every_step(name, n):
    steps = STEPS[name](n)
    root = inside(parse(film_svg(steps)), wide_ones=True)
    states = play(steps)
    total = sum((expected(steps, held) for held in states), Counter())
    assert cells(root) == total
    titles = [text for text in words(root) if re.fullmatch(r"start|step \d+", text)]
    assert titles == ["start", *(f"step {i}" for i in range(1, len(states)))]


@pytest.mark.parametrize(("name", "n"), CASES)
def test_a_step_has_its_messages_and_what_is_held_after_it(name, n):
    steps = STEPS[name](n)
    for at in range(len(steps) + 1):
        root = inside(parse(step_svg(steps, at)), wide_ones=True)
        assert cells(root) == expected(steps, play(steps)[at])
        arrows = Counter()
        for _, tip in tips(root):
            match = re.fullmatch(r"rank (\d+) (adds to|gives) rank (\d+): chunk ([\d, ]+)", tip)
            if match:
                for chunk in match[4].split(", "):
                    arrows[int(match[1]), int(match[3]), int(chunk), match[2] == "adds to"] += 1
        assert arrows == Counter(map(tuple, steps[at - 1] if at else []))


def test_an_arrow_points_at_its_target():
    root = parse(step_svg(plan.tree_all_reduce(5), 1))  # 1 to 0, 3 to 2 in step 1; 4 waits
    circles = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(f"{SVG}circle")]
    arrows = [(mark, tip) for mark, tip in tips(root) if "adds to" in tip]
    assert [tip for _, tip in arrows] == [
        "rank 1 adds to rank 0: chunk 0", "rank 3 adds to rank 2: chunk 0",
    ]  # fmt: skip
    for mark, tip in arrows:
        source, target = map(int, re.findall(r"rank (\d+)", tip))
        numbers = [float(x) for x in re.findall(r"-?[\d.]+", mark.get("d"))]
        for (x, y), rank in ((numbers[:2], source), (numbers[2:4], target)):
            near = min(range(5), key=lambda r: (circles[r][0] - x) ** 2 + (circles[r][1] - y) ** 2)
            assert near == rank


def test_what_is_said_to_those_who_do_not_see():
    text = told(parse(step_svg(plan.ring_reduce_scatter(3), 2)))
    assert "Rank 0 adds its chunk 1 to rank 1's, rank 1 adds its chunk 2" in text
    assert text.endswith("finished chunks by rank: 1, 1, 1.")
    text = told(parse(film_svg(plan.ring_all_gather(3))))
    assert "Step 1: rank 0 gives chunk 0 to rank 1" in text
    assert "finished chunks by rank: 2, 2, 2." in text


def test_colours_are_named_in_the_legend():
    sums = words(parse(film_svg(plan.ring_all_reduce(3))))
    assert {"part of the sum", "the sum of all", "just came"} <= set(sums)
    gathers = words(parse(film_svg(plan.ring_all_gather(3))))
    assert "has it" in gathers and "part of the sum" not in gathers
    assert PARTIAL.hexadecimal != WHOLE.hexadecimal


@pytest.mark.parametrize("at", [-1, 5, True, 1.5])
def test_steps_that_are_none(at):
    with pytest.raises(ValueError, match=r"at is .*, must be a step from 0 to 4"):
        step_svg(plan.ring_all_reduce(3), at)


# --- what a collective does, and what it runs on --------------------------------------------------


def test_pictograms_have_what_each_rank_begins_and_ends_with():
    root = inside(parse(pictograms_svg()))
    found = Counter()
    for mark, tip in tips(root):
        match = re.fullmatch(r"rank (\d), part (\d): (from rank|the sum of ranks) ([\d, ]+)", tip)
        summed = match[3] == "the sum of ranks"
        assert (mark.get("fill") == SUM.paint()["fill"]) == summed
        found[int(match[1]), int(match[2]), match[4]] += 1
    wanted = Counter()
    for make in SHOWN.values():
        steps = STEPS[make](3)
        for held in begin(steps), goal(steps):
            for rank, copies in enumerate(held):
                for chunk, who in copies.items():
                    wanted[rank, chunk % 3, ", ".join(map(str, sorted(who)))] += 1
    assert found == wanted
    assert {"broadcast", "all-gather", "reduce-scatter", "all-reduce", "all-to-all"} <= set(
        words(root)
    )


@pytest.mark.parametrize("name", sorted(BOXES))
def test_a_cluster_has_two_nodes_and_their_rates(name):
    box = BOXES[name]
    root = inside(parse(cluster_svg(box)))
    kinds = Counter(rect.get("fill") for rect in root.iter(f"{SVG}rect"))
    for colour, count in ((SWITCH, 2), (GPU, 8), (CARD, 8), (NET, 6)):
        assert kinds[colour.paint()["fill"]] == count + 1  # and one in the legend
    said = " ".join(words(root))
    assert f"{box.inside.bandwidth / 1e9:.0f} GB/s each way, and they " in said
    assert ("they add" in said) == box.reduces
    assert f"NIC to leaf: {box.outside.bandwidth / 1e9:.0f}" in said
    assert f"{box.switches} NVSwitches" in said
    assert f"Shown: 4 of the {box.gpus} GPUs of a node" in said
    assert "PXN: GPU 0 of one node to the last of the other" in [tip for _, tip in tips(root)]
    heavy = [line for line in root.iter(f"{SVG}line") if line.get("stroke-width") == "3"]
    assert len(heavy) == 2 * (2 + 2 * 4) + 1  # rail, ring at four GPUs, legend


# --- times ----------------------------------------------------------------------------------------


def test_one_rank_has_no_curves():
    with pytest.raises(ValueError, match="n is 1, must be at least 2"):
        times_svg(1, LINKS["ib-ndr"])


def wire(link, kind):
    return through_switch(LINKS[link]) if kind == "in_network" else LINKS[link]


@pytest.mark.parametrize(("n", "link"), [(2, "pcie4"), (7, "nvlink4"), (512, "ib-hdr")])
def test_the_dots_are_at_the_formulas_times(n, link):
    kinds = "ring", "tree", "double_tree", "in_network"
    root = apart(inside(parse(times_svg(n, LINKS[link], 2**22, in_network=True))))
    at = {tip.split(", ")[0]: tip.split(": ")[1] for _, tip in tips(root)}
    for kind, name in zip(kinds, ("ring", "tree", "two trees", "switch adds"), strict=True):
        number, unit = at[name].split()
        scale = {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]
        right = seconds("all_reduce", 2**22, n, wire(link, kind), kind)
        assert float(number) * scale == pytest.approx(right, rel=1e-3)
    dots = [float(circle.get("cy")) for circle in root.iter(f"{SVG}circle")]
    times = [seconds("all_reduce", 2**22, n, wire(link, kind), kind) for kind in kinds]
    assert sorted(range(4), key=lambda i: -dots[i]) == sorted(range(4), key=lambda i: times[i])
    meets = f"meet at {binary(crossover(n, LINKS[link]))}"
    assert (meets in told(root)) == (n > 2)


@pytest.mark.parametrize("nbytes", [1, 2**40])
def test_sizes_beyond_the_picture(nbytes):
    with pytest.raises(ValueError, match="nbytes is"):
        curves_svg({"ring": lambda size: 1e-6 * size}, nbytes, "")


# --- sliders --------------------------------------------------------------------------------------


def summary(html):
    last = html.partition("<p class='weft-summary'>")[2]
    return re.sub(r"<[^>]+>", "", last).replace("\u00a0", " ")


@pytest.mark.parametrize("name", sorted(STEPS))
def test_holding_shows_every_step(name):
    for n in (1, 2, 5):
        for step in (0, 1, 40):
            html = explore.holding(algorithm=name, n=n, step=step)
            inside(parse(re.search(r"<svg.*</svg>", html, re.S)[0]), wide_ones=True)
            assert f"of {len(STEPS[name](n))}." in summary(html)


def test_holding_says_what_is_sent():
    assert "sent 1.5 times the data" in summary(explore.holding(algorithm="ring_all_reduce", n=4))
    assert "sent 0.75 times the data" in summary(explore.holding(algorithm="all_to_all", n=4))
    assert "sent 1 to 2 times" in summary(explore.holding(algorithm="tree_all_reduce", n=4))


def test_crossing_and_rails():
    text = summary(explore.crossing(link="ib-ndr", n=64, size=2**24))
    assert "16 MiB on 64 ranks" in text and "from 7.587 MiB on" in text
    assert "switch" in summary(explore.crossing(link="nvlink4", n=8, size=2**24))
    assert "The ring never loses" in summary(explore.crossing(link="pcie5", n=2, size=2**20))
    text = summary(explore.rails(box="dgx-a100", nodes=4, size=2**30))
    assert "1 GiB on 32 GPUs" in text and "A ring for each NIC is 1." in text
    little = summary(explore.rails(box="dgx-h100", nodes=8, size=2**20))
    assert "The three stages are" in little
    alone = summary(explore.rails(box="nvl72", nodes=1, size=2**20))
    assert "three stages" in alone and "as fast as the other" not in alone
    assert "a switch that adds up 25 µs" in summary(
        explore.crossing(link="nvlink4", n=2, size=2**10)
    )


def test_choices_of_nccls_model():
    text = summary(explore.choices(nodes=8, size=2**24))
    taken = nccl_choice(2**24, 8)
    assert f"16 MiB on 64 GPUs: the model takes {taken.algorithm}" in text
    assert f"protocol {taken.protocol}, {1e6 * taken.seconds:.1f} µs" in text
    assert "NVLSTree with protocol Simple" in summary(explore.choices(nodes=8, size=2**30))
    assert "takes NVLS with" in summary(explore.choices(nodes=1, size=2**30))
    html = explore.choices(nodes=1, size=2**30, switch="no")
    assert "takes Ring with protocol Simple" in summary(html) and "switches that add" not in html


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: explore.choices(switch="perhaps"), "switch is"),
        (lambda: explore.choices(nodes=0), "nodes is 0"),
        (lambda: explore.holding(algorithm="gossip"), "algorithm is"),
        (lambda: explore.holding(n=0), "n is 0"),
        (lambda: explore.holding(step=-1), "at is -1"),
        (lambda: explore.crossing(link="string"), "link is"),
        (lambda: explore.crossing(size=0), "size is 0"),
        (lambda: explore.crossing(size=2**60), "nbytes is"),
        (lambda: explore.rails(box="shoe"), "box is"),
        (lambda: explore.rails(nodes=0), "nodes is 0"),
    ],
)
def test_sliders_say_why_there_is_nothing(call, words):
    html = call()
    assert "There is no picture" in html and words in html
