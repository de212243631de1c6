"""What a sequence keeps in Griffin: a number for each channel, and a window of keys and values."""

from typing import NamedTuple

from weft.plan.arguments import instance, positive, sizes, whole
from weft.plan.griffin.gates import gate_parameters
from weft.plan.hardware import Chip

LAYERS = {"recurrent": 18, "attention": 8}  # of RecurrentGemma 2B, in the order 2 to 1
SIZES = {"width": 2560, "G": 1, "K": 256, "window": 2048}
VOCABULARY, BLOCKS, MLP = 256_000, 10, 3  # the last in widths


class GriffinState(NamedTuple):
    """Bytes of one sequence: of the recurrences, their convolutions, and the windows."""

    recurrent: int
    taps: int
    window: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def sequence_bytes(
    T: int,
    recurrent: int,
    attention: int,
    width: int,
    G: int,
    K: int,
    window: int,
    taps: int = 4,
    size: int = 2,
) -> GriffinState:
    """Bytes that T tokens leave behind in so many recurrent and attention layers.

    The recurrence keeps a channel in fp32, the convolution its last taps - 1 inputs, attention
    keys and values of min(T, window) tokens; the last two in numbers of `size` bytes.

    >>> sequence_bytes(8192, 18, 8, width=2560, G=1, K=256, window=2048)
    GriffinState(recurrent=184320, taps=276480, window=16777216)
    """
    recurrent = whole("recurrent", recurrent, least=0)
    attention = whole("attention", attention, least=0)
    T = whole("T", T, least=0)
    width, G, K, window, taps, size = sizes(
        width=width, G=G, K=K, window=window, taps=taps, size=size
    )
    return GriffinState(
        recurrent * width * 4,
        recurrent * width * (taps - 1) * size,
        attention * min(T, window) * 2 * G * K * size,
    )


def cache_bytes(T: int, layers: int, G: int, K: int, size: int = 2) -> int:
    """Bytes of a transformer's KV cache for the same tokens.

    >>> cache_bytes(8192, 26, G=1, K=256) / 2**20
    208.0
    """
    T = whole("T", T, least=0)
    layers, G, K, size = sizes(layers=layers, G=G, K=K, size=size)
    return T * layers * 2 * G * K * size


def recurrentgemma(T: int) -> GriffinState:
    """What T tokens leave behind in RecurrentGemma 2B, with its numbers of two bytes.

    >>> recurrentgemma(8192).window // recurrentgemma(8192).recurrent
    91
    """
    return sequence_bytes(T, **LAYERS, **SIZES)


def parameters() -> int:
    """Weights of RecurrentGemma 2B's matrices; the embedding is also the output.

    Three matrices in each MLP, three around each recurrence besides its gates, four in attention,
    of which two are as narrow as its one kv head.

    >>> round(parameters() / 1e9, 2)
    2.68
    """
    width, narrow = SIZES["width"], SIZES["G"] * SIZES["K"]
    recurrent = 3 * width**2 + gate_parameters(width, BLOCKS)
    attention = 2 * width**2 + 2 * width * narrow
    mlps = sum(LAYERS.values()) * 3 * MLP * width**2
    mixers = LAYERS["recurrent"] * recurrent + LAYERS["attention"] * attention
    return VOCABULARY * width + mlps + mixers


def decode_seconds(chip: Chip, chats: float, moved: float, params: float) -> float:
    """Seconds of a decoding step in bf16: the weights' matmuls, then what each chat reads alone.

    The matmuls read 2 bytes a parameter once, or compute 2 FLOPs for it and each chat, whichever
    is longer; after them `moved` bytes a chat are read and written. A kernel follows the other,
    so the times add up.

    >>> from weft.plan.hardware import CHIPS
    >>> h200 = CHIPS["h200"]
    >>> few, many = (decode_seconds(h200, n, 0.0001, 1e9) for n in (1, 1000))
    >>> round(few * h200.bandwidth / 2e9, 6), round(many * h200.rate("bf16") / 2e12, 6)
    (1.0, 1.0)
    """
    instance(Chip, chip=chip)
    chats, moved, params = positive(chats=chats, moved=moved, params=params)
    matmuls = max(2 * params / chip.bandwidth, 2 * params * chats / chip.rate("bf16"))
    return matmuls + chats * moved / chip.bandwidth
