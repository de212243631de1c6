"""Every grid in a table, in seconds for a layer, then the first that will do."""


def prefill(node, model, T, seconds):
    rows = []
    for power in range(11):
        n = 2**power
        for log_a in range(power + 1):
            a = 2**log_a
            if node["gpus"] % a == 0 and model["kv_heads"] % a == 0:
                rows.append((n, *_priced(node, model, T, n, a), a))
    good = [row for row in rows if row[1] <= seconds and row[2] <= 0.9 * node["memory"]]
    if not good:
        return None
    n, took, kept, a = min(good)
    return a, n // a, kept, took


def _priced(node, model, T, n, a):
    c, b = T // n, n // a
    keys = 2 * model["kv_heads"] * model["head"]
    queries = model["heads"] * model["head"]
    memory = 2 * model["params"] + 2 * c * keys * model["layers"]
    if b > 1:
        memory += 2 * (a * c) * (keys // a) * 2
    if a > 1:
        memory += 2 * c * (queries + keys)
    link = node["outside"] if n > node["gpus"] else node["inside"]
    compute = 4 * model["head"] * (a * c) * (a * c) / 2 * (model["heads"] / a) / node["rate"]
    attention = compute + (b - 1) * max(compute, 2 * c * keys / link)
    attention += 2 * c * (2 * queries + keys) * (1 - 1 / a) / node["inside"]
    return 2 * model["params"] * c / node["rate"] + model["layers"] * attention, memory
