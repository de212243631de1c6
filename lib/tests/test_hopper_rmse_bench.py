"""The table of numerical errors: small, as a record, and as it stands in the book."""

from pathlib import Path

import pytest

from weft.bench.hopper.rmse import ACCURACY, PAPER, SampleSizes, errors
from weft.bench.jobs import BenchRun
from weft.bench.record import read

BOOK = Path(__file__).parents[2] / "book" / "measured"


def test_the_papers_errors_small():
    """The order of the rows of table 3, and about their ratios, at an eighth of its length."""
    found = errors(SampleSizes(T=128, S=1024, heads=2), seed=3)
    fp16, flash16, fp8, flash8, tensor8, coherent8 = (found[name] for name in PAPER)
    assert 1.2 < fp16 / flash16 < 3
    assert 1.2 < fp8 / flash8 < 4
    assert 1.1 < coherent8 / flash8 < 4
    assert 0.8 < tensor8 / flash8 < 1.25
    assert 20 < flash8 / flash16 < 200


def test_the_record_has_a_sample_of_each_row_for_each_batch_beside_the_papers():
    told = []
    sizes = SampleSizes(T=8, S=64, K=16, heads=1, samples=3)
    record = ACCURACY.record(BenchRun(progress=lambda *step: told.append(step)), sizes=sizes)
    assert (record.name, record.topic, len(told)) == ("hopper-rmse", "hopper", 3)
    for name, value in PAPER.items():
        assert record.result(name, "paper").value == value
        samples = record.result(name, "weft").samples
        assert len(set(samples)) == 3 and min(samples) > 0


def test_the_record_in_the_book_is_close_to_the_paper():
    (path,) = BOOK.glob("hopper-rmse.cpu.json")
    record = read(path)
    for name, value in PAPER.items():
        near = 0.25 if name == "fp8, not incoherent" else 0.15
        assert record.result(name, "weft").value == pytest.approx(value, rel=near)
