"""What Griffin's recurrence accepts."""

from typing import Any

from weft.plan.tensors import accumulator, between, ranked, tensor


def check_gates(
    x: Any, input_gate: Any, recurrence_gate: Any, a_param: Any, initial: Any, reset: Any
) -> None:
    """x and gates in [0, 1] [B, T, D], a_param [D], a state [B, D], resets [B, T].

    The last two may be None, and T 0. ValueError names what does not fit.
    """
    B, T, D = ranked("x", x, "B T D", empty="T")
    for name, gate in (("input_gate", input_gate), ("recurrence_gate", recurrence_gate)):
        tensor(name, gate, "[B, T, D] as x", (B, T, D), beside=("x", x))
        between(name, gate, 0, 1)
    tensor("a_param", a_param, "[D] of x", (D,), beside=("x", x))
    if initial is not None:
        tensor("initial", initial, "[B, D] of x", (B, D), dtypes=(accumulator(x),), beside=("x", x))
    if reset is not None:
        tensor("reset", reset, "[B, T] of x", (B, T), dtypes=("bool",), beside=("x", x))


def check_scan(a: Any, x: Any, initial: Any) -> None:
    """a and x [B, T, D], and a state [B, D] or None; T may be 0. ValueError names what is not."""
    B, T, D = ranked("x", x, "B T D", empty="T")
    tensor("a", a, "[B, T, D] as x", (B, T, D), beside=("x", x))
    if initial is not None:
        tensor("initial", initial, "[B, D] of x", (B, D), dtypes=(accumulator(x),), beside=("x", x))
