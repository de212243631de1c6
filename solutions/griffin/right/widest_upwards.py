"""Goes up window by window, in integers where it can."""


def widest(chip, model, lengths, seconds):
    import math

    n, found = len(lengths), None
    local = model["layers"] // model["every"]
    recurrent = model["layers"] - local
    for blocks in range(1, math.ceil(max(lengths) / 128) + 1):
        window = 128 * blocks
        rings = n * local * window * 2 * model["kv_heads"] * model["head"] * 2
        states = n * recurrent * model["width"] * 4
        inputs = n * recurrent * model["width"] * (model["taps"] - 1) * 2
        if (2 * model["params"] + rings + states + inputs) * 10 > chip["memory"] * 9:
            break
        tokens = sum(length if length < window else window for length in lengths)
        rows = tokens * local * 2 * model["kv_heads"] * model["head"] * 2
        time = (rows + 2 * states + inputs) / chip["bandwidth"]
        time += 2 * model["params"] * max(1 / chip["bandwidth"], n / chip["rate"])
        if time > seconds:
            break
        found = window, rings + states + inputs, time
    return found
