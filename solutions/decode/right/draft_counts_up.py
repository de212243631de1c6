"""Counts the batch up until it does not fit."""


def draft(node, model, drafts, context, limit):
    def seconds(one, t, sequences, tokens):
        weights, rows = 2 * one["params"], sequences * tokens
        parts = [max(weights / node["bandwidth"], weights * rows / node["rate"]) / t]
        parts.append(sequences * context * one["cache"] / node["bandwidth"] / t)
        parts.append(2 * one["layers"] * node["wait"] * (t > 1))
        return sum(parts)

    best, t = None, 1
    while t <= node["gpus"]:
        nothing = {"name": None, "layers": 0, "params": 0, "cache": 0, "right": []}
        for one in (nothing, *drafts):
            made, stands = 1.0, 1.0
            for g in range(len(one["right"]) + 1):
                if g:
                    stands *= one["right"][g - 1]
                    made += stands
                if bool(g) != (one is not nothing):
                    continue
                B = 0
                while True:
                    B += 1
                    held = 2 * (model["params"] + one["params"])
                    held += B * context * (model["cache"] + one["cache"])
                    step = seconds(model, t, B, g + 1) + g * seconds(one, t, B, 1)
                    if held > 0.9 * t * node["memory"] or step > made * limit:
                        break
                    rate = B * made / (step * t)
                    if not best or rate > best[4]:
                        best = t, one["name"], g, B, rate
        t += t
    return best
