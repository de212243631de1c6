"""What the sanitizers are given to watch: here it runs interpreted, and finds what is wrong."""

import pytest
import sanitize
import torch

from weft.kernels import decode


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.mark.parametrize("name", sanitize.RUNS)
def test_every_kernel_is_right_at_the_small_sizes(name, capsys):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sanitize.main([name], device)
    assert capsys.readouterr().out == f"{name}: right\n"


def test_a_wrong_kernel_is_found(monkeypatch):
    right = decode.per_head
    monkeypatch.setattr(decode, "per_head", lambda *given: right(*given) * 1.1)
    with pytest.raises(AssertionError, match="decode, a program per head is wrong by"):
        sanitize.main(["decode"], "cuda" if torch.cuda.is_available() else "cpu")


def test_a_name_that_is_none_is_refused():
    with pytest.raises(SystemExit, match="ring is none of attention, attention_versions"):
        sanitize.main(["ring"], "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("name", sanitize.RUNS)
def test_on_a_gpu_they_are_right_too(name):
    sanitize.main([name], "cuda")
