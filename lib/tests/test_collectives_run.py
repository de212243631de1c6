"""Collectives of sends and receives: torch's results, and the bytes that the plan says.

What the wire says of them, and of gloo's, is in test_collectives_bench.
"""

import pytest
import torch
import torch.distributed as dist

from weft.meter import live, traffic
from weft.plan.collectives import steps as plan
from weft.plan.collectives.price import chunks, sent
from weft.run.collectives import execute as ours
from weft.run.world import launch

REDUCE = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
}
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64,
    torch.uint8, torch.complex64, torch.bool,
)  # fmt: skip


def small(shape, rank, dtype=torch.float32):
    """Small whole numbers, different on each rank: sums are exact in any order."""
    numbers = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(7 + rank))
    return numbers.to(dtype)


def said(call, *arguments, **options):
    """What a ValueError says."""
    try:
        call(*arguments, **options)
    except ValueError as error:
        return str(error)
    return "nothing"


# --- results --------------------------------------------------------------------------------------


def against_torch(world):
    """Every operation, dtype and algorithm on one world: what differs from torch's."""
    n, rank, group, wrong = world.size, world.rank, world.group(), []

    def compare(mine, theirs, *case):
        if mine.dtype != theirs.dtype or not torch.equal(mine, theirs):
            wrong.append((case, mine.tolist(), theirs.tolist()))

    for dtype in DTYPES:
        for op in REDUCE if dtype.is_floating_point else ("sum",):
            for shape in ((7, 3), (1,), (2, 0)):
                theirs = small(shape, rank, dtype)
                dist.all_reduce(theirs, REDUCE[op], group=group)
                for algorithm in ours.ALGORITHMS:
                    mine = small(shape, rank, dtype)
                    assert ours.all_reduce(mine, world, op, algorithm) is mine
                    compare(mine, theirs, "all_reduce", op, algorithm, dtype, shape)
        whole = small((5, 2), rank, dtype)  # in 3 parts: 2, 2 and 1 rows
        total = whole.clone()
        dist.all_reduce(total, group=group)
        compare(ours.reduce_scatter(whole, world), total.tensor_split(n)[rank], "scatter", dtype)
        compare(whole, small((5, 2), rank, dtype), "left alone", dtype)

        part = small((2, 3), rank, dtype)
        gathered = [torch.empty_like(part) for _ in range(n)]
        dist.all_gather(gathered, part, group=group)
        compare(ours.all_gather(part, world), torch.cat(gathered), "gather", dtype)

        told = small((4,), rank, dtype)
        theirs = told.clone()
        dist.broadcast(theirs, group=group, group_src=n - 1)
        for parts in (1, 3, 8):
            mine = told.clone()
            compare(ours.broadcast(mine, world, n - 1, parts), theirs, "broadcast", dtype, parts)

        even = small((2 * n, 3), rank, dtype)
        theirs = torch.empty_like(even)
        dist.all_to_all_single(theirs, even, group=group)
        compare(ours.all_to_all(even, world), theirs, "all_to_all", dtype)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = small((9,), rank, dtype)
        theirs = x.clone()
        dist.all_reduce(theirs, dist.ReduceOp.SUM, group=group)
        compare(ours.all_reduce(x.clone(), world, "mean"), theirs / n, "mean", dtype)
        compare(ours.reduce_scatter(x, world, "mean"), theirs.div(n).tensor_split(n)[rank], dtype)
    return wrong


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_all_is_as_torch_has_it(n):
    assert launch(against_torch, n) == [[]] * n


@pytest.mark.gpu
def test_on_gpus_over_nccl():
    def work(world):
        rank, n, device = world.rank, world.size, world.device
        x = small((7, 3), rank).to(device)
        right = sum(small((7, 3), r) for r in range(n)).to(device)
        part = ours.reduce_scatter(x, world)
        rows = [len(chunk) for chunk in x.tensor_split(n)]
        assert torch.equal(part, right.tensor_split(n)[rank])
        assert torch.equal(ours.all_gather(part, world, rows), right)
        for algorithm in ours.ALGORITHMS:
            assert torch.equal(ours.all_reduce(x.clone(), world, algorithm=algorithm), right)
        assert torch.equal(ours.broadcast(x.clone(), world).cpu(), small((7, 3), 0))
        even = small((2 * n, 3), rank).to(device)
        theirs = torch.empty_like(even)
        dist.all_to_all_single(theirs, even, group=world.group())
        assert torch.equal(ours.all_to_all(even, world, check=True), theirs)
        return x.device.type

    assert set(launch(work, torch.cuda.device_count(), backend="nccl")) == {"cuda"}


def test_uneven_rows():
    def work(world):
        rank, n = world.rank, world.size
        rows = [3, 0, 2]
        whole = ours.all_gather(small((rows[rank], 2), rank), world, rows)
        assert torch.equal(whole, torch.cat([small((rows[r], 2), r) for r in range(n)]))
        to = [[1, 2, 0], [0, 0, 4], [3, 1, 1]]  # from rank, to rank
        mine = small((sum(to[rank]), 2), rank)
        got = ours.all_to_all(mine, world, to[rank], [to[s][rank] for s in range(n)])
        sent_here = [small((sum(to[s]), 2), s).split(to[s])[rank] for s in range(n)]
        assert torch.equal(got, torch.cat(sent_here))
        return True

    assert launch(work, 3) == [True] * 3


def test_hierarchies_on_real_ranks():
    def work(world):
        right, found = sum(small((13,), r) for r in range(world.size)), []
        for nodes, local in ((2, 3), (3, 2)):
            mine, steps = small((13,), world.rank), plan.hierarchical_all_reduce(nodes, local)
            with traffic() as meter:
                ours.all_reduce(mine, world, algorithm=steps)
            assert torch.equal(mine, right)
            found.append(meter.bytes["send"])
        return found

    rows = launch(work, 6)
    for i, (nodes, local) in enumerate(((2, 3), (3, 2))):
        expected = sent(plan.hierarchical_all_reduce(nodes, local), chunks(13, 6))
        assert [row[i] for row in rows] == [4 * count for count in expected]


def test_layouts_gradients_and_other_groups():
    def work(world):
        rank, n = world.rank, world.size
        right = sum(small((4, 6), r) for r in range(n))
        wide = small((6, 4), rank)  # its transpose is not contiguous
        wide.copy_(small((4, 6), rank).T)
        ours.all_reduce(wide.T, world)
        assert torch.equal(wide, right.T)
        strided = torch.zeros(4, 12)[:, ::2].copy_(small((4, 6), rank))
        assert torch.equal(ours.broadcast(strided, world, 2), small((4, 6), 2))
        strided.copy_(small((4, 6), rank))
        assert torch.equal(ours.all_reduce(strided, world), right)
        assert torch.equal(ours.reduce_scatter(small((4, 6), rank).T, world, "sum"),
                           right.T.tensor_split(n)[rank])  # fmt: skip
        weight = torch.nn.Parameter(small((5,), rank))
        ours.all_reduce(weight, world)
        assert weight.requires_grad and weight.grad_fn is None
        assert torch.equal(weight, sum(small((5,), r) for r in range(n)))
        grid = world.grid(a=2, b=2)
        x = small((3,), rank)
        ours.all_reduce(x, grid.axis("b"))
        mate = rank ^ 1
        assert torch.equal(x, small((3,), rank) + small((3,), mate))
        y = small((3,), rank)
        ours.all_reduce(y, grid.group("a"), algorithm="tree")  # a torch group will do
        assert torch.equal(y, small((3,), rank) + small((3,), rank ^ 2))
        return True

    assert launch(work, 4) == [True] * 4


def test_floats_are_as_near_as_their_dtype_allows():
    def work(world):
        n = world.size
        parts = [torch.randn(1000, generator=torch.Generator().manual_seed(r)) for r in range(n)]
        right = sum(part.double() for part in parts)
        mine = parts[world.rank]
        for dtype, within in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1)):
            got = ours.all_reduce(mine.to(dtype, copy=True), world)
            assert (got.double() - right).abs().max() < within, dtype
        return ours.all_reduce(mine.clone(), world)

    rows = launch(work, 4)
    assert all(torch.equal(row, rows[0]) for row in rows)  # all ranks have the same bits


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_bytes_are_what_the_plan_says(n):
    def work(world):
        sent_bytes = {}
        calls = {
            "ring": lambda: ours.all_reduce(torch.ones(11, dtype=torch.float64), world),
            "tree": lambda: ours.all_reduce(torch.ones(11), world, algorithm="tree"),
            "scatter": lambda: ours.reduce_scatter(torch.ones(11, 3), world),
            "gather": lambda: ours.all_gather(torch.ones(4, dtype=torch.bfloat16), world),
            "all_to_all": lambda: ours.all_to_all(torch.ones(3 * world.size), world),
            "broadcast": lambda: ours.broadcast(torch.ones(7), world, 0, 3),
        }
        for name, call in calls.items():
            with traffic() as meter:
                call()
            sent_bytes[name] = meter.bytes["send"]
            assert set(meter.bytes) <= {"send", "recv"}
        return sent_bytes

    rows = launch(work, n)
    expected = {
        "ring": [8 * x for x in sent(plan.ring_all_reduce(n), chunks(11, n))],
        "tree": [4 * x for x in sent(plan.tree_all_reduce(n), [11])],
        "scatter": [12 * x for x in sent(plan.ring_reduce_scatter(n), chunks(11, n))],
        "gather": [8 * (n - 1)] * n,
        "all_to_all": [12 * (n - 1)] * n,
        "broadcast": [4 * x for x in sent(plan.broadcast(n, 0, 3), chunks(7, 3))],
    }
    assert rows == [{name: row[r] for name, row in expected.items()} for r in range(n)]


def test_a_ring_sends_what_the_meter_counts_for_torchs_own():
    def work(world):
        with traffic() as theirs:
            dist.all_reduce(torch.ones(17), group=world.group())
        with traffic() as mine:
            ours.all_reduce(torch.ones(17), world)
        return mine.bytes["send"], theirs.bytes["all_reduce"]

    rows = launch(work, 3)
    assert all(mine == theirs for mine, theirs in rows)


def test_an_all_reduce_keeps_one_piece_more_alive():
    def work(world):
        x = torch.ones(6000)
        with live() as meter:
            ours.all_reduce(x, world)
        with live() as scatter:
            ours.reduce_scatter(x, world)
        return meter.peak, scatter.peak

    for reduced, scattered in launch(work, 3):
        assert reduced <= 4 * 2000 + 64
        assert scattered <= 2 * 4 * 2000 + 64  # the sum so far, and the next one coming


def test_chunks_that_travel_in_pieces_are_summed_and_a_ring_takes_two_pieces():
    def work(world):
        ours.PIECE = 48  # bytes: 6 elements, of chunks of 33 or 34
        x = torch.arange(101, dtype=torch.float64) + world.rank
        reduced = [ours.all_reduce(x.clone(), world, algorithm=each) for each in ours.ALGORITHMS]
        mine = x.clone()
        held = dict(enumerate(mine.split(chunks(len(mine), world.size))))
        with live() as meter:
            ours.run(ours.ALGORITHMS["ring"](world.size), held, world)
        return [*reduced, mine], ours.reduce_scatter(x, world), meter.peak

    whole = 3 * torch.arange(101, dtype=torch.float64) + 3
    found = launch(work, 3)
    assert torch.equal(torch.cat([scattered for _, scattered, _ in found]), whole)
    for reduced, _, peak in found:
        assert all(torch.equal(each, whole) for each in reduced)
        assert peak <= 2 * 48


# --- what does not fit ----------------------------------------------------------------------------


def test_wrong_arguments_are_named_before_anything_is_sent():
    def work(world):
        n, x = world.size, torch.ones(4, 2)
        inside = dist.new_group([0, 1])
        theirs = said(ours.all_reduce, x, inside)
        with traffic() as meter:
            told = [
                said(ours.all_reduce, x, None),
                said(ours.all_reduce, [1.0], world),
                said(ours.all_reduce, x.to_sparse(), world),
                said(ours.all_reduce, x.to("meta"), world),
                said(ours.all_reduce, x, world, "xor"),
                said(ours.all_reduce, x.int(), world, "mean"),
                said(ours.all_reduce, x.to(torch.complex64), world, "max"),
                said(ours.all_reduce, x, world, algorithm="gossip"),
                said(ours.all_reduce, x, world, algorithm=plan.ring_all_gather(n)),
                said(ours.all_reduce, x, world, algorithm=plan.ring_all_reduce(n + 1)),
                said(ours.reduce_scatter, torch.tensor(1.0), world),
                said(ours.all_gather, x, world, [4, 4]),
                said(ours.all_gather, x, world, [5, 5, 5]),
                said(ours.all_gather, x, world, [4, -1, 4]),
                said(ours.all_to_all, x, world),
                said(ours.all_to_all, x, world, [1, 1, 1], [1, 1, 1]),
                said(ours.all_to_all, x, world, [2, 1, 1], [0, 0, 0]),
                said(ours.broadcast, x, world, n),
                said(ours.broadcast, x, world, True),
                said(ours.broadcast, x, world, 0, 0),
            ]
            assert not meter.calls
        return theirs, told

    words = [
        "world is a NoneType, must be a World",
        "tensor is a list, must be a tensor",
        "tensor is torch.sparse_coo",
        "on meta, must be dense",
        "op is 'xor', must be one of sum",
        "op is 'mean', must be another for tensor of dtype torch.int32",
        "tensor has dtype torch.complex64, must be one that has max",
        "algorithm is 'gossip', must be one of ring, tree, double_tree",
        "algorithm is for all_gather on 3 ranks, must be for all_reduce on 3",
        "algorithm is for all_reduce on 4 ranks, must be for all_reduce on 3",
        "tensor has no dims, must have rows",
        "rows is [4, 4], must be 3 counts",
        "rows says rank",
        "rows is [4, -1, 4]",
        "tensor has 4 rows, must have a multiple of 3",
        "send adds up to 3 rows, must be the 4 of tensor",
        "receive says rank",
        "root is 3, must be a rank from 0 to 2",
        "root is True",
        "parts is 0, must be a whole number",
    ]
    for rank, (theirs, told) in enumerate(launch(work, 3)):
        assert theirs == "nothing" if rank < 2 else "group without this rank" in theirs
        for got, expected in zip(told, words, strict=True):
            assert expected in got


def test_ranks_that_disagree_hear_of_it():
    def work(world):
        rank, x = world.rank, torch.ones(4 + (world.rank == 1))
        odd = torch.ones(4, dtype=torch.float64 if rank == 2 else torch.float32)
        told = [
            said(ours.all_reduce, x, world, check=True),
            said(ours.all_reduce, odd, world, check=True),
            said(ours.all_reduce, torch.ones(3), world, "max" if rank else "sum", check=True),
            said(ours.reduce_scatter, odd, world, check=True),
            said(ours.broadcast, torch.ones(3), world, rank % 2, check=True),
            said(ours.all_gather, torch.ones(3, 1 + rank), world, check=True),
            said(ours.all_to_all, torch.ones(3), world, [1, 1, 1], [rank, 1, 1][::1], check=True)
            if rank == 1
            else said(ours.all_to_all, torch.ones(3), world, check=True),
        ]
        fine = ours.all_reduce(torch.ones(3), world, check=True)
        assert fine.tolist() == [3.0] * 3
        return told

    for told in launch(work, 3):
        for got in told[:-1]:
            assert "does not fit that of the others, must be the same" in got
        assert "dtype" in told[1] and "shape" in told[0]
