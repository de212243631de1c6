"""Copies where nothing was there before, and merges by a sigmoid where something was."""


def arrive(p_o, p_lse, p_part, p_part_lse, p_rows, V, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    new = tl.load(p_part_lse + i)
    if new != float("-inf"):
        new = new / 1.4426950408889634
        row = tl.load(p_rows + i)
        old = tl.load(p_lse + row)
        if old == float("-inf"):
            for v in range(0, V, BLOCK):
                o = v + tl.arange(0, BLOCK)
                x = tl.load(p_part + i * V + o, mask=o < V)
                tl.store(p_o + row * V + o, x, mask=o < V)
            tl.store(p_lse + row, new)
        else:
            w = tl.sigmoid(new - old)
            for v in range(0, V, BLOCK):
                o = v + tl.arange(0, BLOCK)
                x = tl.load(p_part + i * V + o, mask=o < V)
                y = tl.load(p_o + row * V + o, mask=o < V)
                tl.store(p_o + row * V + o, y + w * (x - y), mask=o < V)
            tl.store(p_lse + row, tl.maximum(old, new) + tl.log(1 + tl.exp(-tl.abs(old - new))))
