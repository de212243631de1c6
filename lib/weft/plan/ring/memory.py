"""How long a sequence fits: the peaks of Ring Attention's table 1, and its tables 2 and 3 again.

Table 3 was found by trying, the formulas count a layer's largest activation. So what they give is
at least what is printed, in every cell. It cannot be had from them: from 8 to 32 A100s a 7B
model's blockwise context grows from 32k to 128k tokens, though nothing of it is shared out there
but 16 bytes a parameter, which leaves 1.15 times as much memory. Not counted are a layer's gathered
weights and gradients, the logits and their gradient, and what a compiler needs.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple, SupportsIndex

from weft.plan.arguments import chosen, instance, sizes
from weft.plan.hardware import CHIPS, GIGA, LINKS, TERA, Chip, Link
from weft.plan.ring.price import least_block
from weft.plan.shape import ModelShape

# Liu et al. 2023, table 1: bytes of a layer's largest activation, of 16-bit numbers; of a device
# that has s tokens. The paper's h is the width D; in the first row, where n are the heads, it
# prints 2 b n s^2 and then 2 b h s^2 in total: we take the heads, whose scores these are.
PEAKS: dict[str, Callable[[ModelShape, int], int]] = {
    "vanilla": lambda shape, s: 2 * shape.heads * s * s,
    "memory_efficient": lambda shape, s: 8 * s * shape.width,
    "blockwise": lambda shape, s: 2 * s * shape.width,
    "ring": lambda shape, s: 6 * s * shape.width,
}
STATES = 16  # bytes of a parameter: weight, gradient and two moments in fp32
NUMBER = 4  # bytes of an activation in fp32


def longest(shape: ModelShape, chip: Chip, devices: SupportsIndex, method: str = "vanilla") -> int:
    """The longest context that fits: tokens, a power of two.

    Everything is fp32, the batch is 1. A device keeps its share of 16 bytes a parameter, each
    layer's input, and Table 1's peak of one layer. "ring" deals the tokens to the devices; with
    the others every device has a whole sequence. ValueError where not a token fits.

    >>> from weft.plan.hardware import CHIPS
    >>> [longest(MODELS["7B"], CHIPS["a100-80"], 32, method) >> 10 for method in PEAKS]
    [16, 64, 128, 4096]
    """
    instance(ModelShape, shape=shape)
    instance(Chip, chip=chip)
    (devices,) = sizes(devices=devices)
    peak = PEAKS[chosen("method", method, PEAKS)]
    free = chip.memory - STATES * shape.params / devices

    def fits(tokens: int) -> bool:
        here = -(-tokens // devices) if method == "ring" else tokens
        checkpoints = shape.layers * NUMBER * here * shape.width
        return checkpoints + NUMBER // 2 * peak(shape, here) <= free

    if not fits(1):
        raise ValueError(
            f"devices is {devices}, must be more: a {chip.name} has {chip.memory / 1e9:g} GB, and "
            f"the share of the states is {STATES * shape.params / devices / 1e9:.4g} GB"
        )
    tokens = 1
    while fits(2 * tokens):
        tokens *= 2
    return tokens


def _llama(layers: int, width: int, heads: int, hidden: int) -> ModelShape:
    lean = {"gated": True, "bias": False, "tied": False, "positions": 0, "norms": 1}
    return ModelShape(layers, width, heads, 32000, 4096, hidden=hidden, **lean)


MODELS = MappingProxyType(  # the paper's LLaMA: Touvron et al. 2023; 3B as OpenLLaMA has it
    {
        "3B": _llama(26, 3200, 32, 8640),
        "7B": _llama(32, 4096, 32, 11008),
        "13B": _llama(40, 5120, 40, 13824),
        "30B": _llama(60, 6656, 52, 17920),
    }
)
A100 = CHIPS["a100-80"]


def _tpu(name: str, rate: float, bandwidth: float, memory: float, ici: float) -> tuple[Chip, Link]:
    source = "Liu et al. 2023, table 2, and Google's pages on TPUs"
    chip = Chip(name, {"bf16": rate * TERA}, bandwidth * GIGA, memory * GIGA, source=source)
    return chip, Link(f"{name} ICI", ici * GIGA, 0.0, source)


_V3, _V4, _V5E = (
    _tpu("tpu-v3", 123, 900, 32, 112),
    _tpu("tpu-v4", 275, 1228, 32, 268),
    _tpu("tpu-v5e", 196, 819, 16, 186),
)


class BlockRow(NamedTuple):
    """A row of table 2: thousands of tokens as printed, of a block and of a sequence."""

    chip: Chip
    link: Link
    block: float
    sequence: float

    @property
    def counted(self) -> tuple[int, int]:
        """The same by the formulas: F / B, and six times that."""
        c = least_block(self.chip, self.link)
        return c, 6 * c


TABLE_2 = (
    BlockRow(A100, LINKS["nvlink3"], 1.0, 6.2),
    BlockRow(A100, Link("InfiniBand, 100 Gbit/s", 12.5e9, 0.0), 24.5, 149.5),
    BlockRow(*_V3, 1.1, 6.6),
    BlockRow(*_V4, 1.0, 6.2),
    BlockRow(*_V5E, 1.1, 6.3),
)


class ContextRow(NamedTuple):
    """A row of table 3: thousands of tokens as printed, by method, in the order of PEAKS."""

    name: str
    chip: Chip
    devices: int
    model: str
    printed: tuple[int, int, int, int]

    @property
    def counted(self) -> tuple[int, ...]:
        """The same by the formulas."""
        shape = MODELS[self.model]
        return tuple(longest(shape, self.chip, self.devices, m) >> 10 for m in PEAKS)


# A TPU v3's and v4's number counts cores, of which a chip has two.
TABLE_3 = tuple(
    ContextRow(name, chip, devices, model, printed)
    for name, chip, devices, rows in (
        (
            "8x A100 NVLink", A100, 8,
            {"3B": (4, 32, 64, 512), "7B": (2, 16, 32, 256), "13B": (2, 4, 16, 128)},
        ),
        ("32x A100 InfiniBand", A100, 32, {"7B": (4, 64, 128, 4096), "13B": (4, 32, 64, 2048)}),
        ("TPUv3-512", _V3[0], 256, {"7B": (1, 4, 8, 2048), "13B": (1, 2, 8, 1024)}),
        (
            "TPUv4-1024", _V4[0], 512,
            {
                "3B": (8, 16, 32, 16384), "7B": (4, 8, 16, 8192),
                "13B": (4, 8, 16, 4096), "30B": (2, 4, 8, 2048),
            },
        ),
        ("TPUv5e-256", _V5E[0], 256, {"3B": (4, 8, 32, 4096), "7B": (2, 8, 16, 2048)}),
    )
    for model, printed in rows.items()
)  # fmt: skip
