"""Pictures of timelines: characters for a terminal, SVG for a page.

Each face is named for what it shows and lives in a file of its own. All of them are plain
functions from a timeline to a string, the same string each time.
"""

from weft.plan.draw_bubble import bubble_svg
from weft.plan.draw_compare import compare_svg, measured_svg
from weft.plan.draw_deadlock import deadlock_svg
from weft.plan.draw_grid import grid as svg
from weft.plan.draw_ledger import ledger_svg
from weft.plan.draw_live import live_svg
from weft.plan.draw_text import text

__all__ = [
    "bubble_svg",
    "compare_svg",
    "deadlock_svg",
    "ledger_svg",
    "live_svg",
    "measured_svg",
    "svg",
    "text",
]
