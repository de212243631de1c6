"""A step of a decoder over p, t and d: ours beside DTensor, FSDP2 and torch's pipelining together.

The peer is put together as torchtitan does it: `parallelize_module` with loss parallel inside of a
stage, `fully_shard` on each block with its weights kept from a microbatch to the next, for there
is a pipeline, and Schedule1F1B. That averages gradients once a step and keeps them whole until
then, as our ZeRO 1. Both have the same weights, batches and optimizer in one run and take turns;
the losses of their first steps have to be equal. A step is all of it, the optimizer's as well.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy

from weft.bench.clock import AllRanks
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.bench.tensor import cut_by_torch
from weft.meter import traffic
from weft.nn.transformer import Config, stages
from weft.plan.composing import Layout
from weft.run.composing import Trainer
from weft.run.world import World, launch

OURS, TORCH = "weft", "torch, DTensor + FSDP2 + pipelining"
WAYS = {"whole tokens": False, "sequence parallel": True}
ADAMW = partial(torch.optim.AdamW, lr=1e-3, fused=True)
CHECKED = 3  # steps whose losses have to be equal


class ComposingStep(NamedTuple):
    """What is run: the decoder's sizes, the batch, the axes, and how often."""

    layers: int = 4
    width: int = 128
    heads: int = 8
    vocab: int = 1024
    T: int = 128
    B: int = 16
    p: int = 2
    t: int = 2
    d: int = 2
    microbatch: int = 2
    warmup: int = 2
    repeats: int = 7

    @property
    def config(self) -> Config:
        """The decoder."""
        return Config(self.layers, self.width, self.heads, self.vocab, self.T)

    def layout(self, along: bool) -> Layout:
        """Who has what."""
        axes = {"p": self.p, "t": self.t, "d": self.d, "microbatch": self.microbatch}
        return Layout(**axes, zero=1, sequence_parallel=along)


FULL = ComposingStep()


def steps(run: BenchRun, sizes: ComposingStep = FULL) -> Found:
    """Seconds and bytes of a step of both, and ours over torch's, round by round."""
    results = []
    for way in run.each(WAYS, "{}"):
        n = sizes.layout(False).devices
        times, sent = launch(_measured, n, sizes, WAYS[way], backend="gloo", timeout=600)[0]
        for of, unit, both in (("", "s", times), ("bytes, ", "B", sent)):
            found = {
                who: Measurement.of(f"{of}{way}", who, unit, taken) for who, taken in both.items()
            }
            results += [*found.values(), found[OURS].over(found[TORCH])]
    c = sizes
    form = f"p = {c.p}, t = {c.t}, d = {c.d}, ZeRO 1, 1F1B; {c.layers} layers of {c.width}"
    form += f", {c.vocab} words, {c.B} × {c.T} tokens in microbatches of {c.microbatch}"
    return f"A training step over several axes: {form}, fp32, gloo", results


STEP = BenchJob("composing-step", steps)


# --- on a rank ------------------------------------------------------------------------------------


def _measured(
    world: World, sizes: ComposingStep, along: bool
) -> tuple[dict[str, list], dict[str, list]]:
    torch.manual_seed(0)
    batch = torch.randint(sizes.vocab, (2, sizes.B, sizes.T)).unbind()
    trainer = Trainer(sizes.config, sizes.layout(along), ADAMW, world)
    calls = {OURS: partial(trainer.step, batch), TORCH: _torchs(world, sizes, along, *batch)}
    sent = {}
    for i in range(CHECKED):
        losses = {}
        for who, call in calls.items():
            with traffic() as wire:
                losses[who] = float(call())
            total = torch.tensor(sum(wire.bytes.values()), dtype=torch.float64)
            dist.all_reduce(total, group=world.group())
            sent[who] = [total.item() / world.size]
        if abs(losses[OURS] - losses[TORCH]) > 1e-4 * losses[OURS]:
            raise AssertionError(f"step {i} has losses {losses}, must be equal")
    return AllRanks(world, sizes.warmup, sizes.repeats).samples(calls), sent


def _torchs(
    world: World, sizes: ComposingStep, along: bool, tokens: Tensor, targets: Tensor
) -> Callable[[], float]:
    """A step of torch's parts, which returns the loss."""
    mesh = dist.init_device_mesh(
        world.device.type, (sizes.p, sizes.d, sizes.t), mesh_dim_names=("pp", "dp", "tp")
    )
    torch.manual_seed(0)
    place = mesh["pp"].get_local_rank()
    own = stages(sizes.config, sizes.p)[place]
    model = cut_by_torch(own, mesh["tp"], along)
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"], reshard_after_forward=False)
    fully_shard(model, mesh=mesh["dp"], reshard_after_forward=False)
    optimizer = ADAMW(model.parameters())
    stage = PipelineStage(model, place, sizes.p, world.device, group=mesh.get_group("pp"))
    mine = (x.chunk(sizes.d)[mesh["dp"].get_local_rank()] for x in (tokens, targets))
    inputs, wanted = mine
    m = len(inputs) // sizes.microbatch
    schedule = Schedule1F1B(stage, n_microbatches=m, loss_fn=_loss)
    first, last = place == 0, place == sizes.p - 1

    def step() -> float:
        losses: list[Tensor] = []
        with loss_parallel():
            schedule.step(
                *([inputs] if first else []), target=wanted if last else None, losses=losses,
                return_outputs=False,
            )  # fmt: skip
        optimizer.step()
        optimizer.zero_grad()
        total = torch.zeros(())
        for loss in losses:
            total += (loss.full_tensor() if isinstance(loss, DTensor) else loss).detach() / m
        dist.all_reduce(total, group=world.group())  # the loss is the last stage's alone
        return total.item() / (sizes.d * sizes.t)

    return step


def _loss(scores: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(scores.flatten(0, 1), targets.flatten())
