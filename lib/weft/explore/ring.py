"""The sliders of the chapter on ring attention: who waits in a pass, and which way is fastest."""

from weft.draw.ring import METHODS_SHOWN, TOKENS, best_svg, costs, steps_svg
from weft.explore.box import explored
from weft.plan.ring import efficiency, longest_path, work
from weft.plan.units import amount, length, percent


@explored
def balance(layout: str = "contiguous", n: int = 4) -> tuple[str, str]:
    """The schedule of a causal pass, and how busy its ranks are, counted in both ways."""
    picture = steps_svg(n, layout)
    T = n * TOKENS
    longest = longest_path(T, n, layout)
    scores = sum(map(sum, work(T, n, layout))) / n / longest
    faster = longest_path(T, n, "contiguous") / longest
    beside = f" It is {amount(faster, 3)} times as fast as contiguous." * (layout != "contiguous")
    summary = (
        f"The pass takes {amount(longest / TOKENS**2, 3)} blocks. Ranks compute {percent(scores)} "
        f"of that time, by scores; {percent(efficiency(T, n, layout))} of the steps, where a step "
        f"counts alike whatever its mask.{beside}"
    )
    return picture, summary


@explored
def best(
    T: int = 131072, n: int = 16, box: str = "dgx-h100", G: int = 8, merged: int = 90
) -> tuple[str, str]:
    """The map of the fastest ways, and what each costs at the chosen place."""
    picture = best_svg(T, n, box, G, merged / 100)
    found = costs(T, n, box, G, merged / 100)
    told = ", ".join(f"{METHODS_SHOWN[way][0]} {cost:.2f}" for way, cost in found.items())
    able = (*found, "double")  # which needs no heads, only a second box
    missing = [name for way, (name, _) in METHODS_SHOWN.items() if way not in able]
    no = f" Heads or GPUs do not divide for {' and '.join(missing)}." if missing else ""
    no += " Copies of kv heads are not counted." if "ulysses" not in found else ""
    return picture, f"{length(T)} tokens on {n} GPUs, times computing alone: {told}.{no}"
