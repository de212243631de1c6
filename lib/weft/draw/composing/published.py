"""How far the plan is off, for each published step: a strip of points for each table."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Figure, Scale, dashed
from weft.plan.composing import TESTS, Compared, compared, errors

WIDE, TOP, ROW, FAR = 350, 40, 46, 0.75
DASHES = {"stroke_dasharray": "3 3"}
NAMES = {
    "korthikanti": "Korthikanti 2022, A100",
    "narayanan": "Narayanan 2021, A100",
    "korthikanti 2240": "530 B on 2,240 A100",
    "narayanan 2": "Narayanan 2021, table 2",
    "bloom": "BLOOM, bf16 trials and log",
    "bridge": "Megatron-Bridge, H100, fp8",
    "bridge b200": "Megatron-Bridge, B200, dense",
    "bridge experts": "Megatron-Bridge, experts",
    "bloom fp16": "BLOOM, fp16 trials (fitted)",
    "torchtitan": "torchtitan, FSDP, A100",
    "torchtitan h100": "torchtitan, H100 at 500 W",
    "llm-foundry": "llm-foundry, FSDP, A100 and H100",
    "mt-nlg": "MT-NLG, second-hand",
    "llama 3": "Llama 3 405B, second-hand",
}


def published_svg() -> str:
    """Errors in percent to the right where the plan is too slow, to the left where too fast."""
    rows = {table: compared(table) for table in NAMES}
    figure = Figure.small(
        WIDE, TOP + ROW * len(rows) + 34, "Errors of predicted steps, by published table",
        _told(rows), largest=1.5,
    )  # fmt: skip
    test, other = svg.FORWARD.paint() | OUTLINE, svg.WAITING.paint() | OUTLINE
    svg.legend(
        figure, [("Megatron, dense", test), ("others", other), ("±10 %", dashed("3 3", 0.7))]
    )
    x = Scale(-FAR, FAR, 6, WIDE - 6)
    floor = TOP + ROW * len(rows)
    for i, (table, found) in enumerate(rows.items()):
        y, off = TOP + i * ROW, errors(found)
        figure.words(0, y + 6, NAMES[table], font_size=11, font_weight="bold")
        told = f"{off.average:.1%}, worst {off.worst:.0%}"
        figure.words(WIDE, y + 6, told, font_size=11, text_anchor="end")
        for at, look in ((0, {}), (-0.1, DASHES), (0.1, DASHES)):
            figure.line(x(at), y + 12, x(at), y + 30, stroke_opacity=0.6, **look)
        for one in found:
            tip = f"{one.step.name}, {one.step.layout}: {one.step.seconds:.3g} s, {one.error:+.1%}"
            spot = {"cx": x(max(-FAR, min(FAR, one.error))), "cy": y + 21, "r": 4}
            figure.mark("circle", **spot, **(test if table in TESTS else other), tip=tip)
    for tick in (-0.6, -0.4, -0.2, 0, 0.2, 0.4, 0.6):
        figure.words(x(tick), floor + 14, f"{tick:+.0%}" if tick else "0", font_size=11,
                     text_anchor="middle")  # fmt: skip
    figure.words(WIDE / 2, floor + 30, "too fast  ←  predicted  →  too slow", font_size=11,
                 text_anchor="middle")  # fmt: skip
    return str(figure)


def _told(rows: dict[str, tuple[Compared, ...]]) -> str:
    told = []
    for table, found in rows.items():
        off = errors(found)
        told.append(f"{NAMES[table]}: {len(found)} steps, {off.average:.1%} on average, "
                    f"{off.worst:.1%} at worst, {off.bias:+.1%} with signs")  # fmt: skip
    return f"Points about a line at 0. {'; '.join(told)}."
