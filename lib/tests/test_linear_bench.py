"""The benchmarks of linear attention at a small size: what they measure, not how fast that is."""

import torch

from weft.bench.clock import OneDevice
from weft.bench.jobs import BenchRun, chosen
from weft.bench.linear import recall
from weft.bench.linear.decode import CACHE, DECODE, FORMULA, LEAST, STATE, DecodingSizes
from weft.bench.linear.recall import MIXERS, RECALL, RecallSizes, RecallTask
from weft.bench.record import read
from weft.nn.decode import DecoderConfig

TASKS = (RecallTask(2, 4), RecallTask(3, 2, twice=1))
TINY = RecallSizes(TASKS, width=8, keys=5, values=3, batch=4, steps=4, every=2, seeds=2, tested=6)
CONFIG = DecoderConfig(layers=2, width=16, heads=2, seq=16)
STEPS = DecodingSizes(CONFIG, (4, 12), batch=3, block=4, copied=4096)


def recorded(job, sizes):
    return job.record(BenchRun("cpu", given=OneDevice("cpu", 1, 3)), sizes=sizes)


def test_recall_has_points_of_every_mixers_curve_and_the_bytes_of_its_state():
    record = recorded(RECALL, TINY)
    assert (record.topic, record.name) == ("linear", "linear-recall")
    for task in TASKS:
        for name in MIXERS:
            for step in (2, 4):
                point = record.result(f"{task}, step {step}", name)
                assert len(point.samples) == 2 and 0 <= min(point.samples) <= 1
            width = {"softmax": (task.pairs + task.twice) * (task.key_width + 8)}
            width["linear"] = task.key_width * 9
            state = record.result(f"{task}, state", name).value
            assert state == 4 * width.get(name, task.key_width * 8)


def test_in_the_record_each_state_answers_more_pairs_worse_and_with_wider_keys_better(root):
    record = read(root / "book/measured/linear-recall.cpu.json")

    def right(name, pairs, width):
        return record.result(f"{pairs} pairs, K = {width}, step 200", name).value

    for name in ("linear", "decay", "gate", "delta"):
        few, more, most = (right(name, pairs, 8) for pairs in (8, 16, 32))
        assert few > more > most < right(name, 32, 16) < right(name, 32, 32)


def test_sequences_ask_for_each_key_once_and_the_last_value_counts():
    task, sizes = RecallTask(6, 4, twice=3), TINY._replace(keys=8)
    dice = torch.Generator().manual_seed(0)
    keys, values, wanted = recall.sequences(task, sizes, 5, dice)
    for row, said, answers in zip(keys.tolist(), values.tolist(), wanted.tolist(), strict=True):
        told, asked = dict(zip(row[:9], said[:9], strict=True)), row[9:]
        assert said[9:] == [sizes.values] * 6
        assert sorted(asked) == sorted(told) and len(told) == 6
        assert answers == [told[key] for key in asked]


def test_a_few_pairs_are_learned():
    task = RecallTask(2, 8)
    sizes = RecallSizes((task,), width=32, keys=8, values=4, steps=60, every=60, seeds=1)
    record = recorded(RECALL, sizes)
    for name in MIXERS:
        assert record.result(f"{task}, step 60", name).value > 0.6, name


def test_what_is_kept_is_what_the_formula_says_and_steps_are_timed_beside_their_least():
    record = recorded(DECODE, STEPS)
    kept = {}
    for context in STEPS.contexts:
        name = f"a step, context {context}"
        for way in (CACHE, STATE):
            kept[way, context] = record.result(f"kept, context {context}", way).value
            said = record.result(f"kept, context {context}", f"{way}, {FORMULA}").value
            assert said == kept[way, context]
            assert len(record.result(name, way).samples) == 3
            assert record.result(name, f"{way}, {LEAST}").value > 0
        assert record.result(name, f"{CACHE} / {STATE}").value > 0
    assert kept[CACHE, 12] == 3 * kept[CACHE, 4] == 3 * 4 * 2 * (2 * 3 * 4 * 16)
    assert kept[STATE, 12] == kept[STATE, 4] == 4 * 2 * 3 * 2 * 8 * 8


def test_jobs_are_found_by_their_names():
    assert {job.name for job in chosen(["linear"])} >= {"linear-recall", "linear-decode"}
