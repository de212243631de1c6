"""Takes the FLOPs of a whole step, and from them all three as shares."""


def undone(model: dict, run: dict, said: dict) -> tuple[float, float, float]:
    tokens = run["sequences"] * run["tokens"]
    halved = {"all": 2, "causal": 1, "none": 0}

    def step(how, passes_of_layers, passes_of_pairs, words, tables):
        D = model["width"]
        q = model["heads"] * model["key"]
        kv = model["groups"] * model["key"]
        layer = 2 * (D * q + D * kv + D * kv + q * D + model["matrices"] * D * model["hidden"])
        pairs = halved[how] * 2 * q * run["tokens"]
        layers = model["layers"] * (passes_of_layers * layer + passes_of_pairs * pairs)
        return tokens * (layers + 3 * tables * 2 * D * words)

    passes = {"none": (3, 3), "selective": (3, 4), "full": (4, 4)}
    tables = 2 if said["table"] and not model["tied"] else 1
    counts = step(said["attention"], *passes[said["recompute"]], model[said["head"]], tables)
    if "rate" in said:
        seconds = counts / said["rate"] / run["gpus"]
    elif "share" in said:
        seconds = counts / (said["share"] * said["peak"] * run["gpus"])
    elif "tokens" in said:
        seconds = tokens / said["tokens"] / run["gpus"]
    else:
        seconds = tokens / 1e12 * said["hours"] * 3600 / run["gpus"]
    could = seconds * run["gpus"] * run["peak"]
    both = (step("all", *passes[how], model["words"], 1) for how in ("none", run["recompute"]))
    return seconds, *(flops / could for flops in both)
