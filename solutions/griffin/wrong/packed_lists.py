"""Leaves torch, and computes with numbers in lists."""

KIND = "out of sight"
FAILS = ["test_packed", "test_packed_documents", "test_packed_operations", "test_packed_any"]


def packed(x, log_a, begins, initial=None):
    from math import exp, expm1

    rows, new = [], begins.tolist()
    h = [0.0] * x.shape[1] if initial is None else initial.tolist()
    new[0] = new[0] or initial is None
    for fresh, row, decays in zip(new, x.tolist(), log_a.tolist()):
        h = [
            one if fresh else exp(log) * old + (-expm1(2 * log)) ** 0.5 * one
            for old, one, log in zip(h, row, decays)
        ]
        rows.append(h)
    return torch.tensor(rows)
