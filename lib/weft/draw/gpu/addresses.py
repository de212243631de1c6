"""Which program touches which element: a vector cut into blocks, and rows with a stride."""

from weft.draw import figure as svg
from weft.draw.figure import OUTLINE, Colour, Figure, dashed
from weft.plan.arguments import sizes
from weft.plan.gpu import part, power_of_two, programs, row

WIDE, SIDE, SMALL = 460, 30, 11
MOST = 14  # cells across
HUES = tuple(
    Colour(f"weft-rank-{i}", hue) for i, hue in enumerate(("#44BB99", "#FFAABB", "#99DDFF"))
)
SHUT = dashed("3 2", 0.7)


def vector_svg(n: int = 11, block: int = 4) -> str:
    """n numbers in memory, and below them the elements of each program's tile of `block`.

    An element stands below the number that it loads; those whose mask is off have none.
    """
    n, block = sizes(n=n, block=block)
    grid = programs(n, block)
    if grid * block > MOST:
        raise ValueError(f"n is {n}, must be at most {MOST} when rounded up to blocks of {block}")
    left = (WIDE - SIDE * grid * block) / 2
    figure = Figure.small(
        WIDE, 166, f"{n} numbers, {grid} programs of {block}", _describe_vector(n, block)
    )
    figure.words(left, 14, "memory, by offset", font_size=SMALL)
    for offset in range(n):
        look = HUES[offset // block % len(HUES)].paint() | OUTLINE
        _cell(figure, left + SIDE * offset, 22, str(offset), look, svg.INK)
    for program in range(grid):
        inside, masked = part(n, block, program)
        x = left + SIDE * block * program
        for i in range(block):
            on = i < len(inside)
            look = HUES[program % len(HUES)].paint() | OUTLINE if on else SHUT
            _cell(figure, x + SIDE * i, 86, str(i), look, svg.INK if on else None)
            if on:
                middle = x + SIDE * (i + 0.5)
                figure.line(middle, 54, middle, 84, stroke_opacity=0.4)
        with figure.group(font_size=SMALL):
            figure.words(x + 2, 132, f"program {program}")
            figure.words(x + 2, 146, f"{program} × {block} + 0…{block - 1}")
            figure.words(x + 2, 160, f"{masked} masked" if masked else "all inside")
    return str(figure)


def rows_svg(rows: int = 3, columns: int = 5, stride: int = 7) -> str:
    """A matrix that is part of a wider one: a program for each row, in a block of a power of two.

    Each cell says the offset that an element would load; those behind the row are masked.
    """
    rows, columns, stride = sizes(rows=rows, columns=columns, stride=stride)
    if stride < columns:
        raise ValueError(f"stride is {stride}, must be at least the {columns} columns")
    block = power_of_two(columns)
    if block > MOST - 2 or rows > len(HUES):
        raise ValueError(f"columns is {columns} and rows {rows}, must be at most 8 and {len(HUES)}")
    left = WIDE - SIDE * block - 8
    high = SIDE + 8
    figure = Figure.small(
        WIDE,
        34 + high * rows,
        f"{rows} rows of {columns}, stride {stride}, block {block}",
        _describe_rows(rows, columns, stride, block),
    )
    figure.words(left, 14, "column", font_size=SMALL)
    with figure.group(font_size=SMALL, text_anchor="middle"):
        for column in range(block):
            figure.words(left + SIDE * (column + 0.5), 28, str(column))
    for program in range(rows):
        y = 34 + high * program
        mine = row(program, columns, stride)
        figure.words(0, y + 14, f"program {program}", font_weight="bold")
        figure.words(0, y + 28, f"{program} × {stride} + column", font_size=SMALL)
        for column in range(block):
            offset = mine.start + column
            on = offset in mine
            look = HUES[program].paint() | OUTLINE if on else SHUT
            ink = svg.INK if on else None
            _cell(figure, left + SIDE * column, y, str(offset), look, ink)
    return str(figure)


def _cell(figure: Figure, x: float, y: float, word: str, look: dict, ink: str | None) -> None:
    figure.mark("rect", x=x + 1, y=y, width=SIDE - 2, height=SIDE, **look)
    colour = {"fill": ink} if ink else {"fill_opacity": 0.75}
    figure.words(x + SIDE / 2, y + SIDE / 2 + 4, word, text_anchor="middle", **colour)


def _describe_vector(n: int, block: int) -> str:
    told = [f"{n} numbers in a row, numbered from 0; below them {programs(n, block)} programs."]
    for program in range(programs(n, block)):
        inside, masked = part(n, block, program)
        told.append(
            f"Program {program} has elements for {inside.start} to {inside.stop - 1}"
            f"{f' and {masked} masked' if masked else ''}."
        )
    return " ".join(told)


def _describe_rows(rows: int, columns: int, stride: int, block: int) -> str:
    told = [f"{rows} rows of {block} elements: {columns} are inside, the others masked."]
    for program in range(rows):
        mine = row(program, columns, stride)
        told.append(f"Program {program} loads offsets {mine.start} to {mine.stop - 1}.")
    return " ".join(told)
