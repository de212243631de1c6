"""ZeRO's steps and memory beside torch's own: DDP, ZeroRedundancyOptimizer, FSDP2.

The same model, this book's decoder or GPT-2 as Hugging Face writes it, is trained from the same
weights on the same tokens, ours and theirs turn about in one run, each with its own defaults.
Their losses have to be equal before any time counts. Without a GPU there are two ranks with one
thread each, or three for GPT-2 as well; with GPUs one rank on each.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from weft.bench.clock import AllRanks, Call
from weft.bench.jobs import BOTH, BenchJob, BenchRun, Found
from weft.bench.record import Measurement, pairs
from weft.meter import live
from weft.nn.transformer import Config, loss, stages
from weft.run.world import World, launch
from weft.run.zero import DataParallel, Zero

OURS = "weft"
PEERS = {0: "DDP", 1: "ZeroRedundancyOptimizer", 2: "ZeroRedundancyOptimizer", 3: "FSDP2"}
ADAMW = partial(torch.optim.AdamW, lr=1e-3, fused=True)


class Trained(NamedTuple):
    """A model to train: what makes it, its blocks, the loss of tokens, and its name in a title."""

    make: Callable[[], nn.Module]
    blocks: Callable[[nn.Module], Iterable[nn.Module]]
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    vocab: int
    name: str


class TrainingSizes(NamedTuple):
    """What is run: the model, this rank's tokens, how often, and launches of how many ranks."""

    model: Trained
    batch: int = 4
    seq: int = 64
    warmup: int = 2
    repeats: int = 10
    ranks: tuple[int, ...] = (2,)
    launches: int = 4


def decoder(config: Config) -> Trained:
    """This book's own decoder, whose blocks are in a row."""

    def make() -> nn.Module:
        (model,) = stages(config, 1)
        return model

    def of(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        return loss(model(tokens), targets)

    name = f"{config.layers} blocks of width {config.width}"
    return Trained(make, lambda model: model.children(), of, config.vocab, name)


def gpt2(**config: int) -> Trained:
    """Hugging Face's GPT-2 of 124 million, or as `config` has it; no dropout, so losses compare."""
    if find_spec("transformers") is None:
        raise ValueError("this needs Hugging Face's transformers, which is not installed")
    from transformers import GPT2Config, GPT2LMHeadModel

    never = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
    no_tokens = {"bos_token_id": None, "eos_token_id": None}
    found = GPT2Config(**never, **no_tokens, **config)

    def of(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        return loss(model(tokens).logits, targets)

    name = f"GPT-2, {found.n_layer} blocks of width {found.n_embd}, by Hugging Face"
    return Trained(
        partial(GPT2LMHeadModel, found),
        lambda model: model.transformer.h,
        of,
        found.vocab_size,
        name,
    )


def small() -> TrainingSizes:
    """The book's decoder on two ranks."""
    return TrainingSizes(decoder(Config(layers=6, width=256, heads=4, seq=64)))


def published() -> TrainingSizes:
    """GPT-2 of 124 million, one sequence for each of two ranks, and of three."""
    return TrainingSizes(gpt2(), batch=1, warmup=1, repeats=7, ranks=(2, 3), launches=1)


def steps(run: BenchRun, sizes: Callable[[], TrainingSizes]) -> Found:
    """Seconds of a step of each stage, ours and torch's."""
    some = sizes()
    todo = [(n, i) for n in _ranks(run, some) for i in range(some.launches)]
    found: dict[int, list] = {}
    for n, _ in run.each(todo, "steps, ours and torch's: ranks, launch {}"):
        found.setdefault(n, []).append(launch(_all, n, _times, sizes, timeout=1800)[0])
    return f"A training step, ours and torch's: {_what(run, some)}", _rows("s", found)


def peaks(run: BenchRun, sizes: Callable[[], TrainingSizes]) -> Found:
    """The most bytes alive on the fullest rank, from the model's making on, over three steps."""
    some = sizes()
    found = {
        n: launch(_all, n, _peaks, sizes, timeout=1800)
        for n in run.each(_ranks(run, some), "bytes alive, ours and torch's, {} ranks")
    }
    title = f"The most bytes of tensors alive on a rank: {_what(run, some)}"
    return title, _rows("B", {n: one[:1] for n, one in found.items()})


STEP = BenchJob("zero-step", partial(steps, sizes=small), BOTH, seconds=60)
PEAK = BenchJob("zero-peak", partial(peaks, sizes=small), BOTH, seconds=30)
GPT2_STEP = BenchJob("zero-gpt2-step", partial(steps, sizes=published), BOTH, seconds=60)
GPT2_PEAK = BenchJob("zero-gpt2-peak", partial(peaks, sizes=published), BOTH, seconds=30)


def _ranks(run: BenchRun, sizes: TrainingSizes) -> tuple[int, ...]:
    return (torch.cuda.device_count(),) if run.device == "cuda" else sizes.ranks


def _what(run: BenchRun, sizes: TrainingSizes) -> str:
    return f"{sizes.model.name}, float32, ranks: {', '.join(map(str, _ranks(run, sizes)))}"


def _rows(unit: str, found: dict[int, Sequence[dict]]) -> list[Measurement]:
    """Ours, theirs and the ratio of each stage; with ranks in the name where they differ."""
    results = []
    for n, launches in found.items():
        of = f", {n} ranks" if len(found) > 1 else ""
        named = [{name + of: both for name, both in one.items()} for one in launches]
        results += pairs(unit, *named)
    return results


# --- on a rank ------------------------------------------------------------------------------------


def _all(world: World, measure: Callable, sizes: Callable[[], TrainingSizes]) -> dict[str, dict]:
    some = sizes()
    return {f"stage {stage}": measure(world, stage, some) for stage in PEERS}


def _times(world: World, stage: int, sizes: TrainingSizes) -> dict[str, list[float]]:
    both = {OURS: ours(world, stage, sizes), PEERS[stage]: theirs(world, stage, sizes)}
    losses = [[step().item() for _ in range(3)] for step in both.values()]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=0, msg=f"losses of stage {stage}")
    return AllRanks(world, sizes.warmup, sizes.repeats).samples(both)


def _peaks(world: World, stage: int, sizes: TrainingSizes) -> dict[str, list[int]]:
    found = []
    for make in (ours, theirs):
        with live(resized=True) as meter:
            step = make(world, stage, sizes)
            for _ in range(3):
                step()
            if isinstance(step.args[0], DataParallel):
                step.args[0].close()  # its hooks keep it, and all its state, alive
            del step
        found.append(meter.peak)
    most = torch.tensor(found, device=world.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=world.group())
    return {who: [peak] for who, peak in zip((OURS, PEERS[stage]), most.tolist(), strict=True)}


def ours(world: World, stage: int, sizes: TrainingSizes) -> Call:
    """A step under a stage of ours."""
    model, tokens, targets = _task(world, sizes)
    zero = Zero(model, ADAMW, stage, world)
    return partial(_step, zero, zero, sizes.model.loss, tokens, targets)


def theirs(world: World, stage: int, sizes: TrainingSizes) -> Call:
    """A step of torch's counterpart."""
    model, tokens, targets = _task(world, sizes)
    task = sizes.model.loss, tokens, targets
    if stage == 3:
        from torch.distributed.fsdp import fully_shard

        mesh = dist.DeviceMesh.from_group(world.group(), world.device.type)
        for child in (*sizes.model.blocks(model), model):
            fully_shard(child, mesh=mesh)
        return partial(_step, model, ADAMW(model.parameters()), *task)
    model = nn.parallel.DistributedDataParallel(model, process_group=world.group())
    if stage == 0:
        return partial(_step, model, ADAMW(model.parameters()), *task)
    with warnings.catch_warnings():  # of what else is in that package
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch.distributed.optim import ZeroRedundancyOptimizer
    kind, how = ADAMW.func, ADAMW.keywords
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), kind, process_group=world.group(), parameters_as_bucket_view=True, **how
    )
    return partial(_step, model, optimizer, *task)


def _task(world: World, sizes: TrainingSizes) -> tuple[nn.Module, Tensor, Tensor]:
    """The model, the same on every rank, and this rank's tokens."""
    torch.manual_seed(0)
    model = sizes.model.make()
    torch.manual_seed(1 + world.rank)
    data = torch.randint(sizes.model.vocab, (2, sizes.batch, sizes.seq))
    return model.to(world.device), *data.to(world.device)


def _step(
    model: nn.Module, optimizer: Any, loss_of: Callable, tokens: Tensor, targets: Tensor
) -> Tensor:
    value = loss_of(model, tokens, targets)
    value.backward()
    optimizer.step()
    optimizer.zero_grad()
    return value.detach()
