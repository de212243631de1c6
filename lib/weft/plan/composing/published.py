"""Steps that others have timed, beside what `estimate` says of them: how far it is to be trusted.

Every row has its source, and conventions are undone: what is compared is seconds, made from what
was printed, FLOP/s by the row's own count or tokens per second. The same constants serve all rows.
Those of `reached` come from elsewhere, but for the A100's matmuls, from LAYERS; what BLOOM's
software loses with a microbatch is fitted to the table "bloom fp16", which is therefore no test.
The tables of B200, of experts, of torchtitan on H100 and of Llama 3 were held out: nothing was
changed for what they say but the count of what is sent, and PyTorch's attention is its own.

Experts take longer than planned, by up to four times, most where few rows go to each. What is not
there: routing and sorting by small kernels, hosts that wait for how many rows come and launch late,
grouped matmuls below the rate of large ones, and what the recipes recompute.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from weft.plan.arguments import chosen, instance, row
from weft.plan.composing.cluster import CLUSTERS, Cluster
from weft.plan.composing.estimate import Estimate, estimate
from weft.plan.composing.layout import Layout
from weft.plan.hardware import CHIPS
from weft.plan.shape import SHAPES, Experts, Latent, ModelShape


@dataclass(frozen=True)
class PublishedStep:
    """One row of a table: a step that took `seconds`, and bytes of `memory` where it is printed."""

    table: str
    name: str
    shape: ModelShape
    layout: Layout
    batch: int
    cluster: Cluster
    seconds: float
    dtype: str = "bf16"
    memory: float | None = None


class Compared(NamedTuple):
    """A row and its estimate; errors are shares of what was published, above 0 if it is less."""

    step: PublishedStep
    estimate: Estimate

    @property
    def error(self) -> float:
        """(predicted - published) / published."""
        return self.estimate.seconds / self.step.seconds - 1

    @property
    def memory_error(self) -> float | None:
        """The same of bytes; None where none were published."""
        read = self.step.memory
        return None if read is None else self.estimate.memory / read - 1


class Errors(NamedTuple):
    """Of some rows: the mean of errors without their signs, the largest of them, and with signs."""

    average: float
    worst: float
    bias: float


TABLES = MappingProxyType(
    {
        "korthikanti": "Korthikanti et al. 2022, table 5 (also in Calculon's validation.py)",
        "narayanan": "Narayanan et al. 2021, table 1; layouts: Megatron-LM's sc21/run_table_1.sh",
        "korthikanti 2240": "the same paper's abstract: MFU of 530B on 2240 A100",
        "narayanan 2": "Narayanan et al. 2021, table 2; that 96 GPUs are 8 x 12: secondary",
        "bloom": "BigScience, tr11-176B-ml: the log at iteration 85376, and "
        "chronicles-prequel.md, steps in bf16 of 28 February 2022",
        "bloom fp16": "the same page, steps in fp16 of 25 to 27 February 2022",
        "bridge": "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md, 25.11, DGX-H100",
        "bridge b200": "the same page: DGX-B200 and DGX-GB200, dense models",
        "bridge experts": "the same page, models with experts, on all three; load is balanced by "
        "force, what is recomputed is not printed; the row of Qwen3 235B on H100 has no batch",
        "llama 3": "Llama 3, 2024, table 4, by others' quotes; v is not printed: secondary",
        "torchtitan h100": "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: H100 "
        "with 96 GB at 2.4 TB/s, held to 500 of 700 W, which is not in the plan's rates",
        "torchtitan": "pytorch/torchtitan, docs/performance.md of 2024: 64 A100",
        "llm-foundry": "mosaicml/llm-foundry, scripts/train/benchmarking/README.md",
        "mt-nlg": "Smith et al. 2022, section 2.4, by others' quotes: secondary",
    }
)
TESTS = (
    "korthikanti",
    "narayanan",
    "bloom",
    "bridge",
    "bridge b200",
)  # what a system made for speed has timed


def compared(table: str | None = None) -> tuple[Compared, ...]:
    """The rows of one of TABLES, or of all, with their estimates.

    >>> print(f"{errors(compared('korthikanti')).average:.1%}")
    1.9%
    """
    if table is not None:
        chosen("table", table, TABLES)
    rows = (step for step in STEPS if table in (None, step.table))
    return tuple(Compared(step, predicted(step)) for step in rows)


def predicted(step: PublishedStep) -> Estimate:
    """What `estimate` says of a row."""
    cluster = step.cluster.of(step.layout.devices)
    return estimate(step.shape, step.layout, step.batch, cluster, step.dtype)


def errors(rows: Iterable[Compared], what: str = "seconds") -> Errors:
    """How large the errors of some rows are, as shares of what was published.

    `what` is "seconds", or "memory": of those rows alone that have a reading of it.

    >>> print(f"{errors(compared('torchtitan h100'), 'memory').worst:.0%}")
    49%
    """
    chosen("what", what, ("seconds", "memory"))
    found = row("rows", rows)
    for i, one in enumerate(found):
        instance(Compared, **{f"rows[{i}]": one})
    if what == "seconds":
        found = [one.error for one in found]
    else:
        found = [one.memory_error for one in found if one.memory_error is not None]
        if not found:
            raise ValueError("rows have no reading of memory, must have one at least")
    sizes = [abs(error) for error in found]
    return Errors(sum(sizes) / len(sizes), max(sizes), sum(found) / len(found))


# --- the rows -------------------------------------------------------------------------------------

_SELENE = CLUSTERS["selene"]


def _korthikanti() -> Iterable[PublishedStep]:
    for name, p, v, batch, microbatch, full, ours in (
        ("gpt-22b", 1, 1, 4, 4, 1.42, 1.10),
        ("gpt3-175b", 8, 3, 64, 1, 18.13, 13.75),
        ("mt-nlg-530b", 35, 3, 280, 1, 49.05, 37.83),
        ("gpt-1t", 64, 1, 512, 1, 94.42, 71.49),
    ):
        for recompute, seconds in (("full", full), ("selective", ours)):
            layout = Layout(
                p=p, t=8, v=v, microbatch=microbatch, recompute=recompute,
                sequence_parallel=recompute == "selective",
            )  # fmt: skip
            yield PublishedStep(
                "korthikanti", f"{name}, {recompute}", SHAPES[name], layout, batch, _SELENE, seconds
            )


def _wide() -> Iterable[PublishedStep]:
    shape, batch = SHAPES["mt-nlg-530b"], 2240  # 8 copies of table 5's 280
    for recompute, mfu in (("full", 0.421), ("selective", 0.542)):
        layout = Layout(
            35, 8, 8, v=3, recompute=recompute, sequence_parallel=recompute == "selective"
        )
        seconds = shape.flops(batch) / (mfu * layout.devices * _SELENE.chip.rate("bf16"))
        yield PublishedStep("korthikanti 2240", recompute, shape, layout, batch, _SELENE, seconds)


def _narayanan_2() -> Iterable[PublishedStep]:
    cluster, shape, batch = replace(_SELENE, software="2021"), SHAPES["gpt3-175b"], 1536
    for devices, rate in ((384, 153), (768, 149), (1536, 141)):
        layout = Layout(p=12, t=8, d=devices // 96, recompute="full")
        seconds = shape.flops(batch, "full") / (devices * rate * 1e12)
        name = f"gpt3-175b, {devices} A100"
        yield PublishedStep("narayanan 2", name, shape, layout, batch, cluster, seconds, "fp16")


def _narayanan() -> Iterable[PublishedStep]:
    cluster = replace(_SELENE, software="2021")
    for name, p, t, v, devices, batch, microbatch, rate in (
        ("gpt-1.7b", 1, 1, 1, 32, 512, 16, 137),
        ("gpt-3.6b", 1, 2, 1, 64, 512, 16, 138),
        ("gpt-7.5b", 1, 4, 1, 128, 512, 16, 142),
        ("gpt-39b", 2, 8, 1, 512, 1536, 4, 138),
        ("gpt-76b", 4, 8, 3, 1024, 1792, 2, 140),
        ("gpt-146b", 8, 8, 2, 1536, 2304, 2, 148),
        ("mt-nlg-530b", 35, 8, 3, 2520, 2520, 1, 163),
        ("gpt-1t", 64, 8, 1, 3072, 3072, 1, 163),
    ):
        d = devices // (p * t)
        layout = Layout(p, t, d, v=v, microbatch=microbatch, recompute="full")
        seconds = SHAPES[name].flops(batch, "full") / (devices * rate * 1e12)
        yield PublishedStep(
            "narayanan", name, SHAPES[name], layout, batch, cluster, seconds, "fp16"
        )


def _bloom_shape(width: int, layers: int, heads: int) -> ModelShape:
    return replace(SHAPES["bloom-176b"], width=width, layers=layers, heads=heads)


def _bloom() -> Iterable[PublishedStep]:
    jean_zay = CLUSTERS["jean-zay"]

    def made(table, name, sizes, p, t, d, microbatch, batch, seconds, dtype):
        layout = Layout(p, t, d, microbatch=microbatch, zero=1, recompute="full")
        shape = _bloom_shape(*sizes)
        return PublishedStep(table, name, shape, layout, batch, jean_zay, seconds, dtype)

    log = (14336, 70, 112), 12, 4, 8, 2, 2048, 2048 / 19.561
    yield made("bloom", "the log", *log, "bf16")
    for table, dtype, steps in (("bloom", "bf16", _BF16), ("bloom fp16", "fp16", _FP16)):
        for sizes, p, t, d, microbatch, batch, seconds in steps:
            width, layers, heads = sizes
            name = f"{layers} layers of {width}, {heads} heads"
            yield made(table, name, sizes, p, t, d, microbatch, batch, seconds, dtype)


# (width, layers, heads), p, t, d, sequences in a microbatch and in a batch, seconds
_BF16 = (
    ((12288, 106, 64), 12, 4, 8, 2, 2048, 116.54),
    ((12288, 106, 96), 12, 4, 8, 2, 2048, 118.79),
    ((12288, 106, 128), 12, 4, 8, 2, 2048, 121.42),
    ((12288, 106, 96), 12, 4, 8, 4, 2048, 120.34),
    ((12288, 100, 64), 6, 8, 8, 2, 2048, 139.72),
    ((12288, 100, 64), 6, 8, 8, 4, 2048, 120.96),
    ((13312, 82, 64), 12, 8, 4, 4, 2048, 111.79),
    ((13312, 82, 64), 12, 4, 8, 2, 2048, 104.45),
    ((13312, 82, 104), 12, 4, 8, 2, 2048, 123.71),
    ((13312, 82, 128), 12, 4, 8, 2, 2048, 108.78),
    ((13312, 82, 64), 12, 4, 8, 4, 2048, 104.82),
    ((14336, 70, 64), 12, 8, 4, 2, 2048, 121.63),
    ((14336, 70, 64), 12, 4, 8, 2, 2048, 102.03),
    ((14336, 70, 112), 12, 4, 8, 2, 2048, 104.50),
    ((14336, 70, 128), 12, 4, 8, 2, 2048, 105.89),
    ((14336, 70, 64), 12, 4, 8, 4, 2048, 102.27),
)
_FP16 = (
    ((14336, 72, 64), 6, 8, 8, 4, 2048, 114.11),
    ((14336, 72, 64), 12, 8, 4, 4, 1568, 92.75),
    ((14336, 72, 64), 12, 8, 4, 4, 2048, 117.07),
    ((14336, 72, 64), 12, 8, 4, 2, 1568, 99.93),
    ((14336, 72, 64), 12, 8, 4, 2, 2048, 128.82),
    ((14336, 72, 64), 8, 8, 6, 4, 2016, 113.16),
    ((14336, 72, 64), 4, 8, 12, 2, 2016, 125.52),
    ((14336, 72, 64), 4, 8, 12, 4, 2016, 114.81),
    ((14336, 72, 64), 2, 8, 24, 1, 2016, 145.45),
    ((14336, 72, 64), 2, 8, 24, 2, 2016, 136.13),
    ((14336, 72, 64), 12, 4, 8, 4, 2048, 111.89),
    ((14336, 72, 64), 12, 4, 8, 2, 2048, 110.48),
    ((14336, 72, 64), 6, 4, 16, 4, 2048, 117.11),
    ((14336, 72, 64), 6, 4, 16, 2, 2048, 111.71),
    ((14336, 72, 64), 12, 2, 16, 2, 2048, 112.50),
    ((14336, 72, 64), 24, 2, 8, 1, 2048, 119.53),
    ((14336, 72, 64), 24, 2, 8, 2, 2048, 122.75),
    ((14336, 72, 64), 24, 4, 4, 1, 2048, 130.60),
    ((12288, 96, 64), 48, 1, 8, 1, 2048, 142.17),
    ((14336, 72, 64), 12, 4, 8, 2, 2048, 110.42),
    ((14336, 72, 128), 12, 4, 8, 2, 2048, 114.02),
    ((14336, 72, 64), 6, 8, 8, 4, 2048, 113.95),
    ((14336, 72, 128), 6, 8, 8, 4, 2048, 116.06),
    ((13312, 84, 64), 12, 4, 8, 2, 2048, 103.82),
    ((13312, 84, 64), 12, 4, 8, 4, 2048, 113.21),
    ((13312, 84, 64), 6, 8, 8, 2, 2048, 129.61),
    ((13824, 78, 96), 6, 8, 8, 2, 2048, 133.57),
    ((13824, 78, 96), 6, 8, 8, 4, 2048, 118.24),
    ((13824, 78, 96), 6, 4, 16, 4, 2048, 115.55),
)


def _mpt(layers: int, width: int, heads: int) -> ModelShape:
    return ModelShape(layers, width, heads, vocab=50368, seq=2048, norms=1)


_LLAMA3 = {"8b": SHAPES["llama3-8b"]}
_LLAMA3["70b"] = replace(_LLAMA3["8b"], layers=80, width=8192, heads=64, hidden=28672)
_LLAMA3["405b"] = replace(_LLAMA3["8b"], layers=126, width=16384, heads=128, hidden=53248)
_LLAMA2 = {"70b": SHAPES["llama2-70b"]}
_LLAMA2["13b"] = replace(
    SHAPES["llama2-7b"], layers=40, width=5120, heads=40, kv_heads=40, hidden=13824
)


def _by_rate() -> Iterable[PublishedStep]:
    """Rows that print tokens per second and device."""
    h100, a100 = CLUSTERS["h100-pod"], replace(_SELENE, software="today")
    torch_h100 = replace(h100, software="pytorch")
    sharded = {"zero": 3, "recompute": "full"}
    for table, name, shape, cluster, batch, layout, rate, dtype in (
        ("bridge", "llama3-8b, FSDP", _LLAMA3["8b"], h100, 128, {"d": 8, "zero": 3}, 14451, "fp8"),
        ("bridge", "llama3-70b", _LLAMA3["70b"], h100, 128,
         {"p": 8, "t": 4, "d": 2, "v": 5, "zero": 1, "sequence_parallel": True}, 1602, "fp8"),
        ("bridge", "llama3-405b", _LLAMA3["405b"], h100, 512,
         {"p": 8, "t": 8, "d": 8, "c": 2, "v": 8, "zero": 1, "sequence_parallel": True},
         292, "fp8"),
        ("torchtitan", "llama3-8b, selective", _LLAMA3["8b"], a100, 64,
         {"d": 64, "zero": 3, "recompute": "selective"}, 2973, "bf16"),
        ("torchtitan", "llama3-70b", _LLAMA3["70b"], a100, 64, {"d": 64} | sharded, 331, "bf16"),
        ("torchtitan", "llama2-13b", _LLAMA2["13b"], a100, 128,
         {"d": 64, "zero": 3, "microbatch": 2}, 2162, "bf16"),
        ("torchtitan", "llama2-70b", _LLAMA2["70b"], a100, 128,
         {"d": 64, "microbatch": 2} | sharded, 353, "bf16"),
        ("llm-foundry", "mpt-70b, 64 A100", _mpt(80, 8192, 64), a100, 2048,
         {"d": 64, "microbatch": 8} | sharded, 410, "bf16"),
        ("llm-foundry", "mpt-70b, 32 A100", _mpt(80, 8192, 64), a100, 1024,
         {"d": 32, "microbatch": 2} | sharded, 373, "bf16"),
        ("llm-foundry", "mpt-13b, 8 A100", _mpt(40, 5120, 40), a100, 48,
         {"d": 8, "zero": 3, "microbatch": 2}, 2262, "bf16"),
        ("llm-foundry", "mpt-7b, 8 A100", _mpt(32, 4096, 32), a100, 96,
         {"d": 8, "zero": 3, "microbatch": 6}, 4641, "bf16"),
        ("llm-foundry", "mpt-70b, 64 H100", _mpt(80, 8192, 64), torch_h100, 2048,
         {"d": 64, "microbatch": 8} | sharded, 1039, "bf16"),
        ("llm-foundry", "mpt-70b, 32 H100", _mpt(80, 8192, 64), torch_h100, 1024,
         {"d": 32, "microbatch": 2} | sharded, 882, "bf16"),
        ("llm-foundry", "mpt-30b, 32 H100", _mpt(48, 7168, 56), torch_h100, 1344,
         {"d": 32, "microbatch": 14} | sharded, 2308, "bf16"),
        ("llm-foundry", "mpt-13b, 64 H100", _mpt(40, 5120, 40), torch_h100, 128,
         {"d": 64, "zero": 3, "microbatch": 2}, 4800, "bf16"),
        ("llm-foundry", "mpt-7b, 8 H100", _mpt(32, 4096, 32), torch_h100, 48,
         {"d": 8, "zero": 3, "microbatch": 6}, 10643, "bf16"),
    ):  # fmt: skip
        made = Layout(**layout)
        seconds = batch * shape.seq / (made.devices * rate)
        yield PublishedStep(table, name, shape, made, batch, cluster, seconds, dtype)


_QWEN3 = ModelShape(
    layers=94, width=4096, heads=64, vocab=151936, seq=4096, kv_heads=4, hidden=12288, head=128,
    gated=True, bias=False, tied=False, positions=0, norms=1, head_norms=True,
    experts=Experts(count=128, active=8, hidden=1536),
)  # fmt: skip
_QWEN3_30B = replace(
    _QWEN3, layers=48, width=2048, heads=32, hidden=6144, experts=Experts(128, 8, hidden=768)
)
_GPT_OSS = ModelShape(
    layers=36, width=2880, heads=64, vocab=201088, seq=4096, kv_heads=8, hidden=2880, head=64,
    gated=True, bias=False, tied=False, positions=0, norms=1, sinks=True, window=128, windowed=18,
    biased=("router", "experts", "qkv", "q down", "kv down", "out"),
    experts=Experts(count=128, active=4, hidden=2880),
)  # fmt: skip
_DEEPSEEK = ModelShape(
    layers=61, width=7168, heads=128, vocab=129280, seq=4096, hidden=18432, head=192,
    gated=True, bias=False, tied=False, positions=0, norms=1,
    experts=Experts(count=256, active=8, hidden=2048, shared=2048, layers=58),
    latent=Latent(key_value=512, rope=64, value=128, query=1536),
)  # fmt: skip


def _blackwell() -> Iterable[PublishedStep]:
    """Rows of Megatron-Bridge beside those of dense models on H100s.

    Experts of GB200s lie in 64 of a rack's 72 GPUs: ranks of 64 are never in two racks.
    """
    h100, rack = CLUSTERS["h100-pod"], replace(CLUSTERS["nvl72-pod"], node=64)
    boxes = replace(rack, node=8)
    parallel = {"zero": 1, "sequence_parallel": True}
    one = {"d": 8, "e": 8, "zero": 1}
    for table, name, shape, cluster, batch, layout, rate, dtype in (
        ("bridge b200", "llama3-8b, B200", _LLAMA3["8b"], boxes, 128,
         {"d": 8, "microbatch": 2, "zero": 1}, 30624, "fp8"),
        ("bridge b200", "llama3-405b, B200", _LLAMA3["405b"], boxes, 64,
         {"p": 8, "t": 4, "c": 2, "d": 2, "v": 8} | parallel, 661, "fp8"),
        ("bridge b200", "llama3-8b, GB200", _LLAMA3["8b"], rack, 128,
         {"d": 8, "microbatch": 2, "zero": 1}, 31508, "fp8"),
        ("bridge b200", "llama3-70b, GB200, FSDP", _LLAMA3["70b"], rack, 256,
         {"d": 64, "microbatch": 2, "zero": 3}, 4312, "fp8"),
        ("bridge b200", "llama3-405b, GB200", _LLAMA3["405b"], rack, 1536,
         {"p": 16, "t": 4, "d": 4, "v": 4} | parallel, 813, "fp8"),
        ("bridge experts", "gpt-oss-120b, H100", _GPT_OSS, h100, 512,
         {"p": 4, "d": 16, "e": 8, "microbatch": 4, "zero": 1}, 5630, "bf16"),
        ("bridge experts", "gpt-oss-120b, B200", _GPT_OSS, boxes, 512,
         {"d": 64, "e": 8, "microbatch": 4, "zero": 1}, 8213, "bf16"),
        ("bridge experts", "gpt-oss-120b, GB200", replace(_GPT_OSS, seq=8192), rack, 1280,
         {"d": 64, "e": 64, "zero": 1}, 15876, "bf16"),
        ("bridge experts", "qwen3-30b, H100", _QWEN3_30B, h100, 512,
         {"p": 2, "d": 8, "e": 8, "v": 24, "microbatch": 2, "zero": 1}, 5275, "fp8"),
        ("bridge experts", "qwen3-30b, B200", _QWEN3_30B, boxes, 512, one, 9299, "fp8"),
        ("bridge experts", "qwen3-30b, GB200", _QWEN3_30B, rack, 512, one | {"microbatch": 4},
         23766, "fp8"),
        ("bridge experts", "qwen3-235b, B200", _QWEN3, boxes, 1024,
         one | {"p": 8, "v": 2}, 3269, "fp8"),
        ("bridge experts", "qwen3-235b, GB200", _QWEN3, rack, 8192,
         {"p": 8, "d": 32, "e": 32, "v": 3, "zero": 1}, 4916, "bf16"),
        ("bridge experts", "deepseek-v3, B200", _DEEPSEEK, boxes, 2048,
         {"p": 16, "d": 16, "e": 8, "zero": 1}, 2139, "fp8"),
        ("bridge experts", "deepseek-v3, GB200", _DEEPSEEK, rack, 4096,
         {"p": 4, "d": 64, "e": 64, "v": 4, "zero": 1}, 3139, "bf16"),
        ("bridge experts", "deepseek-v3, GB200, fp8", _DEEPSEEK, rack, 4096,
         {"p": 8, "d": 32, "e": 32, "v": 4, "zero": 1}, 4018, "fp8"),
    ):  # fmt: skip
        made = Layout(**layout)
        seconds = batch * shape.seq / (made.devices * rate)
        yield PublishedStep(table, name, shape, made, batch, cluster, seconds, dtype)


def _llama_3() -> Iterable[PublishedStep]:
    """Gradients are summed whole in fp32 over the microbatches: stage 1, as the plan counts."""
    cluster = replace(CLUSTERS["h100-pod"], source="Llama 3, section 3.3: 400 Gbit/s for each GPU")
    shape = _LLAMA3["405b"]
    for d, rate in ((64, 430), (128, 400)):
        layout = Layout(p=16, t=8, d=d, v=4, zero=1, sequence_parallel=True)
        seconds = shape.flops(2048) / (layout.devices * rate * 1e12)
        name = f"405B, {layout.devices} H100"
        yield PublishedStep("llama 3", name, shape, layout, 2048, cluster, seconds)


def _torchtitan_h100() -> Iterable[PublishedStep]:
    """All compiled. Pipelines have p microbatches, its default, and whole gradients: stage 1."""
    chip = replace(CHIPS["h100"], bandwidth=2.4e12, memory=96e9, source=TABLES["torchtitan h100"])
    cluster = replace(CLUSTERS["h100-pod"], chip=chip, software="pytorch")
    small, full = {"zero": 3, "microbatch": 2, "recompute": "selective"}, {"recompute": "full"}
    sharded = {"t": 8, "d": 32, "microbatch": 16, "zero": 3, "sequence_parallel": True} | full
    piped = {"t": 8, "p": 8, "zero": 1, "sequence_parallel": True} | full
    for name, size, seq, batch, layout, rate, dtype, gib in (
        ("8B, 8 GPUs", "8b", 8192, 16, {"d": 8} | small, 6667, "bf16", 77.0),
        ("8B, 8 GPUs, fp8", "8b", 8192, 16, {"d": 8} | small, 8532, "fp8", 76.8),
        ("8B, 128 GPUs", "8b", 8192, 256, {"d": 128} | small, 6514, "bf16", 62.0),
        ("8B, 128 GPUs, fp8", "8b", 8192, 256, {"d": 128} | small, 8380, "fp8", 61.8),
        ("70B", "70b", 8192, 512, sharded, 829, "fp8", 71.9),
        ("405B", "405b", 8192, 256, piped | {"d": 8, "microbatch": 4}, 100, "fp8", 82.5),
        ("405B, interleaved", "405b", 8192, 256, piped | {"d": 8, "microbatch": 4, "v": 2},
         128, "fp8", 72.7),
        *(
            (f"8B, {seq} tokens", "8b", seq, 8 // c, {"d": 8 // c, "c": c, "zero": 3} | full,
             rate, "fp8", gib)
            for seq, c, rate, gib in (
                (32768, 1, 3890, 83.9), (65536, 2, 2540, 84.2), (131072, 4, 1071, 84.0),
                (262144, 8, 548, 84.5),
            )
        ),
        *(
            (f"405B, {seq} tokens", "405b", seq, 64 // c, piped | {"d": 8 // c, "c": c},
             rate, "fp8", gib)
            for seq, c, rate, gib in (
                (32768, 1, 76, 75.3), (65536, 2, 47, 75.9), (131072, 4, 31, 77.1),
                (262144, 8, 16, 84.9),
            )
        ),
    ):  # fmt: skip
        made, shape = Layout(**layout), replace(_LLAMA3[size], seq=seq)
        seconds = batch * seq / (made.devices * rate)
        yield PublishedStep(
            "torchtitan h100", name, shape, made, batch, cluster, seconds, dtype, gib * 2**30
        )


def _mt_nlg() -> Iterable[PublishedStep]:
    cluster = replace(_SELENE, software="2021")
    for d, seconds in ((8, 60.1), (10, 50.2), (12, 44.4)):
        layout = Layout(p=35, t=8, d=d, recompute="full")
        name, shape = f"{layout.devices} A100", SHAPES["mt-nlg-530b"]
        yield PublishedStep("mt-nlg", name, shape, layout, 1920, cluster, seconds, "fp16")


STEPS = (
    *_korthikanti(),
    *_wide(),
    *_narayanan(),
    *_narayanan_2(),
    *_bloom(),
    *_by_rate(),
    *_blackwell(),
    *_llama_3(),
    *_torchtitan_h100(),
    *_mt_nlg(),
)

# --- one layer ------------------------------------------------------------------------------------

# Korthikanti et al. 2022, table 4: milliseconds of a layer of the 22B model on 8 A100, microbatch
# 4; sequence parallel, recompute, forward, backward with what is recomputed.
LAYERS = (
    (False, "none", 7.7, 11.9),
    (True, "none", 7.2, 11.8),
    (False, "full", 7.7, 19.5),
    (False, "selective", 7.7, 13.2),
    (True, "selective", 7.2, 13.1),
)
