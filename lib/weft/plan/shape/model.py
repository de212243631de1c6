"""The shape of a transformer, and what follows from it: parameters and FLOPs of a step."""

from dataclasses import dataclass
from types import MappingProxyType

from weft.plan.arguments import sizes, whole

RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class ModelShape:
    """A decoder of `layers` layers, with `heads` heads over a `width`, on sequences of `seq`.

    `kv_heads` is G, and divides the heads; equal to them if None. `hidden` is F, four times the
    width if None. What follows says how a model differs from GPT: `gated` has a third matrix in
    the MLP; `bias` False leaves out biases and the shifts of norms; `tied` False gives the
    logits a matrix of their own; `positions` is how many positions have learned embeddings, seq
    if None; `norms` is how many norms stand outside the layers, which the formula below does not
    count.

    >>> shape = SHAPES["gpt3-175b"]
    >>> f"{shape.params / 1e9:.1f}", shape.key_width
    ('174.6', 128)
    """

    layers: int
    width: int
    heads: int
    vocab: int
    seq: int
    kv_heads: int | None = None
    hidden: int | None = None
    gated: bool = False
    bias: bool = True
    tied: bool = True
    positions: int | None = None
    norms: int = 0

    def __post_init__(self):
        for name in ("layers", "width", "heads", "vocab", "seq", "kv_heads", "hidden"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, *sizes(**{name: getattr(self, name)}))
        for name in ("positions", "norms"):
            count = getattr(self, name)
            if count is not None and (type(count) is not int or count < 0):
                raise ValueError(f"{name} is {count!r}, must be a whole number of at least 0")
        if self.width % self.heads:
            raise ValueError(f"width is {self.width}, must be a multiple of heads = {self.heads}")
        if self.heads % self.groups:
            raise ValueError(f"kv_heads is {self.kv_heads}, must divide heads = {self.heads}")

    @property
    def key_width(self) -> int:
        """K, the width of one head."""
        return self.width // self.heads

    @property
    def groups(self) -> int:
        """G, the heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def ffn(self) -> int:
        """F, the width of the hidden layer in the MLP."""
        return 4 * self.width if self.hidden is None else self.hidden

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """The matrices of one layer that activations are multiplied by: (inputs, outputs)."""
        up = (2 if self.gated else 1) * self.ffn
        qkv = self.width + 2 * self.groups * self.key_width
        return {
            "qkv": (self.width, qkv),
            "out": (self.width, self.width),
            "up": (self.width, up),
            "down": (self.ffn, self.width),
        }

    @property
    def layer_params(self) -> int:
        """Parameters of one layer; 12 D^2 + 13 D for GPT."""
        weights = sum(rows * columns for rows, columns in self.matrices.values())
        biases = sum(columns for _, columns in self.matrices.values()) if self.bias else 0
        return weights + biases + 2 * self._norm

    @property
    def params(self) -> int:
        """All parameters: layers, token and position embeddings, the norms outside the layers.

        For GPT this is 12 L D^2 (1 + 13 / (12 D) + (N + seq) / (12 L D)).
        Narayanan et al. 2021, section 5.1.
        """
        positions = self.seq if self.positions is None else self.positions
        embeddings = ((1 if self.tied else 2) * self.vocab + positions) * self.width
        return self.layers * self.layer_params + embeddings + self.norms * self._norm

    @property
    def _norm(self) -> int:
        return (2 if self.bias else 1) * self.width

    def flops(self, batch: int, recompute: str = "none") -> int:
        """FLOPs of a step on `batch` sequences: forward, backward and logits.

        Every multiplied weight costs 2 FLOPs a token forward and 4 backward; the scores of
        attention, all T x T of them, and their product with the values cost 4 T^2 D a layer and
        sequence, and twice that backward. "full" runs the forward of the layers once more;
        "selective" only the attention between the projections. For GPT, with B = batch:
        72 B T L D^2 (1 + T / (6 D) + N / (12 L D)) for "none", T / (3 D) in it for "selective",
        and 96 B T L D^2 (1 + T / (6 D) + N / (16 L D)) for "full".

        Narayanan et al. 2021, section 5.1; Korthikanti et al. 2022, appendix A. Their form for
        "selective" charges 12 B T^2 D for recomputing what cost 4 B T^2 D forward. We follow it,
        since the utilizations they print are made with it; `recomputed` counts what is done.
        """
        batch = whole("batch", batch)
        if recompute not in RECOMPUTE:
            raise ValueError(f"recompute is {recompute!r}, must be one of {', '.join(RECOMPUTE)}")
        tokens = batch * self.seq
        weights = sum(rows * columns for rows, columns in self.matrices.values())
        dense, attention = 2 * tokens * weights, 4 * tokens * self.seq * self.width
        logits = 2 * tokens * self.vocab * self.width
        again = {"none": 0, "selective": 3 * attention, "full": dense + attention}[recompute]
        return self.layers * (3 * (dense + attention) + again) + 3 * logits

    def recomputed(self, batch: int, recompute: str) -> int:
        """FLOPs that recomputing adds to a step, counted: one more forward of what is dropped."""
        extra = self.flops(batch, recompute) - self.flops(batch)
        return extra // 3 if recompute == "selective" else extra


def utilization(flops: float, seconds: float, peak: float, chips: int = 1) -> float:
    """The share of the peak that a step reached: FLOPs over seconds, chips and FLOP/s of a chip.

    Called model FLOPs utilization where `flops` counts no recomputing, hardware FLOPs
    utilization where it does.

    >>> shape = SHAPES["gpt-22b"]
    >>> f"{utilization(shape.flops(batch=4), seconds=1.10, peak=312e12, chips=8):.1%}"
    '41.7%'
    """
    chips = whole("chips", chips)
    return flops / (seconds * peak * chips)


def days(params: float, tokens: float, rate: float, chips: int = 1) -> float:
    """Days of training at `rate` FLOP/s a chip, by 8 FLOPs per parameter and token.

    That is 2 forward, 4 backward and 2 to recompute the forward. Narayanan et al. 2021,
    section 5.1.

    >>> round(days(175e9, tokens=300e9, rate=140e12, chips=1024))
    34
    """
    chips = whole("chips", chips)
    return 8 * params * tokens / (rate * chips) / 86400


def _gpt(layers: int, width: int, heads: int) -> ModelShape:
    """A GPT as Narayanan et al. 2021 and Korthikanti et al. 2022 train them."""
    return ModelShape(layers, width, heads, vocab=51200, seq=2048)


def _llama(layers, width, heads, vocab, seq, kv_heads, hidden) -> ModelShape:
    """Gated MLP, rotary positions, no biases, logits with their own matrix, a norm at the end."""
    lean = {"gated": True, "bias": False, "tied": False, "positions": 0, "norms": 1}
    return ModelShape(layers, width, heads, vocab, seq, kv_heads, hidden, **lean)


SHAPES = MappingProxyType(
    {
        # Narayanan et al. 2021, table 1 (gpt-1.7b to gpt-146b); Korthikanti et al. 2022, table 3.
        "gpt-1.7b": _gpt(24, 2304, 24),
        "gpt-3.6b": _gpt(30, 3072, 32),
        "gpt-7.5b": _gpt(36, 4096, 32),
        "gpt-39b": _gpt(48, 8192, 64),
        "gpt-76b": _gpt(60, 10240, 80),
        "gpt-146b": _gpt(80, 12288, 96),
        "gpt-22b": _gpt(48, 6144, 64),
        "gpt3-175b": _gpt(96, 12288, 96),
        "mt-nlg-530b": _gpt(105, 20480, 128),
        "gpt-1t": _gpt(128, 25600, 160),
        # ALiBi instead of positions, norms after the embedding and at the end. BigScience 2022.
        "bloom-176b": ModelShape(70, 14336, 112, 250880, 2048, positions=0, norms=2),
        # Two positions more than the longest sequence. Zhang et al. 2022 and its weights.
        "opt-13b": ModelShape(40, 5120, 40, 50272, 2048, positions=2050, norms=1),
        # Touvron et al. 2023; Grattafiori et al. 2024.
        "llama2-7b": _llama(32, 4096, 32, 32000, 4096, 32, 11008),
        "llama2-70b": _llama(80, 8192, 64, 32000, 4096, 8, 28672),
        "llama3-8b": _llama(32, 4096, 32, 128256, 8192, 8, 14336),
    }
)
