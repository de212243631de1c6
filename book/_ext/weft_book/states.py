"""Draw one state of an `{explore}` box.

The build draws with this file, and so does the page: it is copied beside the library, and the
worker runs it under Pyodide. One text, so one picture.
"""

import html
import importlib
import json


def draw(target: str, controls: str, chosen: list[int]) -> str:
    """Call a function of weft.explore with the chosen value of each control.

    `target` is "module.function", `controls` the JSON list of [name, values] pairs, `chosen` one
    position in each list of values. A ValueError is an answer too: that state cannot be.
    """
    module, function = target.rsplit(".", 1)
    values = {
        name: choices[position]
        for (name, choices), position in zip(json.loads(controls), chosen, strict=True)
    }
    try:
        return getattr(importlib.import_module(f"weft.explore.{module}"), function)(**values)
    except ValueError as error:
        return f'<p class="explore-note">{html.escape(str(error))}</p>'
