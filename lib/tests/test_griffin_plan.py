"""Griffin's arithmetic: the scan by its messages, the gates by derivatives, states by counting."""

import math
from itertools import product

import pytest
import torch

from weft.nn.griffin import Griffin, GriffinConfig
from weft.nn.griffin.mixers import Gate
from weft.plan import griffin
from weft.plan.hardware import CHIPS

H200 = CHIPS["h200"]


@pytest.mark.parametrize("chunks", [1, 5])
def test_the_scan_moves_what_its_passes_move(chunks):
    B, T, D, size = 2, 35, 3, 2
    numbers = 0
    for _ in range(2 if chunks > 1 else 1):
        numbers += 2 * B * T * D  # a and x
    numbers += B * T * D  # h, in the last pass
    assert griffin.scan_work(B, T, D, size, chunks).bytes == numbers * size


@pytest.mark.parametrize("size", [2, 4])
def test_one_pass_wins_from_as_many_channels_as_it_says(size):
    most = griffin.least_channels(H200, size)
    for D in (math.floor(most) - 1, math.ceil(most) + 1):
        one = griffin.scan_seconds(H200, 1, 65536, D, size)
        best = min(griffin.scan_seconds(H200, 1, 65536, D, size, chunks) for chunks in (8, 64))
        assert (one <= best) == (most <= D)


def test_a_full_memory_takes_the_time_of_its_bytes():
    work = griffin.scan_work(64, 4096, 4096)
    assert griffin.scan_seconds(H200, 64, 4096, 4096) == work.bytes / H200.bandwidth


def test_gates_forget_as_the_recurrence_does():
    for gate, p in product((0.1, 0.6, 1.0), (-5.0, 0.3)):
        a = math.exp(-8 * gate * math.log1p(math.exp(p)))
        assert griffin.kept(gate, p) == pytest.approx(a)
        assert griffin.kept(gate, p) ** griffin.half_life(gate, p) == pytest.approx(0.5)


@pytest.mark.parametrize("a", [0.0, 0.3, 0.9, 0.9999])
def test_the_slope_is_the_derivative(a):
    log_a = torch.tensor(math.log(a) if a else -60.0, dtype=torch.float64, requires_grad=True)
    (-torch.expm1(2 * log_a)).sqrt().backward()
    assert griffin.slope(a) == pytest.approx(log_a.grad.item(), abs=1e-12)
    assert abs(griffin.slope(a, most=2.0)) == pytest.approx(min(-griffin.slope(a), 4 * a * a))


def test_a_sequence_keeps_what_the_model_keeps():
    config = GriffinConfig(layers=5, width=12, heads=3, kv_heads=1, window=4, taps=3)
    _, (_, kept) = Griffin(config).run(torch.zeros(1, 9, dtype=torch.long), None)
    sizes = 4, 1, 12, 1, 4, 4, 3, 4  # recurrent, attention, width, G, K, window, taps, size
    found = griffin.sequence_bytes(9, *sizes)
    assert found.total == sum(x.nbytes for state in kept for x in state)
    assert griffin.sequence_bytes(3, *sizes).window < found.window == 4 * 2 * 4 * 4
    assert griffin.cache_bytes(9, 5, 1, 4, 4) == 9 * 5 * 2 * 4 * 4
    kinds = GriffinConfig(layers=26).kinds  # of RecurrentGemma 2B
    found, a_layer = griffin.recurrentgemma(100), 100 * 2 * 256 * 2
    assert found.window == kinds.count("attention") * a_layer
    assert found.recurrent == kinds.count("recurrent") * 2560 * 4


def test_a_decoding_step_adds_the_longer_of_two_and_what_each_chat_reads():
    moved, params = 1e7, 3e9
    read, computed = 2 * params / H200.bandwidth, 2 * params / H200.rate("bf16")
    for chats in (1, 150, 400):
        alone = chats * moved / H200.bandwidth
        found = griffin.decode_seconds(H200, chats, moved, params)
        assert found == pytest.approx(alone + (read if chats < 206 else chats * computed))


def test_gates_in_blocks_are_shared_without_a_message():
    both = sum(p.numel() for _ in range(2) for p in Gate(12, 3).parameters())
    assert griffin.gate_parameters(12, 3) == both
    for blocks, t in ((10, 4), (10, 1), (3, 3)):
        each = griffin.blocks_of_rank(blocks, t)
        assert (sum(each), len(each)) == (blocks, t) and max(each) - min(each) <= 1


def test_wrong_numbers_are_named():
    with pytest.raises(ValueError, match="t is 4, must be at most blocks = 3"):
        griffin.blocks_of_rank(3, 4)
    with pytest.raises(ValueError, match="width is 10, must be a multiple of blocks = 3"):
        griffin.gate_parameters(10, 3)
    with pytest.raises(ValueError, match=r"gate is 1\.5, must lie between 0 and 1"):
        griffin.kept(1.5, 0.0)
    with pytest.raises(ValueError, match=r"a is 1\.5, must be at most 1"):
        griffin.slope(1.5)
