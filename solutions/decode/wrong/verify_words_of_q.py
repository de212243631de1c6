"""Leaves out words that the draft never has, when a guess has fallen."""

KIND = "special case"
FAILS = ["test_verify", "test_verify_tree", "test_verify_siblings", "test_verify_any"]


def verify(
    parents: list[int],
    tokens: list[int],
    q: list[list[float]],
    p: list[list[float]],
    uniforms: list[float],
) -> list[int]:
    draws, here, made = iter(uniforms), 0, []
    while True:
        wanted, drafted = list(p[here]), list(q[here])
        for child in range(1, len(parents)):
            if parents[child] != here:
                continue
            x = tokens[child]
            if next(draws) * drafted[x] < wanted[x]:
                break
            left = [max(a - b, 0.0) for a, b in zip(wanted, drafted, strict=True)]
            left = [a * (b > 0) for a, b in zip(left, q[here], strict=True)]
            wanted = _normal(left) if any(left) else wanted
            drafted[x] = 0.0
            drafted = _normal(drafted)
        else:
            number, x, upto = next(draws), 0, wanted[0]
            while upto <= number and x + 1 < len(wanted):
                x += 1
                upto += wanted[x]
            return [*made, x]
        made.append(tokens[child])
        here = child
