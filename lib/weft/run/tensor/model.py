"""The book's decoder over ranks: every matrix cut, and if asked every token between them.

A model of one's own is cut the same way: ColumnLinear for what reads the stream of activations,
RowLinear for what adds to it, and in between work that columns do by themselves: heads, gates,
channels. Where one matrix holds several side by side, `blocks` cuts each.

Dropout, of which this decoder has none, would need two random states. On what all ranks have a
copy of, the stream without sequence parallelism, they must drop the same, or the copies differ;
on what each has a part of, heads, hidden columns, and its tokens of the stream, they must not, or
the parts are dropped in step. Recomputing has to put both back.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

from weft.nn.transformer import Block, Embedding, Head
from weft.plan.arguments import instance
from weft.plan.tensors import dtype_of, tensor
from weft.run.collectives import Group, agreed
from weft.run.tensor.exchange import TensorRanks
from weft.run.tensor.functions import AllTokens, LastRowMatmul, OwnTokens, SummedWeights
from weft.run.tensor.linear import (
    ColumnLinear,
    RowLinear,
    check_time,
    fingerprint,
    trained,
)
from weft.run.tensor.vocabulary import VocabularyEmbedding

ENDS = Embedding, Head


def parallelize(
    module: nn.Module,
    world: Group,
    sequence_parallel: bool = False,
    overlap: bool = False,
    checks: bool = True,
    whole_sides: bool = True,
) -> nn.Module:
    """One or more of weft.nn.transformer's stages, or a part of one, over the ranks of a group.

    Same inputs and same outputs on every rank, but that the head's scores are those of this rank's
    part of the vocabulary, which `cross_entropy` takes. `module`, the same on every rank, is left
    as it was. After backward every `.grad` is whole for what the rank keeps: a part of each matrix
    and of the biases of its outputs; norms, positions and other biases, which all have.

    With `sequence_parallel` a rank has T / t tokens of what lies between the matrices, and T must
    divide by t; what goes into a stage and comes out of it is whole all the same. Bytes are those
    of weft.plan.tensor.sent, with and without, and then sent_norms. With `overlap` besides they
    travel in parts beside matmuls. Heads and columns need not divide by t; ValueError where there
    is not one for each rank, or the module has a part that is none of a stage's.

    A block whose MLP is another one than Block's, of experts say, has that whole on every rank, as
    it is and not a copy: there each works for all tokens.

    Without `whole_sides` stages are given a rank's tokens and give them, [B, T/t, D], as their
    neighbours in a pipeline do: less to pass on. Embeddings read whole tokens, and scores are of
    all of them, in any case.

    In each forward ranks tell each other what a stage was given, so that none waits for ever where
    they differ. Who has made sure of that before does without `checks`.
    """
    ranks = TensorRanks(world, sequence_parallel, overlap, bool(checks))
    how = {"sequence_parallel": bool(sequence_parallel), "overlap": bool(overlap)}
    how |= {"checks": bool(checks), "whole_sides": bool(whole_sides)}
    agreed(ranks.group, lambda: (None, how | _form(module, ranks.n)))
    return _cut(module, ranks, world, bool(whole_sides))


def _cut(module: nn.Module, ranks: TensorRanks, world: Group, sides: bool) -> nn.Module:
    if is_part(module):
        return _part(module, ranks, world, first=sides, last=sides)
    children = list(module.children())
    if all(map(is_part, children)):
        last = len(children) - 1
        ends = [(sides and i == 0, sides and i == last) for i in range(len(children))]
        cut = [_part(x, ranks, world, *end) for x, end in zip(children, ends, strict=True)]
    else:  # of stages, each of which has whole sides
        cut = [_cut(child, ranks, world, sides) for child in children]
    if not isinstance(module, nn.Sequential):
        return nn.ModuleList(cut)
    names = (name for name, _ in module.named_children())
    return nn.Sequential(OrderedDict(zip(names, cut, strict=True)))


def _part(part: nn.Module, ranks: TensorRanks, world: Group, first: bool, last: bool) -> nn.Module:
    if isinstance(part, Embedding):
        return VocabularyEmbedding(part, ranks, last)
    if isinstance(part, Block):
        return TensorBlock(part, ranks, world, first, last)
    return VocabularyHead(part, ranks, world, first)


class TokensNorm(nn.Module):
    """A LayerNorm of some of the tokens, whose weights' gradients are those of all."""

    def __init__(self, norm: nn.LayerNorm, ranks: TensorRanks):
        super().__init__()
        self.ranks, self.eps = ranks, norm.eps
        self.weight, self.bias = (trained(x.detach().clone(), x) for x in (norm.weight, norm.bias))

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if self.ranks.sequence_parallel and self.ranks.n > 1:
            weight, bias = SummedWeights.apply(self.ranks, weight, bias)
        return layer_norm(x, weight.shape, weight, bias, self.eps)

    @torch.no_grad()
    def whole(self, x: Tensor) -> Tensor:
        """The norm of all tokens, for which nobody asks a gradient."""
        return layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class TensorBlock(nn.Module):
    """transformer.Block with the heads and the hidden layer over ranks.

    Under sequence parallelism it is given [B, T/t, D] and gives that, but for the `first` of a
    stage, which is given all, and the `last`, which gives all. Neither costs more: the first has
    what it would gather, and the last's gradient is not gathered.
    """

    def __init__(self, block: Block, ranks: TensorRanks, world: Group, first: bool, last: bool):
        super().__init__()
        how = world, ranks.sequence_parallel, ranks.overlap
        K = block.qkv.in_features // block.heads
        self.ranks, self.first, self.last = ranks, first, last
        self.attention = block.attention
        self.norm_attention = TokensNorm(block.norm_attention, ranks)
        self.qkv = ColumnLinear(block.qkv, *how, blocks=3, unit=K, checks=False)
        self.out = RowLinear(block.out, *how, unit=K, checks=False)
        self.norm_mlp = TokensNorm(block.norm_mlp, ranks)
        self.heads = self.out.weight.shape[1] // K
        self.own_mlp = None
        if type(block) is Block:
            self.up = ColumnLinear(block.up, *how, checks=False)
            self.down = RowLinear(block.down, *how, checks=False)
        else:
            self.own_mlp = block.mlp
            for name, child in block.named_children():
                if name not in self._modules:
                    self.add_module(name, child)

    def forward(self, x: Tensor) -> Tensor:
        width = len(self.norm_mlp.weight)
        cut = self.ranks.sequence_parallel
        gathered = None
        if self.first:
            agree_stream(x, width, self.norm_mlp.weight, self.ranks)
            if cut:
                gathered = self.norm_attention.whole(x)
                x = OwnTokens.apply(x, self.ranks)
        qkv = self.qkv(self.norm_attention(x), gathered).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in qkv)  # [B, T, H/t, K]
        x = x + self.out(self.attention(q, k, v).flatten(-2))
        if self.own_mlp:
            return self._with_own_mlp(x)
        hidden = gelu(self.up(self.norm_mlp(x)))
        if self.last and cut:
            down = self.down
            return LastRowMatmul.apply(hidden, down.weight, down.bias, x, *down.how)
        return x + self.down(hidden)

    def _with_own_mlp(self, x: Tensor) -> Tensor:
        """The MLP of all tokens on every rank, between a gather and a cut of a rank's own."""
        normed = self.norm_mlp(x)
        if not self.ranks.sequence_parallel:
            return x + self.own_mlp(normed)
        y = self.own_mlp(AllTokens.apply(normed, self.ranks))
        if self.last:
            return AllTokens.apply(x, self.ranks) + y
        return x + OwnTokens.apply(y, self.ranks)


class VocabularyHead(nn.Module):
    """transformer.Head: scores [B, T, N/t] of this rank's part of the vocabulary."""

    def __init__(self, head: Head, ranks: TensorRanks, world: Group, first: bool):
        super().__init__()
        self.first = first
        if first:  # it is given all tokens, and gives all: there is nothing to cut
            ranks = TensorRanks(world, checks=ranks.checks)
        self.ranks = ranks
        self.norm = TokensNorm(head.norm, ranks)
        how = world, ranks.sequence_parallel, ranks.overlap
        self.tokens = ColumnLinear(head.tokens, *how, checks=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            agree_stream(x, len(self.norm.weight), self.norm.weight, self.ranks)
        return self.tokens(self.norm(x))


def agree_stream(x: Tensor, width: int, own: Tensor, ranks: TensorRanks) -> None:
    """Raise ValueError, on all ranks, unless all give a stage [B, T, D] of one shape."""
    if not ranks.checks:
        return

    def mine() -> tuple[None, dict[str, Any]]:
        shape = (*getattr(x, "shape", (0, 0))[:2], width)
        tensor("x", x, "[B, T, D]", shape, dtypes=(dtype_of(own),), beside=("module", own))
        if ranks.sequence_parallel:
            check_time(x, ranks, whole=True)
        grad = torch.is_grad_enabled()
        return None, {"x's shape": list(x.shape), "x's requires_grad": x.requires_grad,
                      "whether gradients are taken": grad}  # fmt: skip

    agreed(ranks.group, mine)


def _form(module: nn.Module, t: int) -> dict[str, Any]:
    """What must be the same on every rank; ValueError for what cannot be cut in t."""
    instance(nn.Module, module=module)
    form = {}
    for name, part in _parts("", module):
        counts = {}
        if isinstance(part, Embedding):
            counts["words"] = part.tokens.num_embeddings
        elif isinstance(part, Block):
            counts = {"heads": part.heads}
            if type(part) is Block:
                counts["hidden columns"] = part.up.out_features
        else:
            counts["words"] = part.tokens.out_features
        for things, count in counts.items():
            if count < t:
                where = f"module's {name}" if name else "module"
                raise ValueError(
                    f"{where} has {count} {things}, must have one for each of {t} ranks"
                )
        form[f"the kind of {name or 'module'}"] = type(part).__name__
    for name, x in module.state_dict().items():
        form[f"{name}'s shape and dtype"] = [list(x.shape), dtype_of(x)]
        form[f"the digest of {name}"] = fingerprint(x)
    return form


def is_part(module: nn.Module) -> bool:
    """Whether it is one of those of which stages are made."""
    return isinstance(module, Block) or type(module) in ENDS


def _parts(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts of stages by name; ValueError where there is another module."""
    if is_part(module):
        yield name, module
        return
    if not isinstance(module, nn.Sequential | nn.ModuleList) or not len(module):
        where = f"module's {name}" if name else "module"
        kind = type(module).__name__
        raise ValueError(f"{where} is of type {kind}, must be stages of Embedding, Block and Head")
    for child, part in module.named_children():
        yield from _parts(f"{name}.{child}" if name else child, part)
