"""The delta rule as a noticeboard: what each rule's state answers after each write."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure
from weft.plan.linear import answers

P, R, BETWEEN = (1.0, 0.0), (0.0, 1.0), (0.6, 0.8)
WRITES = (("1 under p", P, 1.0), ("4 under r", R, 4.0), ("2 under p", P, 2.0))
WRITES += (("3 under s", BETWEEN, 3.0),)
DECAY = 0.5
RULES = (("plain", "plain", 1.0), ("gate, ½", "plain", DECAY), ("delta", "delta", 1.0))
NAME, CELL, HIGH = 62, 68, 54


def board_svg() -> str:
    """Four writes, and after each what a state answers to p, r, and once it is written s.

    Keys have length 1; p and r are at right angles, s lies between them. An answer that is the
    last value written under its key is marked.
    """
    keys, values = [key for _, key, _ in WRITES], [value for _, _, value in WRITES]
    told = {
        name: answers(keys, values, (P, R, BETWEEN), rule, decay) for name, rule, decay in RULES
    }
    figure = Figure.small(
        NAME + len(WRITES) * CELL, 74 + len(RULES) * (HIGH + 8),
        "What a state answers after each write, under three rules", _describe(told), largest=1.4,
    )  # fmt: skip
    right = {"last value, exactly": svg.FORWARD.paint(0.3) | OUTLINE}
    svg.legend(figure, [*right.items(), ("anything else", {"fill_opacity": 0.06})])
    figure.words(0, 44, "write")
    with figure.group(text_anchor="middle", font_size=11):
        for i, (write, _, _) in enumerate(WRITES):
            figure.words(NAME + (i + 0.5) * CELL - 3, 44, write)
    last: dict[tuple, float] = {}
    for i, (_, key, value) in enumerate(WRITES):
        last = last | {key: value}
        for line, (name, _, _) in enumerate(RULES):
            top = 56 + line * (HIGH + 8)
            if not i:
                figure.words(0, top + HIGH / 3 + 4, name, font_weight="bold")
            for part, key_asked in enumerate((P, R, BETWEEN)):
                if key_asked == BETWEEN and BETWEEN not in last:
                    continue
                answer = told[name][i][part]
                exact = key_asked in last and abs(answer - last[key_asked]) < 1e-9
                look = svg.FORWARD.paint(0.3) if exact else {"fill_opacity": 0.06}
                box = {"x": NAME + i * CELL, "y": top + part * HIGH / 3, "width": CELL - 6}
                figure.mark("rect", **box, height=HIGH / 3, **look, **(OUTLINE if exact else {}))
                figure.words(
                    NAME + i * CELL + 6, top + part * HIGH / 3 + 14, f"{'prs'[part]}: {answer:.4g}",
                    font_size=11, **({"fill": svg.INK} if exact else {}),
                )  # fmt: skip
    return str(figure)


def _describe(told) -> str:
    lines = [
        f"{name}: "
        + "; ".join(f"p {p:.4g}, r {r:.4g}" for p, r, _ in steps)
        + f", s {steps[-1][-1]:.4g}."
        for name, steps in told.items()
    ]
    writes = ", ".join(write for write, _, _ in WRITES)
    return f"Writes {writes}; s lies between p and r. Answers after each. {' '.join(lines)}"
