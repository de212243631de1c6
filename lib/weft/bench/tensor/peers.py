"""A step of the book's decoder over ranks, forward, loss and backward: ours beside torch's DTensor.

The peer is `parallelize_module` as torchtitan calls it, with `loss_parallel`, with and without
`SequenceParallel`; its decoder has q, k and v apart, since its styles cut a matrix in one. All have
the same weights and batch in the same run and take turns; losses have to be equal first. Bytes are
counted for one step of each, on average over the ranks.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy as torchs_cross_entropy
from torch.nn.functional import gelu

from weft.bench.clock import AllRanks
from weft.bench.jobs import BenchJob, BenchRun, Found
from weft.bench.record import Measurement
from weft.meter import traffic
from weft.nn.transformer import Block, Config, Embedding, Head, causal, stages
from weft.run.tensor import cross_entropy, parallelize
from weft.run.world import World, launch

OURS, TORCH = "weft", "torch, DTensor"
WAYS = {"whole tokens": (False, False), "sequence parallel": (True, False)}
WAYS |= {"sequence parallel, overlapped": (True, True)}


class TensorStep(NamedTuple):
    """What is run: the decoder's sizes, sequences, how many ranks, and how often."""

    layers: int = 4
    width: int = 256
    heads: int = 8
    vocab: int = 4096
    T: int = 256
    B: int = 2
    ranks: tuple[int, ...] = (2, 4)
    warmup: int = 2
    repeats: int = 11

    @property
    def config(self) -> Config:
        """The decoder."""
        return Config(self.layers, self.width, self.heads, self.vocab, self.T)


FULL = TensorStep()


def steps(run: BenchRun, sizes: TensorStep = FULL) -> Found:
    """Seconds and bytes of a step of everybody, and ours over torch's, round by round."""
    results = []
    for n in run.each(sizes.ranks, "{} ranks"):
        times, sent = launch(_measured, n, sizes, backend="gloo", timeout=1800)[0]
        for of, unit, everybody in (("", "s", times), ("bytes, ", "B", sent)):
            found = {
                (way, who): Measurement.of(f"{of}{way}, {n} ranks", who, unit, taken)
                for (way, who), taken in everybody.items()
            }
            results += found.values()
            for way, who in found:
                if who == OURS:
                    peer = found["sequence parallel" if WAYS[way][0] else way, TORCH]
                    results.append(found[way, OURS].over(peer))
    c = sizes
    form = f"{c.layers} layers of {c.width}, {c.vocab} words, {c.B} × {c.T} tokens"
    return f"A step of a decoder, its matrices over ranks: {form}, fp32, gloo", results


STEP = BenchJob("tensor-step", steps)


# --- on a rank ------------------------------------------------------------------------------------

Key = tuple[str, str]  # a way, and who


def _measured(world: World, sizes: TensorStep) -> tuple[dict[Key, list], dict[Key, list]]:
    torch.manual_seed(0)
    (whole,) = stages(sizes.config, 1)
    batch = torch.randint(sizes.vocab, (2, sizes.B, sizes.T))
    mesh = dist.DeviceMesh.from_group(world.group(), world.device.type, mesh_dim_names=("tp",))
    calls: dict[Key, Callable[[], Tensor]] = {}
    for way, (along, overlap) in WAYS.items():
        ours = parallelize(whole, world, along, overlap)
        calls[way, OURS] = partial(_step, ours, *batch, partial(cross_entropy, world=world))
        if not overlap:
            calls[way, TORCH] = partial(_torchs, cut_by_torch(whole, mesh, along), *batch)
    sent, wanted = {}, None
    for key, call in calls.items():
        with traffic() as wire:
            loss = call().item()
        wanted = loss if wanted is None else wanted
        if abs(loss - wanted) > 1e-4 * wanted:
            raise AssertionError(f"{' '.join(key)} has loss {loss}, must be {wanted}")
        total = torch.tensor(sum(wire.bytes.values()), dtype=torch.float64)
        dist.all_reduce(total, group=world.group())
        sent[key] = [total.item() / world.size]
    return AllRanks(world, sizes.warmup, sizes.repeats).samples(calls), sent


def _step(model: nn.Module, tokens: Tensor, targets: Tensor, loss: Callable) -> Tensor:
    model.zero_grad()
    mean = loss(model(tokens), targets)
    mean.backward()
    return mean.detach()


def _torchs(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    with loss_parallel():

        def loss(scores: Tensor, targets: Tensor) -> Tensor:
            return torchs_cross_entropy(scores.flatten(0, 1), targets.flatten())

        mean = _step(model, tokens, targets, loss)
    return mean.full_tensor()


# --- torch's decoder ------------------------------------------------------------------------------


class PlainAttention(nn.Module):
    """The block's attention with q, k and v apart."""

    def __init__(self, block: Block):
        super().__init__()
        self.width = block.qkv.in_features // block.heads
        self.q, self.k, self.v = (_linear(weight) for weight in block.qkv.weight.detach().chunk(3))
        self.out = _linear(block.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, self.width)) for layer in (self.q, self.k, self.v))
        return self.out(causal(q, k, v).flatten(-2))


class PlainMLP(nn.Module):
    """The block's MLP as a module."""

    def __init__(self, block: Block):
        super().__init__()
        self.up, self.down = (_linear(x.weight, x.bias) for x in (block.up, block.down))

    def forward(self, x: Tensor) -> Tensor:
        return self.down(gelu(self.up(x)))


class PlainBlock(nn.Module):
    """The block of modules that torch's styles can take."""

    def __init__(self, block: Block):
        super().__init__()
        self.norm_attention, self.norm_mlp = (
            deepcopy(norm) for norm in (block.norm_attention, block.norm_mlp)
        )
        self.attention, self.mlp = PlainAttention(block), PlainMLP(block)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class PlainStage(nn.Module):
    """A decoder of such blocks, or a stage of one, with an embedding, a head, both or neither."""

    def __init__(self, parts: Iterable[nn.Module]):
        super().__init__()
        self.tokens = self.norm = None
        self.blocks = nn.ModuleList()
        for part in parts:
            if isinstance(part, Embedding):
                self.tokens, self.positions = deepcopy(part.tokens), deepcopy(part.positions)
            elif isinstance(part, Head):
                self.norm, self.head = deepcopy(part.norm), _linear(part.tokens.weight)
            else:
                self.blocks.append(PlainBlock(part))

    def forward(self, x: Tensor) -> Tensor:
        if self.tokens:
            places = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
            x = self.tokens(x) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.norm else x


def cut_by_torch(stage: nn.Sequential, mesh: dist.DeviceMesh, along: bool) -> PlainStage:
    """The same weights in torch's decoder, over the ranks of a mesh."""
    model = PlainStage(stage)
    stream = Shard(1) if along else Replicate()
    taken = PrepareModuleInput(input_layouts=stream, desired_input_layouts=Replicate())
    plan = {}
    if model.tokens:
        plan["tokens"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=stream)
        if along:
            plan["positions"] = plan["tokens"]
    if model.norm:
        plan["head"] = ColwiseParallel(
            input_layouts=stream, output_layouts=Shard(-1), use_local_output=False
        )
        if along:
            plan["norm"] = SequenceParallel()
    for i in range(len(model.blocks)):
        at = f"blocks.{i}."
        plan |= {f"{at}attention": taken, f"{at}mlp": taken}
        plan |= {f"{at}attention.{name}": ColwiseParallel() for name in "qkv"}
        plan |= {f"{at}attention.out": RowwiseParallel(output_layouts=stream)}
        plan |= {f"{at}mlp.up": ColwiseParallel()}
        plan |= {f"{at}mlp.down": RowwiseParallel(output_layouts=stream)}
        if along:
            plan |= {f"{at}{norm}": SequenceParallel() for norm in ("norm_attention", "norm_mlp")}
    return parallelize_module(model, mesh, plan)


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(*reversed(weight.shape), bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer
