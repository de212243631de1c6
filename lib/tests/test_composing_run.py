"""Layouts on real processes: one process's losses, norms and weights, whatever the axes."""

import re
import shutil
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_

from weft.meter import traffic
from weft.nn.experts import ExpertsConfig
from weft.nn.transformer import Config, loss, stages
from weft.plan.composing import Layout, groups
from weft.plan.shape import ModelShape
from weft.plan.tensor import sent, sent_ends, sent_norms
from weft.plan.zero import sent as zero_sent
from weft.run.composing import Trainer
from weft.run.composing.axes import lay_out
from weft.run.composing.stages import schedule
from weft.run.pipeline.defer import WeightGradientStore, weight_gradients
from weft.run.tensor import parallelize
from weft.run.world import launch
from weft.run.zero import Zero
from weft.run.zero.checkpoint import save as save_zero

SMALL = Config(layers=5, width=15, heads=5, vocab=23, seq=12, hidden=17)
SWITCH = ExpertsConfig(**vars(SMALL), experts=5, k=2)
BATCH = 12
OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.3, momentum=0.9),
    "adam": partial(torch.optim.AdamW, lr=1e-2),
}
TOLERANCE = 1e-10


def batches(T, steps=2):
    """The same batches everywhere."""
    dice = torch.Generator().manual_seed(0)
    return [torch.randint(23, (2, BATCH, T), generator=dice).unbind() for _ in range(steps)]


@cache
def alone(config, optimizer, max_norm, T, steps=2):
    """Losses, norms and the last weights of one process without any of our runtimes."""
    torch.manual_seed(3)
    model = stages(config, 1)[0].double()
    stepper, losses, norms = OPTIMIZERS[optimizer](model.parameters()), [], []
    for tokens, targets in batches(T, steps):
        mean = loss(model(tokens), targets)
        stepper.zero_grad()
        mean.backward()
        if max_norm:
            norms.append(clip_grad_norm_(model.parameters(), max_norm).item())
        stepper.step()
        losses.append(mean.item())
    return losses, norms, model.state_dict()


def trained(world, layout, whole, optimizer="sgd", max_norm=None, T=8, config=SMALL):
    """How far off is what a layout gives, of losses, norms and weights, from the whole's."""
    wanted, norms, weights = whole
    how = OPTIMIZERS[optimizer], world, 3, torch.float64, max_norm
    trainer = Trainer(config, layout, *how)
    worst = []
    for i, batch in enumerate(batches(T)):
        worst.append(abs(trainer.step(batch).item() - wanted[i]))
        if max_norm:
            worst.append(abs(trainer.norm - norms[i]))
    found = trainer.state_dict()
    assert list(found) == list(weights)
    worst += [(found[name] - x).abs().max().item() for name, x in weights.items()]
    return max(worst)


def all_trained(world, cases):
    """Each case on as many ranks as it takes, several times at once where there are more."""
    found = []
    for layout, how, whole in cases:
        copies = world.size // layout.devices
        mine = world.grid(copy=copies, rank=layout.devices).axis("rank")
        found.append(trained(mine, layout, whole, **how))
    return found


def with_wholes(cases):
    """Each case with what one process gives."""
    defaults = {"config": SMALL, "optimizer": "sgd", "max_norm": None, "T": 8}
    return [(layout, how, alone(**defaults | how)) for layout, how in cases]


def all_done(world, jobs):
    """Jobs one after the other: a launch costs seconds."""
    return {name: job(world, *given) for name, (job, *given) in jobs.items()}


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """What all jobs on eight ranks found, by rank, and the folder of their checkpoints."""
    folder = tmp_path_factory.mktemp("relays")
    wholes = [alone(config, "adam", None, 8, len(layouts)) for config, layouts in RELAYS]
    jobs = {name: (all_trained, with_wholes(cases)) for name, cases in ON_8.items()}
    jobs |= {"bytes": (count_bytes,), "relays": (relayed, str(folder), wholes), "axes": (laid,)}
    return launch(all_done, 8, jobs, backend="gloo", timeout=300), folder


def holds(cases, ranks):
    """Whether all cases have come out right on all ranks."""
    for found in ranks:
        for (layout, how), wrong in zip(cases, found, strict=True):
            assert wrong < TOLERANCE, (str(layout), how)


EXPERTS, CLIPPED = {"config": SWITCH}, {"max_norm": 0.5}
ON_8 = {
    "p t d": [
        (Layout(p=2, t=2, d=2, schedule="zb_h1", zero=1, microbatch=3), CLIPPED),
        (Layout(p=2, t=2, d=2, schedule="zb_v", zero=2, microbatch=2), {"optimizer": "adam"}),
        (Layout(p=2, t=2, d=2, v=2, zero=3, microbatch=3), CLIPPED),
        (Layout(p=2, d=2, schedule="dualpipe_v", zero=3), {"max_norm": 0.5, "T": 5}),
        (Layout(p=4, d=2, schedule="zb_h2", microbatch=3), {"max_norm": 0.1, "T": 5}),
        (Layout(t=4, d=2, zero=1, microbatch=3), {"optimizer": "adam", "max_norm": 0.5}),
        (Layout(p=2, d=2, schedule="gpipe", microbatch=3, zero=1), CLIPPED),
        (Layout(microbatch=12), CLIPPED),
    ],
    "tokens": [
        (Layout(p=2, t=2, d=2, schedule="zb_h1", zero=1, sequence_parallel=True, microbatch=3),
         CLIPPED),
        (Layout(t=4, d=2, zero=3, sequence_parallel=True, microbatch=6), {}),
        (Layout(p=2, t=2, d=2, schedule="zb_v", zero=3, recompute="full", microbatch=3), {}),
        (Layout(p=2, t=2, v=2, sequence_parallel=True, recompute="selective", microbatch=6), {}),
        (Layout(p=2, d=2, c=2, schedule="zb_h1", zero=1, microbatch=3), {"max_norm": 0.5, "T": 7}),
        (Layout(p=2, t=2, c=2, sequence_parallel=True, recompute="full", zero=2, microbatch=6), {}),
        (Layout(c=4, d=2, zero=3, recompute="selective", microbatch=6), {"T": 11}),
    ],
    "experts": [
        (Layout(p=2, d=4, e=2, schedule="zb_h1", zero=1, microbatch=3), EXPERTS | CLIPPED),
        (Layout(d=4, c=2, e=4, zero=3, microbatch=3), EXPERTS | CLIPPED),
        (Layout(p=2, t=2, d=2, e=2, zero=2, microbatch=3, sequence_parallel=True), EXPERTS),
        (Layout(t=2, d=2, microbatch=6, recompute="full"), EXPERTS | CLIPPED),
        (Layout(t=2, d=2, c=2, e=4, sequence_parallel=True, microbatch=6), EXPERTS),
    ],
}  # fmt: skip
ON_6 = [
    (Layout(p=2, t=3, schedule="zb_h2", microbatch=4), {"optimizer": "adam", "max_norm": 0.1}),
    (Layout(t=2, d=3, zero=3, microbatch=2), {"max_norm": 0.1}),
    (Layout(p=3, d=2, schedule="zb_h1", zero=2, microbatch=2), CLIPPED),
    (Layout(p=3, t=2, zero=3, microbatch=4), {"T": 5}),
]


@pytest.mark.parametrize("name", ON_8)
def test_eight_ranks_give_what_one_process_gives(name, eight):
    holds(ON_8[name], [found[name] for found in eight[0]])


SPREAD = Layout(p=2, d=2, c=2, e=2), Layout(t=2, d=2, c=2, e=4)


def laid(world):
    """The ranks of each of this rank's axes."""
    found = []
    for layout in SPREAD:
        made = lay_out(layout, world)._asdict()
        found.append({k: dist.get_process_group_ranks(axis.group()) for k, axis in made.items()})
    return found


def test_ranks_lie_where_the_plan_puts_them(eight):
    names = {"data": "dc", "copies": "dc/e"}
    for rank, found in enumerate(eight[0]):
        for layout, axes in zip(SPREAD, found["axes"], strict=True):
            for name, ranks in axes.items():
                assert tuple(ranks) in groups(layout, names.get(name, name)) and rank in ranks


def test_six_ranks_give_what_one_process_gives():
    holds(ON_6, launch(all_trained, 6, with_wholes(ON_6), backend="gloo"))


def rounded(world, folder):
    """Losses in bfloat16 under several layouts, and their first in fp32; after a checkpoint too."""
    found = []
    for layout in (
        Layout(p=2, t=2, zero=1, schedule="zb_h1", sequence_parallel=True, microbatch=3),
        Layout(c=2, d=2, zero=3, microbatch=6),
        Layout(d=4, e=4, zero=2, microbatch=3),
    ):
        config = SWITCH if layout.e > 1 else SMALL
        how = config, layout, OPTIMIZERS["adam"], world, 3
        trainer = Trainer(*how, torch.bfloat16, max_norm=1.0)
        wide = Trainer(*how)
        batch = batches(8)[0]
        losses = [trainer.step(batch).item() for _ in range(3)]
        trainer.save(f"{folder}/rounded{len(found)}")
        again = Trainer(*how, torch.bfloat16, max_norm=1.0)
        again.load(f"{folder}/rounded{len(found)}")
        after = trainer.step(batch).item(), again.step(batch).item()
        found.append((losses, wide.step(batch).item(), after))
    return found


def test_in_bfloat16_masters_are_kept_and_losses_fall(four):
    for losses, wide, (after, again) in four[0]["rounded"]:
        assert losses[0] == pytest.approx(wide, rel=2e-2)
        assert losses[0] > losses[1] > losses[2] > after == again


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """What some jobs on four ranks found, by rank."""
    folder = str(tmp_path_factory.mktemp("folders"))
    jobs = {
        "rounded": (rounded, folder),
        "deferred": (deferred,),
        "unloadable": (unloadable, folder),
        "wrong": (told,),
    }
    return launch(all_done, 4, jobs, backend="gloo", timeout=300)


def deferred(world):
    """Weight gradients that B leaves for W in a block whose matrices are cut, and whether right."""
    found = []
    for sequence_parallel in (False, True):
        torch.manual_seed(0)
        whole, x = stages(SMALL, 1)[0][1].double(), torch.randn(2, 8, SMALL.width).double()
        block, plain = (parallelize(whole, world, sequence_parallel) for _ in range(2))
        with WeightGradientStore([block]) as store:
            block(x).sum().backward()
            layers = [layer for layer, _, _ in store.deferred]
            left = [layer.weight.grad is None for layer in layers]
        weight_gradients(store.deferred)
        plain(x).sum().backward()
        pairs = zip(block.parameters(), plain.parameters(), strict=True)
        found.append((left, all(a.grad.equal(b.grad) for a, b in pairs)))
    return found


def test_a_zero_bubble_schedule_defers_the_gradients_of_cut_matrices(four):
    assert [found["deferred"] for found in four] == [[([True] * 4, True)] * 2] * 4


# --- what is sent ---------------------------------------------------------------------------------

EVEN = Config(layers=4, width=12, heads=4, vocab=24, seq=8, hidden=24)
COUNTED = [
    Layout(p=2, t=2, d=2, schedule="zb_h1", microbatch=3),
    Layout(p=2, t=2, d=2, schedule="zb_v", zero=1, microbatch=3),
    Layout(p=2, t=2, d=2, zero=2, microbatch=3),
    Layout(t=2, d=4, zero=3, microbatch=3),
    Layout(p=2, t=2, d=2, zero=1, sequence_parallel=True, microbatch=3),
]


def count_bytes(world):
    """For each layout, in a step after the first: bytes by operation, and those of ZeRO's plan."""
    found = []
    for layout in COUNTED:
        trainer = Trainer(EVEN, layout, OPTIMIZERS["sgd"], world, max_norm=1.0)
        batch = torch.randint(EVEN.vocab, (2, BATCH, EVEN.seq)).unbind()
        dist.broadcast(batch[0], 0), dist.broadcast(batch[1], 0)
        for _ in range(2):
            with traffic() as wire:
                trainer.step(batch)
        data, m = trainer.axes.data, layout.microbatches(BATCH)
        buckets = [[bucket.numel for bucket in zero.buckets] for zero in trainer.zeros]
        how = data.size, data.rank, 4, 4, m
        planned = [sum(zero_sent(layout.zero, numels, *how).values()) for numels in buckets]
        found.append((dict(wire.bytes), sum(planned)))
    return found


def test_what_is_sent_is_what_the_plans_of_the_parts_say(eight):
    ranks = [found["bytes"] for found in eight[0]]
    shape = ModelShape(4, EVEN.width, EVEN.heads, EVEN.vocab, EVEN.seq, hidden=EVEN.hidden)
    for i, layout in enumerate(COUNTED):
        found = [by_rank[i] for by_rank in ranks]
        m, d, t, along = layout.microbatches(BATCH), layout.d, layout.t, layout.sequence_parallel
        message = layout.microbatch * EVEN.seq * EVEN.width * 4 / (t if along else 1)
        crossed = sum(a != b for a, b in pairwise(schedule(layout, m).ranks))
        tensor = 4 * sent(shape, layout.microbatch, t, along, size=4)
        tensor += sent_ends(shape, layout.microbatch, t, size=4)
        tensor += (4 + 1 / 2) * sent_norms(shape, t, size=4) if along else 0
        planned = m * d * t * (2 * crossed * message + tensor) + sum(zero for _, zero in found)
        loss_and_norm = 8 * 2 * (8 - 8 // d) + 2 * 7 * 8
        told = sum(sum(one.values()) - one.get("all_to_all", 0) for one, _ in found)
        assert told == planned + loss_and_norm, layout


# --- checkpoints ----------------------------------------------------------------------------------

RELAYS = [  # one step under each layout, which goes on from the one before
    (SMALL, [
        Layout(p=2, t=2, d=2, schedule="zb_h1", zero=1, microbatch=3),
        Layout(t=4, d=2, zero=3, microbatch=3),
        Layout(p=4, c=2, microbatch=3, sequence_parallel=True),
    ]),
    (SWITCH, [
        Layout(p=2, d=4, e=2, schedule="zb_v", zero=2),
        Layout(t=2, d=2, c=2, e=4, zero=3, microbatch=6),
    ]),
]  # fmt: skip


def relayed(world, folder, wholes):
    """How far the last step of each relay is from that of one process without a break."""
    found = []
    for i, (config, layouts) in enumerate(RELAYS):
        losses, _, weights = wholes[i]
        for step, layout in enumerate(layouts):
            seed = 3 if step == 0 else 7
            trainer = Trainer(config, layout, OPTIMIZERS["adam"], world, seed, torch.float64)
            if step:
                trainer.load(f"{folder}/{i}")
            assert trainer.steps == step
            found.append(abs(trainer.step(batches(8, 3)[step]).item() - losses[step]))
            trainer.save(f"{folder}/{i}")
        last = trainer.state_dict()
        found += [(last[name] - x).abs().max().item() for name, x in weights.items()]
    return max(found)


def test_a_checkpoint_goes_on_under_another_layout(eight):
    ranks, folder = eight
    assert max(found["relays"] for found in ranks) < TOLERANCE
    (place,) = (folder / "0").glob("step-*")
    assert place.name == "step-00000003"
    assert sorted(x.name for x in place.glob("*.bin")) == [f"rank-{r:04d}.bin" for r in range(8)]


def unloadable(world, folder):
    """What every rank is told of folders that cannot be loaded, and whether weights have moved."""
    layout = Layout(p=2, t=2)
    trainer = Trainer(SMALL, layout, OPTIMIZERS["adam"], world)
    trainer.step(batches(8)[0])
    trainer.save(f"{folder}/fine")
    torch.manual_seed(0)
    zero = Zero(nn.Linear(3, 3), OPTIMIZERS["adam"], 1, world)
    save_zero(f"{folder}/zero", zero, 1)
    if world.rank == 0:
        shutil.copytree(f"{folder}/fine", f"{folder}/cut")
        victim = Path(f"{folder}/cut/step-00000001/rank-0002.bin")
        victim.write_bytes(victim.read_bytes()[:100])
        shutil.copytree(f"{folder}/fine", f"{folder}/gone")
        Path(f"{folder}/gone/step-00000001/rank-0001.bin").unlink()
        Path(f"{folder}/empty").mkdir()
        Path(f"{folder}/notes").mkdir()
        Path(f"{folder}/notes/mine.txt").write_text("mine")
    dist.barrier()
    told = {}
    before = trainer.state_dict()
    for name in ("cut", "gone", "empty", "zero"):
        with pytest.raises(ValueError) as error:
            trainer.load(f"{folder}/{name}")
        told[name] = str(error.value)
    others = {
        "config": Trainer(Config(5, 15, 5, 23, 12, 19), layout, OPTIMIZERS["adam"], world),
        "optimizer": Trainer(SMALL, layout, OPTIMIZERS["sgd"], world),
        "dtype": Trainer(SMALL, layout, OPTIMIZERS["adam"], world, dtype=torch.float64),
    }
    for name, other in others.items():
        with pytest.raises(ValueError) as error:
            other.load(f"{folder}/fine")
        told[name] = str(error.value)
    trainer.save(f"{folder}/notes")
    same = Path(f"{folder}/notes/mine.txt").read_text() == "mine"
    same &= all(x.equal(before[name]) for name, x in trainer.state_dict().items())
    return told, same


UNLOADABLE = {
    "cut": r"rank-0002.bin is cut short: it has 100 bytes",
    "gone": "rank-0001.bin is missing; nothing was loaded",
    "empty": "empty has no checkpoint: there is no file latest",
    "zero": "has a checkpoint of another program than weft.run.composing.Trainer",
    "config": r"has 1.down.weight of shape \[15, 17\], the decoder's is \[15, 19\]",
    "optimizer": "has the state of AdamW, the optimizer is of class SGD",
    "dtype": "in float32, the decoder's is in float64",
}


def test_what_cannot_be_loaded_is_named_on_all_ranks_and_nothing_else_is_touched(four):
    for found in four:
        told, same = found["unloadable"]
        assert same
        for name, pattern in UNLOADABLE.items():
            assert re.search(pattern, told[name]), (name, told[name])


# --- bad input ------------------------------------------------------------------------------------


def told(world):
    """What this rank is told of wrong calls, which rank 1 makes alone, or all."""
    odd, adam = world.rank == 1, OPTIMIZERS["adam"]
    sequence = Layout(p=2, t=2, sequence_parallel=True)
    fine, along = (
        Trainer(SMALL, Layout(p=2, d=2), adam, world),
        Trainer(SMALL, sequence, adam, world),
    )
    rings = Trainer(SMALL, Layout(c=4), adam, world)
    tokens, targets = batches(8)[0]

    def made(config=SMALL, layout=sequence, optimizer=adam, seed=0, **how):
        return lambda: Trainer(config, layout, optimizer, world, seed, **how)

    calls = {
        "devices": made(layout=Layout(p=2, t=3)),
        "layers": made(Config(layers=3, width=8, heads=4), Layout(p=4, schedule="zb_v")),
        "heads": made(Config(layers=2, width=8, heads=2), Layout(t=4)),
        "words": made(Config(layers=2, width=8, heads=4, vocab=3), Layout(t=4)),
        "experts": made(SMALL, Layout(d=4, e=2)),
        "kind": made(layout="p=2" if odd else sequence),
        "config": made(Config(layers=6, width=15, heads=5) if odd else SMALL),
        "seed": made(seed=int(odd)),
        "layout": made(layout=Layout(p=2, t=2) if odd else sequence),
        "dtype": made(dtype=torch.float16 if odd else torch.float32),
        "norm": made(max_norm=-1.0),
        "optimizer": made(optimizer=3 if odd else adam),
        "two": made(optimizer=OPTIMIZERS["sgd"] if odd else adam),
        "batch": lambda: fine.step((tokens[:3], targets[:3])),
        "pair": lambda: fine.step(tokens),
        "shape": lambda: fine.step((tokens, targets[:, :3])),
        "floats": lambda: fine.step((tokens.float() if odd else tokens, targets)),
        "unknown": lambda: fine.step((tokens + 23 * odd, targets)),
        "other": lambda: fine.step((tokens, targets.flip(0) if odd else targets)),
        "long": lambda: fine.step((tokens.repeat(1, 2), targets.repeat(1, 2))),
        "time": lambda: along.step((tokens[:, :5], targets[:, :5])),
        "short": lambda: rings.step((tokens[:, :3], targets[:, :3])),
        "folder": lambda: fine.load(3),
    }
    found = {}
    for name, call in calls.items():
        with pytest.raises(ValueError) as error:
            call()
        found[name] = str(error.value)
    for trainer in (fine, along, rings):  # and all are still in step
        trainer.step((tokens, targets))
    return found


WRONG = {
    "devices": r"layout has p \* t \* d \* c = 6 devices, must have the world's 4 ranks",
    "layers": r"config has 3 layers, must have one for each of p \* v = 8 stages",
    "heads": "config has heads = 2, must have at least one for each of t = 4 ranks",
    "words": "config has vocab = 3, must have at least one for each of t = 4 ranks",
    "experts": "config has 0 experts, must have at least one for each of e = 2 ranks",
    "kind": "layout is .*must be of type Layout",
    "config": "config is Config.layers=5.* on rank 0 and Config.layers=6.* on rank 1",
    "seed": "seed is 0 on rank 0 and 1 on rank 1",
    "layout": "layout is .*sequence_parallel=True.* on rank 0 and .*sequence_parallel=False",
    "dtype": "dtype is torch.float16, must be one of",
    "norm": "max_norm is -1.0, must be a number above 0, or None",
    "optimizer": "optimizer is a int, must be a function",
    "two": "optimizer is AdamW.* on rank 0 and SGD.* on rank 1",
    "batch": r"batch is 3, must be a multiple of d \* microbatch = 2",
    "pair": "batch is a Tensor, must be .tokens, targets.",
    "shape": r"batch has targets of shape \[12, 3\], must be \[12, 8\], as tokens",
    "floats": r"batch has tokens of \[12, 8\] torch.float32, must have \[B, T\] of torch.int64",
    "unknown": "batch has tokens from 23 to 45, must have them from 0 to 22",
    "other": "the digest of batch is .* on rank 0 and .* on rank 1",
    "long": "batch has tokens with 16 in time, must have at most config's seq = 12",
    "time": "batch has 5 tokens in time, must have a multiple of t = 2",
    "short": "batch has 3 tokens in time, must have one for each of c = 4",
    "folder": "folder is 3, must be of type str or Path",
}


def test_what_is_wrong_is_named_on_all_ranks_and_nothing_hangs(four):
    for found in (rank["wrong"] for rank in four):
        assert found.keys() == WRONG.keys()
        for name, pattern in WRONG.items():
            assert re.search(pattern, found[name], re.DOTALL), (name, found[name])
