"""Gives the weights blocks in their rows."""

KIND = "wrong formula"
FAILS = [
    "test_linear",
    "test_linear_any",
    "test_linear_casts",
    "test_linear_ragged",
]


def linear(x, w, dy, block: int):

    def rounded(a, high, wide):
        rows, columns = a.shape
        a = torch.nn.functional.pad(a, (0, -columns % wide, 0, -rows % high))
        tiles = a.view(a.shape[0] // high, high, a.shape[1] // wide, wide)
        part, power = tiles.abs().amax((1, 3), keepdim=True).frexp()
        scale = torch.ones_like(part).ldexp(9 - power - (part > 448 / 512).int())
        eight = (tiles * scale).to(torch.float8_e4m3fn)
        return (eight.float() / scale).view(a.shape)[:rows, :columns]

    tiled = rounded(w, 1, block)
    y = rounded(x, 1, block) @ tiled.T
    dx = rounded(dy, 1, block) @ tiled
    dw = rounded(dy, block, 1).T @ rounded(x, block, 1)
    return y, dx, dw
