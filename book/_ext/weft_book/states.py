"""Draw one state of an `{explore}` box, or answer a `{planner}`.

The build draws with this file, and so does the page: it is copied beside the library, and the
worker runs it under Pyodide. One text, so one picture.
"""

import html
import importlib
import inspect
import json
from collections.abc import Callable


def draw(
    target: str,
    controls: str,
    chosen: list[int],
    progress: Callable[[float, float], object] | None = None,
) -> str:
    """Call a function of weft.explore with the chosen value of each control.

    `target` is "module.function", `controls` the JSON list of [name, values] pairs, `chosen` one
    position in each list of values. A ValueError is an answer too: that state cannot be. A function
    that takes long takes `progress`, to call it with how much is done, of how much.
    """
    module, function = target.rsplit(".", 1)
    values = {
        name: choices[position]
        for (name, choices), position in zip(json.loads(controls), chosen, strict=True)
    }
    called = getattr(importlib.import_module(f"weft.explore.{module}"), function)
    if progress is not None and "progress" in inspect.signature(called).parameters:
        values["progress"] = progress
    try:
        return called(**values)
    except ValueError as error:
        return f'<p class="explore-note">{html.escape(str(error))}</p>'
