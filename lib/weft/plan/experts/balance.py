"""The loss that balances a router, and its gradient, in plain numbers."""

from collections.abc import Sequence

from weft.plan.arguments import amount, row

Rows = Sequence[Sequence[float]]


def balance_loss(probabilities: Rows) -> float:
    """E sum_i f_i P_i for tokens that go to their likeliest expert, one row for each token.

    f_i is the share of tokens that go to expert i, P_i its mean probability. Fedus et al. 2022,
    equations 4 to 6.

    >>> balance_loss([[0.5, 0.5]] * 4), round(balance_loss([[0.51, 0.49]] * 9 + [[0.0, 1.0]]), 4)
    (1.0, 0.9344)
    """
    rows = _checked(probabilities)
    E, mean = len(rows[0]), [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return E * sum(f * P for f, P in zip(_shares(rows), mean, strict=True))


def balance_slopes(probabilities: Rows) -> list[list[float]]:
    """The gradient of `balance_loss` in each token's logits: (E / T) p_j (f_j - sum_i f_i p_i).

    >>> [[round(x, 3) for x in one] for one in balance_slopes([[0.75, 0.25], [0.6, 0.4]])]
    [[0.188, -0.188], [0.24, -0.24]]
    """
    rows = _checked(probabilities)
    f, scale = _shares(rows), len(rows[0]) / len(rows)
    means = [sum(share * p for share, p in zip(f, one, strict=True)) for one in rows]
    return [
        [scale * p * (share - mean) for share, p in zip(f, one, strict=True)]
        for one, mean in zip(rows, means, strict=True)
    ]


def _shares(rows: list[list[float]]) -> list[float]:
    """The share of tokens whose likeliest expert is each one; of equals the first."""
    best = [max(range(len(one)), key=one.__getitem__) for one in rows]
    return [best.count(i) / len(rows) for i in range(len(rows[0]))]


def _checked(probabilities: Rows) -> list[list[float]]:
    rows = [row("probabilities", one) for one in row("probabilities", probabilities)]
    for one in rows:
        if len(one) != len(rows[0]):
            raise ValueError(f"probabilities has rows of {len(rows[0])} and {len(one)} experts")
        for p in one:
            if amount("probabilities", p) > 1:
                raise ValueError(f"probabilities has {p!r}, must be at most 1")
    return rows
