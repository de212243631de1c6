"""Sram: what is moved, what fits, and that arithmetic cannot go around it."""

import pytest
import torch

from weft.meter import Sram, SramOverflow


def test_load_and_store_count_bytes():
    x, y = torch.arange(12.0).view(3, 4), torch.zeros(3, 4, dtype=torch.float64)
    sram = Sram(100)
    tile = sram.load(x[:2])
    sram.store(y[1:], tile)
    assert (sram.read_bytes, sram.written_bytes) == (32, 64)  # 8 floats in, 8 doubles out
    assert torch.equal(y[1:], x[:2].double())
    assert torch.equal(y[0], torch.zeros(4, dtype=torch.float64))


def test_a_tile_is_a_copy_of_the_slice_alone():
    x = torch.ones(10, 10)
    sram = Sram(40)
    tile = sram.load(x[:, 3])
    tile += 1
    assert x.sum() == 100
    assert sram.used == 40
    assert tile.is_contiguous()


def test_a_tile_is_free_when_its_last_view_is_gone():
    sram = Sram(64)
    tile = sram.alloc(4, 4)
    view = tile[0]
    del tile
    assert sram.used == 64
    with pytest.raises(SramOverflow):
        sram.alloc(1)
    del view
    assert (sram.used, sram.peak) == (0, 64)
    sram.alloc(16)


def test_alloc_fills_a_shape():
    sram = Sram(1000)
    tile = sram.alloc(2, 3, fill=float("-inf"), dtype=torch.float64)
    assert tile.dtype == torch.float64
    assert torch.equal(tile, torch.full((2, 3), float("-inf"), dtype=torch.float64))
    assert sram.alloc((5,)).shape == (5,)


@pytest.mark.parametrize("ask", [lambda sram: sram.load(torch.ones(5, 5)),
                                 lambda sram: sram.alloc(5, 5)])  # fmt: skip
def test_an_overflow_says_what_was_asked_and_what_is_there(ask):
    sram = Sram(120)
    tile = sram.alloc(10)
    with pytest.raises(SramOverflow, match=(
        r"of \[5, 5\] asks for 100 bytes: 40 of 120 are in use, 20 too few are free"
    )):  # fmt: skip
        ask(sram)
    assert (sram.used, sram.read_bytes) == (tile.nbytes, 0)


def test_within_the_context_results_must_fit_temporaries_included():
    x = torch.ones(4, 4)
    with Sram(2 * 64) as sram:
        tile = sram.load(x)
        tile = tile * 2
        with pytest.raises(SramOverflow, match=r"the result of aten.mul.Tensor asks for 64 bytes"):
            (tile + 1) * 2
        assert sram.peak == 128
        tile += 1
        tile.mul_(2)
        assert tile[0, 0] == 6


@pytest.mark.parametrize("cheat", [
    lambda x, tile: tile @ x,
    lambda x, tile: x.sum(),
    lambda x, tile: x.add_(1),
    lambda x, tile: x.copy_(tile),
    lambda x, tile: x[0].clone(),
    lambda x, tile: torch.add(tile, tile, out=x),
    lambda x, tile: torch.softmax(x, 0),
    lambda x, tile: tile * x[0, 0],
])  # fmt: skip
def test_within_the_context_outside_tensors_are_out_of_reach(cheat):
    x = torch.ones(4, 4)
    with Sram(10_000) as sram:
        tile = sram.load(x)
        with pytest.raises(ValueError, match=r"shape .* that is outside: must be loaded"):
            cheat(x, tile)
    assert torch.equal(x, torch.ones(4, 4))


def test_views_of_outside_tensors_and_scalars_are_free():
    x, scale = torch.ones(4, 6), torch.tensor(0.5)
    with Sram(1000) as sram:
        tile = sram.load(x.T[2:4, 1:3][0].unsqueeze(0)[..., :2]) * scale * 3.0
        mask = torch.arange(2) >= torch.tensor([0, 1])
        tile = torch.where(mask, tile, float("-inf"))
    assert tile.tolist() == [[1.5, 1.5]]
    assert sram.read_bytes == 8


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s, x, t: s.store(t, t), "target is a tile"),
        (lambda s, x, t: s.store(x, x), "tile is not in this memory"),
        (lambda s, x, t: s.store(x, t[:2]), r"shape \[4\]: must be the tile's, \[2\]"),
        (lambda s, x, t: s.load(t), "tile already"),
    ],
)
def test_wrong_use_is_named(wrong, message):
    sram, x = Sram(1000), torch.ones(4)
    tile = sram.load(x)
    with pytest.raises(ValueError, match=message):
        wrong(sram, x, tile)
    assert sram.written_bytes == 0


@pytest.mark.parametrize("capacity", [0, -1, 1.5, "64", True, None])
def test_a_wrong_capacity_is_named(capacity):
    with pytest.raises(ValueError, match=r"capacity = .*: must be a whole number of bytes"):
        Sram(capacity)


def attention(q, k, v, sram, rows, columns):
    """Attention tile by tile, as a reader would write it."""
    out = torch.empty_like(q)
    scale = q.shape[1] ** -0.5
    with sram:
        for i in range(0, len(q), rows):
            tile_q = sram.load(q[i : i + rows])
            top = sram.alloc(rows, 1, fill=float("-inf"), dtype=q.dtype)
            weight = sram.alloc(rows, 1, dtype=q.dtype)
            total = sram.alloc(rows, q.shape[1], dtype=q.dtype)
            for j in range(0, len(k), columns):
                scores = tile_q @ sram.load(k[j : j + columns]).T
                scores *= scale
                above = torch.maximum(top, scores.amax(1, keepdim=True))
                scores.sub_(above).exp_()
                shrink = torch.exp(top - above)
                weight.mul_(shrink).add_(scores.sum(1, keepdim=True))
                total.mul_(shrink).addmm_(scores, sram.load(v[j : j + columns]))
                top = above
            sram.store(out[i : i + rows], total.div_(weight))
    return out


def test_attention_in_tiles_moves_what_the_formula_says_and_fits():
    torch.manual_seed(0)
    T, K, rows, columns, size = 64, 16, 16, 8, 8
    q, k, v = torch.randn(3, T, K, dtype=torch.float64)
    tile = size * (2 * rows * K + 2 * columns * K + rows * columns + 16 * rows)
    sram = Sram(tile)
    out = attention(q, k, v, sram, rows, columns)
    torch.testing.assert_close(out, torch.softmax(q @ k.T * K**-0.5, 1) @ v, atol=1e-12, rtol=0)
    assert sram.read_bytes == size * (T * K + T // rows * 2 * T * K)
    assert sram.written_bytes == size * T * K
    assert sram.used == 0
    with pytest.raises(SramOverflow):
        attention(q, k, v, Sram(tile), rows, T)  # whole rows of scores do not fit
