"""Adam that streams its state: torch's weights, within a budget, and whole whatever ends it."""

import copy
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from weft.run.offload.adam import PiecePart, StreamingAdam, dealt
from weft.run.offload.memory import Memory
from weft.run.offload.store import Store

SHAPES = ((37, 5), (129,), (), (3, 64, 7), (1,), (0, 4), (701,))


def model(dtype=torch.float32, seed=0):
    """Parameters of odd and of no sizes."""
    dice = torch.Generator().manual_seed(seed)
    made = (torch.randn(shape, generator=dice, dtype=torch.float64) for shape in SHAPES)
    return [nn.Parameter(weight.to(dtype)) for weight in made]


def give_gradients(*models, seed=0, none=()):
    """The same gradients to each model."""
    for weights in models:
        dice = torch.Generator().manual_seed(seed)
        for i, weight in enumerate(weights):
            grad = torch.randn(weight.shape, generator=dice, dtype=torch.float64).to(weight.dtype)
            weight.grad = None if i in none else grad


def store_of(kind, path):
    return Memory() if kind == "memory" else Store(path, budget=2**20)


@pytest.mark.parametrize("kind", ["memory", "files"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("theirs", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"lr": 0.1, "betas": (0.5, 0.7), "eps": 1e-3, "weight_decay": 0.1}),
        (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.3}),
    ],
)
def test_weights_are_torchs_to_the_bit(tmp_path, kind, dtype, theirs, options):
    mine, other = model(dtype), model(dtype)
    decoupled = theirs is torch.optim.AdamW
    store = store_of(kind, tmp_path)
    optimizer = StreamingAdam(mine, store, **options, decoupled_weight_decay=decoupled, piece=128)
    fused = theirs(other, **options, fused=True)
    for step in range(4):
        give_gradients(mine, other, seed=step, none=(0,) if step == 2 else ())
        optimizer.step()
        fused.step()
        assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True)), step
    if kind == "files":
        assert len(store) == len(optimizer._pieces) > 10
        assert store.peak <= 2**20
        store.close()


def test_half_weights_are_their_rounded_masters(tmp_path):
    mine, masters = model(torch.bfloat16), [w.detach().float() for w in model(torch.bfloat16)]
    masters = [nn.Parameter(weight) for weight in masters]
    with Store(tmp_path) as store:
        optimizer = StreamingAdam(mine, store, lr=1e-4)
        fused = torch.optim.Adam(masters, lr=1e-4, fused=True)
        for step in range(3):
            give_gradients(mine, seed=step)
            for weight, master in zip(mine, masters, strict=True):
                master.grad = weight.grad.float()
            optimizer.step()
            fused.step()
    assert all(torch.equal(a, b.bfloat16()) for a, b in zip(mine, masters, strict=True))
    assert any(not torch.equal(a.float(), b) for a, b in zip(mine, masters, strict=True))


def test_groups_schedulers_and_closures_are_torchs(tmp_path):
    mine, other = model(), model()
    with Store(tmp_path) as store:
        pair = []
        for weights, make in (
            (mine, lambda groups: StreamingAdam(groups, store, piece=256)),
            (other, lambda groups: torch.optim.Adam(groups, fused=True)),
        ):
            pair.append(make([{"params": weights[:2], "lr": 0.1}, {"params": weights[2:]}]))
        schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in pair]
        for step in range(3):
            give_gradients(mine, other, seed=step)
            assert [o.step(lambda: 7) for o in pair] == [7, 7]
            for scheduler in schedulers:
                scheduler.step()
        pair[0].zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
    assert all(weight.grad is None for weight in mine)


def test_a_new_program_goes_on_where_the_last_step_ended(tmp_path):
    once, twice = model(), model()
    optimizer = torch.optim.Adam(once, fused=True)
    for step in range(4):
        give_gradients(once, seed=step)
        optimizer.step()
    for half in ((0, 1), (2, 3)):
        with Store(tmp_path) as store:
            twice = model(seed=half[0])  # whatever the weights are, they become those of the state
            optimizer = StreamingAdam(twice, store)
            for step in half:
                give_gradients(twice, seed=step)
                optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(once, twice, strict=True))
    with Store(tmp_path) as store:
        for wrong in (model()[:-1], model(torch.float64)):
            with pytest.raises(ValueError, match="holds a state 'adam' for other parameters"):
                StreamingAdam(wrong, store)
        StreamingAdam(model()[:3], store, name="another")


def test_a_failed_step_is_taken_back(tmp_path, monkeypatch):
    mine, other = model(), model()
    with Store(tmp_path) as store:
        optimizer = StreamingAdam(mine, store, piece=128)
        fused = torch.optim.Adam(other, fused=True)
        give_gradients(mine, other)
        optimizer.step(), fused.step()
        write, calls = os.pwritev, []

        def fails(*arguments):
            calls.append(arguments)
            if len(calls) > 4:
                raise OSError(28, "")
            return write(*arguments)

        give_gradients(mine, other, seed=1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", fails)
            with pytest.raises(OSError, match="No space left"):
                optimizer.step()
        with pytest.raises(RuntimeError, match=r"did not end: restore\(\) goes back"):
            optimizer.step()
        optimizer.restore()
        assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
        optimizer.step(), fused.step()
    assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))


def test_plain_memory_has_no_step_to_go_back_to(monkeypatch):
    store, mine = Memory(), model()
    optimizer = StreamingAdam(mine, store, piece=128)
    give_gradients(mine)
    optimizer.step()
    optimizer.restore()  # the present one is whole
    with monkeypatch.context() as patch, pytest.raises(KeyError):
        patch.setattr(store, "flush", lambda: {}["interrupted"])
        optimizer.step()
    with pytest.raises(RuntimeError, match="plain memory has no earlier state"):
        optimizer.restore()


def test_memory_is_three_pieces_of_many(tmp_path):
    weight = nn.Parameter(torch.zeros(2**18))
    weight.grad = torch.ones(2**18)
    piece = 2**14
    budget = 3 * 12 * piece  # one is read, one computed, one written
    with Store(tmp_path, budget=budget) as store:
        optimizer = StreamingAdam([weight], store, piece=piece)
        before = store.read_bytes, store.written_bytes
        optimizer.step()
        assert store.read_bytes - before[0] == store.written_bytes - before[1] == 12 * 2**18
        assert 2 * 12 * piece <= store.peak <= budget < 12 * 2**18 / 5
    assert (weight == weight[0]).all() and weight[0] < 0


def test_every_element_is_dealt_once():
    with pytest.raises(ValueError, match="piece is 63 elements, must be at least 64"):
        dealt([100], 63)
    for numels in ([1], [0, 5], [64, 64], [1000, 3, 70, 1], [200, 100]):
        for piece in (64, 128, 192, 1024):
            pieces = dealt(numels, piece)
            for i, numel in enumerate(numels):
                own = [part for parts in pieces for part in parts if part.parameter == i]
                assert [e for part in own for e in part.elements] == list(range(numel))
                assert all(part.elements.start % 64 == 0 for part in own)
            for parts in pieces:
                ends = [0, *(part.at + len(part.elements) for part in parts)]
                assert [part.at for part in parts] == ends[:-1] and ends[-1] <= piece
    assert dealt([3], 64) == [[PiecePart(0, range(3), 0)]]


# --- kill -9 --------------------------------------------------------------------------------------

KILLED = """
    import os, random, shutil, sys, tempfile, time, torch
    from weft.run.offload import Store
    from weft.run.offload.adam import StreamingAdam

    torch.set_num_threads(1)  # a fork takes none of them along, and would wait for them

    def weights():
        return [torch.nn.Parameter(torch.arange(float(n))) for n in (5000, 301, 9_000)]

    def gradients(made, step):
        for weight in made:
            weight.grad = torch.sin(weight.detach() + step)

    folder, seed, trials = tempfile.mkdtemp(dir=sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dice, twin, at, moments = random.Random(seed), weights(), 0, set()
    exact = torch.optim.Adam(twin, fused=True)
    for trial in range(trials):
        told, tells = os.pipe()
        child = os.fork()
        if not child:
            optimizer = StreamingAdam(weights(), Store(folder, budget=2**19), piece=4096)
            made = optimizer.parameters
            for step in range(optimizer._steps[0], 10**6):
                gradients(made, step)
                optimizer.step()
                os.write(tells, b"+")
        before = dice.randrange(4)  # steps that it may end, then anywhere in the next ones
        ended = at + sum(len(os.read(told, 1)) for _ in range(before))
        time.sleep(dice.uniform(0, 0.06))
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(tells)
        ended += len(os.read(told, 10**6))
        os.close(told)
        moments.add(len(os.listdir(folder)))
        made = weights()
        with Store(folder, budget=2**19) as store:
            optimizer = StreamingAdam(made, store, piece=4096)
            steps = set(optimizer._steps)
            assert len(steps) == 1, steps
            step = steps.pop()
            assert ended <= step <= ended + 1, "a step that had ended is lost"
            assert len([f for f in os.listdir(folder) if f.endswith(".bin")]) == len(store)
            while at < step:
                gradients(twin, at)
                exact.step()
                at += 1
            assert all(torch.equal(a, b) for a, b in zip(made, twin)), (trial, step)
    print(at, len(moments))
"""


def test_a_kill_at_any_moment_leaves_the_last_complete_step(tmp_path):
    program = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), "1", "12"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    steps, moments = map(int, done.stdout.split())
    assert steps > 2 and moments > 2  # killed while there were more and fewer files


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lr": -1}, "lr is -1, must be at least 0 and finite"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\] is 1.0, must be at least 0 and below 1"),
        ({"eps": float("nan")}, "eps is nan"),
        ({"weight_decay": float("inf")}, "weight_decay is inf"),
        ({"piece": 0}, "piece is 0, must be a whole number"),
        ({"piece": 100}, "piece is 100 elements, must be a multiple of 64"),
        ({"piece": 2**20}, "piece is 1048576 elements, must be at most 29127 for three"),
        ({"name": "a/b"}, "name is 'a/b"),
    ],
)
def test_settings_that_are_none_are_refused(tmp_path, options, said):
    with Store(tmp_path, budget=2**20) as store, pytest.raises(ValueError, match=said):
        StreamingAdam(model(), store, **options)


def test_parameters_that_cannot_be_are_refused(tmp_path):
    whole = nn.Parameter(torch.ones(3))
    with Store(tmp_path, budget=2**20) as store:
        for params, said in (
            ([], "params is empty, must have one"),
            (nn.ReLU().parameters(), "params is empty"),
            ([whole, nn.Parameter(torch.ones(3, device="meta"))], r"params\[1\] is .* on meta"),
            (
                [nn.Parameter(torch.ones(3, 2).t())],
                r"params\[0\] has strides \(1, 2\), must be con",
            ),
            ([torch.ones(3, dtype=torch.int64)], r"params\[0\] is of torch.int64"),
        ):
            with pytest.raises(ValueError, match=said):
                StreamingAdam(params, store)
        embedding = nn.Embedding(5, 3, sparse=True)
        optimizer = StreamingAdam(embedding.parameters(), store)
        embedding(torch.tensor([1])).sum().backward()
        before = copy.deepcopy(embedding.weight.detach())
        with pytest.raises(ValueError, match=r"params\[0\] has a torch.sparse_coo gradient"):
            optimizer.step()
        assert torch.equal(before, embedding.weight)
        optimizer.zero_grad()
        optimizer.step()  # nothing has changed, so it may go on
        with pytest.raises(ValueError, match="must be given from the start"):
            optimizer.add_param_group({"params": [whole]})
