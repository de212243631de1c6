"""A step of decoding on some GPUs: its least time, what fits, and the batch that is fast enough."""

from dataclasses import dataclass, replace
from types import MappingProxyType

from weft.plan import roofline
from weft.plan.arguments import amount, instance, sizes, whole
from weft.plan.decode.cache import bytes_per_token
from weft.plan.hardware import Chip
from weft.plan.roofline import Work
from weft.plan.shape import SHAPES, Experts, Latent, ModelShape

MOST_SEQUENCES = 2**20

_LLAMA3_70B = replace(SHAPES["llama2-70b"], vocab=128256, seq=8192)
_LATENT = Latent(key_value=512, rope=64, value=128, query=1536)
_OF_V3 = {"head": 192, "latent": _LATENT}  # 128 elements and 64 for the position

SERVED = MappingProxyType(
    {
        "llama2-7b": SHAPES["llama2-7b"],
        "llama3-8b": SHAPES["llama3-8b"],
        "llama3-70b": _LLAMA3_70B,  # Grattafiori et al. 2024, as the next
        "llama3-405b": replace(_LLAMA3_70B, layers=126, width=16384, heads=128, hidden=53248),
        "deepseek-v3": ModelShape(  # DeepSeek-AI 2024 (V3), section 4.2
            layers=61, width=7168, heads=128, vocab=129280, seq=4096, hidden=18432, gated=True,
            bias=False, tied=False, positions=0, norms=1,
            experts=Experts(count=256, active=8, hidden=2048, shared=2048, layers=58), **_OF_V3,
        ),
        # Llama 3 70B as it would be with other heads.
        "70b mha": replace(_LLAMA3_70B, kv_heads=64),
        "70b gqa": _LLAMA3_70B,
        "70b mqa": replace(_LLAMA3_70B, kv_heads=1),
        "70b mla": replace(_LLAMA3_70B, kv_heads=None, **_OF_V3),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Server:
    """A dense model on `n` GPUs of one kind, each with an n-th of weights and caches.

    Weights are in 16 bits, an element of the cache has `cache` bytes. `reached` is the share of
    the chip's bandwidth and rate that kernels get, `usable` the share of its memory that weights
    and caches may fill, `wait` the seconds of a step that neither explains: messages between the
    GPUs, launches. Experts are not counted: ValueError.

    >>> from weft.plan.hardware import CHIPS
    >>> one = Server(SERVED["llama3-8b"], CHIPS["h100"])
    >>> round(one.seconds(1, 4096) * 1e3, 1), one.room(4096), one.batch(4096, limit=0.010)
    (4.6, 104, 34)
    """

    shape: ModelShape
    chip: Chip
    n: int = 1
    cache: int = 2
    reached: float = 1.0
    usable: float = 0.9
    wait: float = 0.0

    def __post_init__(self):
        instance(ModelShape, shape=self.shape)
        instance(Chip, chip=self.chip)
        sizes(n=self.n, cache=self.cache)
        amount("wait", self.wait)
        for name in ("reached", "usable"):
            if not amount(name, getattr(self, name), above=True) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at most 1")
        if self.shape.experts:
            raise ValueError("shape has experts, must have none: decoding with them is not counted")

    @property
    def weights(self) -> int:
        """Bytes of the parameters."""
        return 2 * self.shape.params

    def held(self, context: int) -> int:
        """Bytes of the cache of one sequence."""
        return whole("context", context) * bytes_per_token(self.shape, self.cache)

    def room(self, context: int) -> int:
        """Sequences of `context` tokens whose caches fit beside the weights."""
        left = self.usable * self.n * self.chip.memory - self.weights
        return max(0, int(left // self.held(context)))

    def matmuls(self, rows: int) -> Work:
        """All matmuls with weights, for so many tokens: the layers' and the logits'."""
        (rows,) = sizes(rows=rows)
        shape = self.shape
        each = (roofline.matmul(rows, out, into, 2) for into, out in shape.matrices.values())
        return shape.layers * sum(each, roofline.NOTHING) + roofline.matmul(
            rows, shape.vocab, shape.width, 2
        )

    def attention(self, batch: int, context: int, T: int = 1) -> Work:
        """T queries of each sequence over its own cache, which is read once."""
        batch, T = sizes(batch=batch, T=T)
        held = self.held(context)
        if context < T:
            raise ValueError(f"T is {T}, must be at most context = {context}, which holds them")
        latent, shape = self.shape.latent, self.shape
        each = latent.cached + latent.key_value if latent else 2 * shape.key_width  # K + V
        flops = 2 * shape.layers * batch * T * context * shape.heads * each
        return Work(flops, batch * held)

    def seconds(self, batch: int, context: int, T: int = 1) -> float:
        """The least time of a step: attention and matmuls, each at its roof, and the wait."""
        parts = self.attention(batch, context, T), self.matmuls(batch * T)
        at_roof = sum(roofline.seconds(work, self.chip, "bf16") for work in parts)
        return at_roof / (self.n * self.reached) + self.wait

    def rate(self, batch: int, context: int) -> float:
        """Tokens per second of all sequences together, at most."""
        return batch / self.seconds(batch, context)

    def batch(self, context: int, limit: float) -> int:
        """The most sequences of `context` tokens that fit and whose step takes `limit` or less."""
        limit = amount("limit", limit, above=True)
        low, high = 0, min(self.room(context), MOST_SEQUENCES)
        while low < high:
            middle = (low + high + 1) // 2
            if self.seconds(middle, context) <= limit:
                low = middle
            else:
                high = middle - 1
        return low


def expert_bytes(
    shape: ModelShape, experts: int, batch: int, context: int, weight: int = 1, cache: int = 2
) -> tuple[int, int]:
    """What a GPU reads in a step of a model with experts: bytes of weights, and of caches.

    It attends for `batch` sequences of its own, so it reads all that is no routed expert, and
    `experts` of these in each layer that has some, `weight` bytes a parameter. The embedding is
    looked up, not read.

    >>> [round(n / 1e9, 1) for n in expert_bytes(SERVED["deepseek-v3"], 2, 88, 4989)]
    [21.3, 30.9]
    """
    instance(ModelShape, shape=shape)
    if not shape.experts:
        raise ValueError("shape has no experts, must have some")
    experts, batch, context, weight, cache = sizes(
        experts=experts, batch=batch, context=context, weight=weight, cache=cache
    )
    layers = shape.experts.layers or shape.layers
    routed = layers * (experts - shape.experts.count) * shape.expert_params
    weights = weight * (shape.params - shape.vocab * shape.width + routed)
    return weights, batch * context * bytes_per_token(shape, cache)


def expected_tokens(acceptance: float, guesses: int) -> float:
    """Tokens that a step makes, on average, if each guess is right with the same chance.

    (1 - a^(g + 1)) / (1 - a): the guesses up to the first wrong one, and one that the model makes
    itself. Leviathan et al. 2023, equation 1.

    >>> expected_tokens(0.5, 2), expected_tokens(1.0, 3), round(expected_tokens(0.8, 4), 2)
    (1.75, 4.0, 3.36)
    """
    guesses = whole("guesses", guesses, least=0)
    if amount("acceptance", acceptance) > 1:
        raise ValueError(f"acceptance is {acceptance}, must be at most 1")
    if acceptance == 1:
        return guesses + 1.0
    return (1 - acceptance ** (guesses + 1)) / (1 - acceptance)


def speculation(
    server: Server, batch: int, context: int, acceptance: float, guesses: int, draft: float
) -> float:
    """How many times as many tokens per second a batch makes if it guesses.

    The step that checks has guesses + 1 queries for each sequence. Each guess costs `draft` of a
    step without. Below 1 it is slower.

    >>> from weft.plan.hardware import CHIPS
    >>> one = Server(SERVED["llama3-8b"], CHIPS["h100"])
    >>> [round(speculation(one, batch, 2048, 0.8, 4, draft=0.05), 2) for batch in (1, 256)]
    [2.8, 1.89]
    """
    instance(Server, server=server)
    draft, made = amount("draft", draft), expected_tokens(acceptance, guesses)
    plain = server.seconds(batch, context)
    if guesses >= context:
        raise ValueError(f"guesses is {guesses}, must be below context = {context}")
    checked = server.seconds(batch, context, T=guesses + 1) + guesses * draft * plain
    return made * plain / checked
