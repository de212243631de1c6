"""All choices in a table with floats, tensor by tensor, and the best of those that fit."""


def degree(node, model, nodes):
    m, table = model, []
    for t in range(1, nodes * node["gpus"] + 1):
        if t > node["gpus"] and t % node["gpus"]:
            continue
        if m["heads"] / t % 1 or m["hidden"] / t % 1 or m["tokens"] / t % 1:
            continue
        if m["groups"] % t and t % m["groups"]:
            continue
        q = m["heads"] / t * m["key"]
        kv = max(m["groups"] / t, 1) * m["key"]
        matrices = [q, kv, kv, q] + [m["hidden"] / t] * 3
        params = m["layers"] * m["width"] * (sum(matrices) + 1)
        flops = 2 * m["tokens"] * m["width"] * sum(matrices) + 2 * m["tokens"] ** 2 * q
        part = 2 * m["tokens"] * m["width"] / t
        made = 2 * m["tokens"] * sum(matrices)
        for how in ("recompute", "regather", "all"):
            kept = part
            if how != "recompute":
                kept += made + (part if how == "regather" else part * t)
            room = params * m["state"] + m["flying"] * m["layers"] * kept
            if how == "recompute":
                room += made + part * t
            slowest = part * t - part
            slowest = max(slowest / node["inside"], slowest / (node["gpus"] * node["outside"]))
            if t <= node["gpus"]:
                slowest = (part * t - part) / node["inside"]
            exchanged = (5 - (how == "all")) * slowest
            seconds = ((3 + (how == "recompute")) * flops / node["rate"] + exchanged) * m["layers"]
            if room <= 0.9 * node["memory"]:
                table.append((t * seconds, t, how, room, seconds))
    return min(table)[1:] if table else None
