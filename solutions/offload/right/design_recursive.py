"""Chooses one thing after the other, with a dictionary of levels and one of flows."""


def design(node, model, batch):
    d, L, p = node["gpus"], model["layers"], model["params"]

    def price(c):
        tokens, q = c["micro"] * model["tokens"], (8 - c["eighths"]) / 8
        every = L * p
        at = {"gpu": 4 * p + 2 * c["eighths"] * every / d, "ram": 4 * q * every, "disk": 0.0}
        at["ram" if c["states"] == "host" else "disk"] += 12 * q * every
        if c["weights"] == "whole":
            at["gpu"] += 2 * every
        elif c["weights"] == "shard":
            at["gpu"] += 2 * every / d + 4 * p
        else:
            at["gpu"] += 4 * p
            at["ram"] += 2 * every
        if c["again"]:
            at["gpu"] += tokens * (L * 2 * model["width"] + model["kept"])
        else:
            at["gpu"] += tokens * L * model["kept"]
        if at["gpu"] > 0.9 * node["memory"] or at["ram"] > 0.9 * node["ram"]:
            return None
        if at["disk"] > node["disk"]:
            return None
        shard = every / d
        flows = {
            "gpu": 2 * every * tokens / node["rate"],
            "up": 2 * shard / node["link"] if c["weights"] == "host" else 0,
            "inside": 2 * shard * (d - 1) / node["inside"] if c["weights"] != "whole" else 0,
        }
        forward = max(flows.values())
        flows["gpu"] *= 3 if c["again"] else 2
        flows["inside"] += 2 * shard * (d - 1) / node["inside"]
        flows["down"] = 2 * q * shard / node["link"]
        flows["touch"] = 12 * q * every / node["touch"]
        total = (forward + max(flows.values())) * (batch / (d * c["micro"]))
        total += max(28 * q * every / node["touch"], 2 * at["disk"] / node["drive"])
        total += 0 if c["weights"] == "host" else flows["down"]
        if c["weights"] == "whole":
            total += flows["inside"]
        return at["gpu"], total

    wide = [x for x in range(1, batch + 1) if batch % (x * d) == 0]
    menu = {"weights": ["host", "shard", "whole"], "eighths": range(9)}
    menu |= {"states": ["disk", "host"], "again": [True, False], "micro": wide}

    def choose(chosen):
        if len(chosen) < len(menu):
            name = list(menu)[len(chosen)]
            tried = [choose({**chosen, name: value}) for value in menu[name]]
            return min((one for one in tried if one), key=lambda one: one[-1], default=None)
        if chosen["states"] == "disk" and chosen["eighths"] == 8:
            return None
        costs = price(chosen)
        return costs and (*chosen.values(), *costs)

    return choose({})
