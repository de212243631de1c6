"""Counts parameters first, six FLOPs for each, and finds tokens a second before all else."""


def undone(model: dict, run: dict, said: dict) -> tuple[float, float, float]:
    m = model
    attention = 2 * m["width"] * m["key"] * (m["heads"] + m["groups"])
    layers = m["layers"] * (attention + m["matrices"] * m["width"] * m["hidden"])
    pairs = 12 * m["layers"] * m["heads"] * m["key"] * run["tokens"]
    share = {"all": 1.0, "causal": 0.5, "none": 0.0}[said["attention"]]

    head = m["width"] * m[said["head"]]
    theirs = 6 * (layers + head) + pairs * share
    if said["table"] and not m["tied"]:
        theirs += 6 * head
    if said["recompute"] != "none":
        theirs += pairs * share / 3
    if said["recompute"] == "full":
        theirs += 2 * layers

    speed = said.get("tokens")
    if "hours" in said:
        speed = 10**12 / said["hours"] / 3600
    if "share" in said:
        speed = said["share"] * said["peak"] / theirs
    if "rate" in said:
        speed = said["rate"] / theirs

    ours = 6 * (layers + m["width"] * m["words"]) + pairs
    more = {"none": 0, "selective": pairs / 3, "full": pairs / 3 + 2 * layers}[run["recompute"]]
    seconds = run["sequences"] * run["tokens"] / speed / run["gpus"]
    return seconds, ours * speed / run["peak"], (ours + more) * speed / run["peak"]
