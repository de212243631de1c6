"""Megatron-LM's arguments as they are given: read one by one, each by its name and kind."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from weft.plan.arguments import chosen, whole
from weft.plan.composing.megatron.names import RELEASE, RENAMED, UNCOUNTED, ignored

WHOLE = """
    tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size
    expert-model-parallel-size expert-tensor-parallel-size num-layers encoder-num-layers
    hidden-size ffn-hidden-size num-attention-heads kv-channels num-query-groups seq-length
    encoder-seq-length max-position-embeddings vocab-size padded-vocab-size vocab-extra-ids
    make-vocab-size-divisible-by micro-batch-size global-batch-size
    num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank
    decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers recompute-num-layers
    num-experts moe-router-topk moe-ffn-hidden-size moe-shared-expert-intermediate-size
    q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim
"""
FLAGS = """
    group-query-attention swiglu quick-geglu untie-embeddings-and-output-weights
    disable-bias-linear add-qkv-bias qk-layernorm multi-latent-attention moe-shared-expert-gate
    sequence-parallel recompute-activations use-distributed-optimizer use-megatron-fsdp
    use-torch-fsdp2 torch-fsdp2-no-reshard-after-forward account-for-embedding-in-pipeline-split
    account-for-loss-in-pipeline-split bf16 fp16 use-rotary-position-embeddings
    no-position-embedding
"""
TEXTS = """
    tokenizer-type normalization position-embedding-type recompute-granularity recompute-method
    data-parallel-sharding-strategy pipeline-model-parallel-layout moe-layer-freq window-size
    window-attn-skip-freq softmax-type fp8-format
"""
READ = frozenset(f"--{name}" for name in (WHOLE + FLAGS + TEXTS).split())
FLAG_NAMES = frozenset(f"--{name}" for name in FLAGS.split())
NEUTRAL = {  # values with which an argument of UNCOUNTED says what is counted anyway
    "--optimizer": "adam",
    "--recompute-modules": "core_attn",
    "--num-distributed-optimizer-instances": "1",
    "--main-grads-dtype": "fp32",
    "--main-params-dtype": "fp32",
    "--exp-avg-dtype": "fp32",
    "--exp-avg-sq-dtype": "fp32",
}


class MegatronGiven:
    """The options of a line by name, the last of a name as in argparse.

    `ignored` are the names of those that bear on no layout, `uncounted` a sentence for each of
    those that do and have no place in the plan. ValueError for a name that Megatron-LM does not
    know, with the nearest that it does, and for one that was renamed, with the new one.
    """

    def __init__(self, words: Sequence[str]):
        self.values: dict[str, list[str]] = {}
        last = None
        for word in words:
            if re.match(r"--[A-Za-z]", word):
                name, equals, value = word.partition("=")
                last = self.values[name] = [value] if equals else []
            elif last is None:
                raise ValueError(f"arguments begin with {word!r}, must begin with --")
            else:
                last.append(word)
        for name in self.values:
            self._check(name)
        self.ignored = tuple(n for n in self.values if n not in READ | set(UNCOUNTED))
        self.uncounted = tuple(
            f"{n}: {UNCOUNTED[n]}"
            for n, value in self.values.items()
            if n in UNCOUNTED and " ".join(value) != NEUTRAL.get(n)
        )

    def _check(self, name: str) -> None:
        """Refuse a name that is none, and a flag with a value."""
        if name in RENAMED:
            raise ValueError(f"{name} is no longer an argument of Megatron-LM: use {RENAMED[name]}")
        if name not in READ and name not in UNCOUNTED and not ignored(name):
            near = get_close_matches(name, sorted(READ | set(UNCOUNTED)), n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{name} is no argument of {RELEASE}{meant}")
        if name in FLAG_NAMES and self.values[name]:
            raise ValueError(f"{name} takes no value, has {' '.join(self.values[name])!r}")

    def __contains__(self, name: str) -> bool:
        return f"--{name}" in self.values

    def text(self, name: str, default: str | None = None) -> str | None:
        """The value of an argument as it is written."""
        found = self.values.get(f"--{name}")
        if found is None:
            return default
        if not found or not found[0]:
            raise ValueError(f"--{name} has no value, must have one")
        return " ".join(found)

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str | None:
        """The value of an argument that has but few."""
        text = self.text(name)
        return default if text is None else chosen(f"--{name}", text, choices)

    def whole(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        """The value of an argument that is a whole number."""
        text = self.text(name)
        if text is None:
            return default
        return whole(f"--{name}", int(text) if re.fullmatch(r"[+-]?\d+", text) else text, least)

    def needed(self, *names: str) -> int:
        """A whole number that must be there, under one of these names."""
        for name in names:
            if name in self:
                return self.whole(name)
        raise ValueError(f"--{names[0]} is missing, must be given")


def pattern(name: str, text: str, layers: int, every: int | None = None) -> list[int]:
    """The 0 or 1 of each layer that a pattern such as ([0]*3+[1]*58) has.

    A number n alone is what `every` makes of it: the remainder at which a layer has a 1, -1 for
    all remainders but the last.

    >>> pattern("moe-layer-freq", "([0]*1+[1]*3)", layers=4)
    [0, 1, 1, 1]
    >>> pattern("moe-layer-freq", "2", layers=4, every=0)
    [1, 0, 1, 0]
    """
    plain = text.replace(" ", "")
    if plain.isdecimal():
        n = whole(f"--{name}", int(plain))
        if every == 0:
            return [int(i % n == 0) for i in range(layers)]
        return [int((i + 1) % n != 0) for i in range(layers)]
    made, rest = _sum(plain, name)
    if rest:
        raise ValueError(f"--{name} is {text!r}, must be a number or a pattern such as ([0]+[1]*3)")
    if len(made) != layers or set(made) - {0, 1}:
        raise ValueError(f"--{name} is {text!r}, must have a 0 or 1 for each of {layers} layers")
    return made


def _sum(text: str, name: str) -> tuple[list[int], str]:
    """The entries of products joined by +, and what of the text is left."""
    made, rest = _product(text, name)
    while rest.startswith("+"):
        more, rest = _product(rest[1:], name)
        made = made + more
    return made, rest


def _product(text: str, name: str) -> tuple[list[int], str]:
    """The entries of a list or of a sum in parentheses, so many times."""
    listed = re.match(r"\[([\d,]*)\]", text)
    if listed:
        made, rest = [int(n) for n in listed[1].split(",") if n], text[listed.end() :]
    elif text.startswith("("):
        made, rest = _sum(text[1:], name)
        if not rest.startswith(")"):
            raise ValueError(f"--{name} has a parenthesis that does not end")
        rest = rest[1:]
    else:
        return [], text or "nothing"
    times = re.match(r"\*(\d{1,6})", rest)
    if times:
        return made * int(times[1]), rest[times.end() :]
    return made, rest
