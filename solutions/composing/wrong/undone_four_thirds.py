"""Full recomputation takes a third more of everything, of the head, too."""

KIND = "wrong formula"
FAILS = ["test_undone_recompute", "test_undone_real", "test_undone_any"]


def undone(model: dict, run: dict, said: dict) -> tuple[float, float, float]:
    s, D = run["tokens"], model["width"]
    columns = model["heads"] * model["key"]

    def flops(attention, recompute, head, table):
        matrices = 2 * D * (2 * columns + 2 * model["groups"] * model["key"])
        matrices += 2 * D * model["matrices"] * model["hidden"]
        pairs = 4 * columns * s * {"all": 1, "causal": 0.5, "none": 0}[attention]
        again = {"none": 0, "selective": pairs, "full": 0}[recompute]
        ends = 2 * D * model[head] * (2 if table and not model["tied"] else 1)
        total = model["layers"] * (3 * (matrices + pairs) + again) + 3 * ends
        return total * (4 / 3 if recompute == "full" else 1)

    counted = flops(said["attention"], said["recompute"], said["head"], said["table"])
    if "hours" in said:
        rate = 1e12 / (3600 * said["hours"])  # tokens of a GPU in a second
    elif "tokens" in said:
        rate = said["tokens"]
    else:
        rate = (said["rate"] if "rate" in said else said["share"] * said["peak"]) / counted
    seconds = run["sequences"] * s / (rate * run["gpus"])
    mfu, hfu = (
        flops("all", recompute, "words", False) * rate / run["peak"]
        for recompute in ("none", run["recompute"])
    )
    return seconds, mfu, hfu
