"""What a recurrence gate keeps of the state, and how much of the input it lets in."""

from math import sqrt

from weft.draw.chart import Axis, Chart, Key, line
from weft.plan.arguments import number
from weft.plan.griffin import kept
from weft.plan.units import amount

SHOWN = (0.0, 0.01, 0.5, 1.0)  # the program's
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def gate_svg(a_param: float = -4.0) -> str:
    """a, sqrt(1 - a^2) and 1 - a over the gate, in a channel with some parameter."""
    a_param = number("a_param", a_param)
    looks = {"left of the state, a": line(0, 2.5), "let in, √(1 − a²)": line(1, 2.5)}
    looks["1 − a, for comparison"] = line(2, 1.25)

    def values(gate: float) -> tuple[float, float, float]:
        a = kept(gate, a_param)
        return a, sqrt(1 - a * a), 1 - a

    told = "; ".join(
        f"at {amount(gate)} a is {values(gate)[0]:.2f}, the root {values(gate)[1]:.2f}"
        for gate in SHOWN
    )
    chart = Chart(
        "What the recurrence gate does",
        f"Over a gate from 0 to 1: a falls from 1, 1 - a rises slowly from 0, and the root "
        f"rises vertically from 0: {told}.",
        Axis("recurrence gate", 0, 1, ticks=TICKS),
        Axis("factor", 0, 1, ticks=TICKS),
        [Key(name, look) for name, look in looks.items()],
    )
    spots = [(i / 80) ** 2 for i in range(81)]  # more of them where the root is steep
    for i, (name, look) in enumerate(looks.items()):
        chart.curve([(gate, values(gate)[i]) for gate in spots], look)
        for gate in SHOWN:
            value = values(gate)[i]
            chart.point(gate, value, f"{name}: {value:.2f} at a gate of {amount(gate)}", r=2.5)
    return str(chart.figure)
