"""Pictures of timelines: characters for a terminal, SVG for a page.

All of them are plain functions from a timeline to a string, the same string each time. In a
notebook a timeline is shown as its picture once this module has been imported.
"""

import sys

from weft.draw.pipeline.bubble import bubble_svg
from weft.draw.pipeline.characters import text
from weft.draw.pipeline.compare import compare_svg, measured_svg
from weft.draw.pipeline.deadlock import deadlock_svg
from weft.draw.pipeline.grid import grid as svg
from weft.draw.pipeline.kept import kept_svg
from weft.draw.pipeline.ledger import ledger_svg
from weft.draw.pipeline.live import live_svg
from weft.draw.pipeline.placement import placement_svg
from weft.draw.pipeline.steps import steps_svg
from weft.draw.pipeline.trip import trip_svg
from weft.plan.simulate import Timeline

__all__ = [
    "bubble_svg",
    "compare_svg",
    "deadlock_svg",
    "kept_svg",
    "ledger_svg",
    "live_svg",
    "measured_svg",
    "placement_svg",
    "steps_svg",
    "svg",
    "text",
    "trip_svg",
]


def _show_in_notebooks() -> None:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell:
        shell.display_formatter.formatters["text/html"].for_type(Timeline, svg)


_show_in_notebooks()
