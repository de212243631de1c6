"""A vocabulary over ranks: each looks up its own words, and no rank ever has all scores."""

from functools import partial
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from weft.nn.transformer import Embedding
from weft.plan.tensor import VocabularyPart, check_words
from weft.plan.tensors import dtype_of, ranked, tensor
from weft.run.collectives import Group, agreed
from weft.run.tensor.exchange import TensorRanks
from weft.run.tensor.linear import cut, fingerprint, trained


class VocabularyEmbedding(nn.Module):
    """transformer.Embedding, its words over ranks: [B, T] to [B, T, D], or to [B, T/t, D].

    A rank has rows of zeros for words of others, and the sum over ranks is the embedding; under
    sequence parallelism, unless it is the stage's `last` part, the sum is scattered. The table of
    positions lies whole on each, and gets the gradient of all tokens.
    """

    def __init__(self, whole: Embedding, ranks: TensorRanks, last: bool):
        super().__init__()
        self.ranks, self.places = ranks, whole.places
        self.scattered = ranks.sequence_parallel and not last
        total = whole.tokens.num_embeddings
        self.columns = [*torch.arange(total).tensor_split(ranks.n)]
        mine = self.columns[ranks.rank].to(whole.tokens.weight.device)
        self.total, self.first = total, int(mine[0])
        self.tokens, self.positions = nn.Module(), nn.Module()
        self.tokens.weight = cut(whole.tokens.weight, 0, mine)
        table = whole.positions.weight
        self.positions.weight = trained(table.detach().clone(), table)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        T = self._agreed(tokens_BT)
        places = range(T) if self.places is None else self.places
        places = torch.tensor(places, device=tokens_BT.device)
        weights = self.tokens.weight, self.positions.weight
        return _Looked.apply(*weights, tokens_BT - self.first, places, self)

    def _agreed(self, tokens: Tensor) -> int:
        def mine() -> tuple[int, dict[str, Any]]:
            shape = (*getattr(tokens, "shape", ()), 1, 1)[:2]
            beside = "module", self.tokens.weight
            tensor("tokens", tokens, "[B, T]", shape, dtypes=("int64", "int32"), beside=beside)
            check_words("tokens", tokens, self.total)
            (_, T), most = shape, len(self.positions.weight)
            if most < T:
                raise ValueError(f"tokens have {T} in time, must have at most seq = {most}")
            if self.places is not None and len(self.places) != T:
                raise ValueError(
                    f"tokens have {T} in time, must have {len(self.places)}, as places"
                )
            if self.ranks.sequence_parallel and T % self.ranks.n:
                raise ValueError(
                    f"tokens have {T} in time, must divide by the {self.ranks.n} ranks with "
                    "sequence_parallel"
                )
            grad = torch.is_grad_enabled()
            return T, {"tokens' shape": list(tokens.shape), "the digest of tokens":
                       fingerprint(tokens), "whether gradients are taken": grad}  # fmt: skip

        return agreed(self.ranks.group, mine)[0]


class _Looked(Function):
    """The sum of what all ranks find of some words, and of positions."""

    @staticmethod
    def forward(ctx, words, positions, tokens: Tensor, places: Tensor, layer: VocabularyEmbedding):
        ranks = layer.ranks
        found = own(tokens, len(words))
        x = embedding(tokens.where(found, 0), words) * found.unsqueeze(-1)
        at = embedding(places, positions)
        if layer.scattered:
            x = ranks.scatter(x) + at.chunk(ranks.n)[ranks.rank]
        else:
            x = ranks.summed(x) + at
        ctx.layer, ctx.sizes = layer, (len(words), len(positions))
        ctx.save_for_backward(tokens, found, places)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, dx: Tensor):
        tokens, found, places = ctx.saved_tensors
        dx = ctx.layer.ranks.gather(dx) if ctx.layer.scattered else dx
        words, positions = (dx.new_zeros(size, dx.shape[-1]) for size in ctx.sizes)
        words.index_add_(0, tokens[found], dx[found])
        positions.index_add_(0, places, dx.sum(0))
        return words, positions, None, None, None


def cross_entropy(
    scores: Tensor, targets: Tensor, world: Group, kernel: Any = None, in_place: bool = False
) -> Tensor:
    """Mean cross-entropy, in nats, of scores [B, T, N/t] of this rank's part of the vocabulary.

    Parts follow each other by rank, each at least a word, and need not be as long. Ranks tell
    each other three numbers for each token, the largest score, the sum of exponentials and the
    target's score, whatever the vocabulary; backward sends nothing. It is the same on every rank,
    in fp32 at least. `targets` [B, T] are the same whole numbers on every rank.

    With `kernel`, weft.kernels.tensor, its `vocabulary_part` and `scores_gradient` do what torch's
    operations do otherwise, and read the scores twice in all. `in_place` lets backward overwrite
    the scores with their gradient.
    """
    ranks = TensorRanks(world)

    def mine() -> tuple[int, dict[str, Any]]:
        B, T, N = ranked("scores", scores, "B T N/t")
        tensor("targets", targets, "[B, T] of scores", (B, T), dtypes=("int64",),
               beside=("scores", scores))  # fmt: skip
        if kernel is not None and not all(hasattr(kernel, name) for name in KERNELS):
            raise ValueError(f"kernel is {kernel!r}, must be None, or have {' and '.join(KERNELS)}")
        told = {"scores' shape but for words": [B, T], "scores' dtype": dtype_of(scores)}
        return N, told | {"the digest of targets": fingerprint(targets)}

    parts = agreed(ranks.group, mine)
    check_words("targets", targets, sum(parts))  # the same on every rank
    first = [0, *accumulate(parts)][ranks.rank]
    both = [getattr(kernel, name) for name in KERNELS] if kernel else (_part, _gradient)
    return _CrossEntropy.apply(scores, targets - first, ranks, *both, in_place)


KERNELS = "vocabulary_part", "scores_gradient"


class _CrossEntropy(Function):
    """Its backward is exp(score - lse), less 1 where the target is, over the number of tokens."""

    @staticmethod
    def forward(ctx, scores, targets, ranks: TensorRanks, part, gradient, in_place: bool):
        own = part(scores, targets)
        most = own.most.clone()
        if ranks.n > 1:
            dist.all_reduce(most, dist.ReduceOp.MAX, group=ranks.group)
        sums = own.sums * (own.most - most).exp()
        sums, target = ranks.summed(torch.stack((sums, own.target)))
        lse = most + sums.log()
        ctx.save_for_backward(scores, targets, lse)
        ctx.gradient = partial(gradient, in_place=in_place)
        return (lse - target).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor):
        scores, targets, lse = ctx.saved_tensors
        return ctx.gradient(scores.detach(), targets, lse, dy / lse.numel()), *[None] * 5


def _part(scores: Tensor, targets: Tensor) -> VocabularyPart:
    """weft.ref.tensor.vocabulary_part with fewer copies; targets count from the first word here."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    most = scores.amax(-1).to(wide).clamp(min=torch.finfo(wide).min)  # -inf - -inf would be NaN
    sums = (scores.to(wide) - most.unsqueeze(-1)).exp_().sum(-1)
    at, found = _at(scores, targets)
    return VocabularyPart(most, sums, scores.gather(-1, at).squeeze(-1).to(wide).where(found, 0))


def _gradient(
    scores: Tensor, targets: Tensor, lse: Tensor, slope: Tensor, in_place: bool
) -> Tensor:
    """weft.ref.tensor.scores_gradient with fewer copies."""
    gradient = (scores.to(lse.dtype) - lse.unsqueeze(-1)).exp_().mul_(slope)
    at, found = _at(scores, targets)
    gradient.scatter_add_(-1, at, (-slope * found).unsqueeze(-1))
    return scores.copy_(gradient) if in_place else gradient.to(scores.dtype)


def _at(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of targets [.., 1], 0 where they are another rank's, and which are this rank's."""
    found = own(targets, scores.shape[-1])
    return targets.where(found, 0).unsqueeze(-1), found


def own(words: Tensor, count: int) -> Tensor:
    """Which words, counted from a rank's first, are among its `count`."""
    return (words >= 0) & (words < count)
