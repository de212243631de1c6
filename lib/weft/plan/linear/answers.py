"""What a state answers to a key after each write: a rule seen as a table that is looked up in."""

from collections.abc import Sequence

from weft.plan.arguments import amount, chosen, number, row
from weft.plan.linear.forms import RULES

Vector = Sequence[float]


def answers(
    keys: Sequence[Vector],
    values: Sequence[float],
    asked: Sequence[Vector],
    rule: str = "plain",
    decay: float = 1.0,
) -> tuple[tuple[float, ...], ...]:
    """After each write, what the state answers to each key that is asked; values of width 1.

    The whole state fades by `decay` before a write. "plain" adds v k; "delta" adds what is missing
    from v to the answer to k, times k. Keys of length 1 are expected, not required.

    >>> a, b = (1.0, 0.0), (0.0, 1.0)
    >>> answers([a, b, a], [1.0, 4.0, 2.0], [a, b])
    ((1.0, 0.0), (1.0, 4.0), (3.0, 4.0))
    >>> answers([a, b, a], [1.0, 4.0, 2.0], [a, b], rule="delta")
    ((1.0, 0.0), (1.0, 4.0), (2.0, 4.0))
    """
    return tuple(
        tuple(_dot(state, key) for key in asked)
        for state, _ in _steps(keys, values, asked, rule, decay)
    )


def written(keys: Sequence[Vector], values: Sequence[float]) -> tuple[float, ...]:
    """What the delta rule writes under each key, one after the other: the difference alone.

    >>> written([(1.0, 0.0), (0.6, 0.8)], [1.0, 2.0])
    (1.0, 1.4)
    """
    return tuple(amount for _, amount in _steps(keys, values, (), "delta", 1.0))


def _steps(keys, values, asked, rule, decay):
    """The state and what was written, write after write."""
    keys = [_vector("keys", key) for key in row("keys", keys)]
    values = [number("values", value) for value in row("values", values)]
    if len(values) != len(keys):
        raise ValueError(f"values has {len(values)} entries, must have one for each key")
    for name, vectors in (("keys", keys), ("asked", row("asked", asked, empty=True))):
        if any(len(_vector(name, vector)) != len(keys[0]) for vector in vectors):
            raise ValueError(f"{name} has vectors of several lengths, must have keys[0]'s")
    chosen("rule", rule, RULES)
    if amount("decay", decay) > 1:
        raise ValueError(f"decay is {decay}, must be at most 1")
    state, steps = [0.0] * len(keys[0]), []
    for key, value in zip(keys, values, strict=True):
        state = [decay * s for s in state]
        new = value - _dot(state, key) if rule == "delta" else value
        state = [s + new * k for s, k in zip(state, key, strict=True)]
        steps.append((state, new))
    return steps


def _vector(name: str, vector: Vector) -> list[float]:
    return [number(name, x) for x in row(name, vector)]


def _dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
