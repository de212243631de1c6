"""The theme's icons, without the two thousand that no page shows.

Font Awesome comes as one script with a path for each icon it has, 1.5 MB on every page. Once all
pages are written, those whose name stands in no page and no script of the theme are taken out.
"""

import re
from pathlib import Path

ICON = re.compile(
    r'(?:"(?P<quoted>[a-z0-9-]+)"|(?P<plain>[a-z0-9]+)):'
    r'\[\d+,\d+,\[(?P<also>[^\]]*)\],"[0-9a-f]+",(?:"[^"]*"|\[[^\]]*\])\],?'
)
NAMED = re.compile(r"\bfa-([a-z0-9-]+)")


def named(folder: Path) -> set[str]:
    """The icons that the pages and scripts of a built book name."""
    files = [*folder.rglob("*.html"), *folder.glob("_static/scripts/*theme.js")]
    return {name for path in files for name in NAMED.findall(path.read_text(encoding="utf-8"))}


def thinned(script: str, wanted: set[str]) -> str:
    """The script with the wanted icons alone.

    >>> thinned('p={moon:[5,5,[],"f1",""],"x-y":[5,5,[7,"z"],"f2",["",""]],"q":[1,1,[],"f3",""]}',
    ...         {"z"})
    'p={"x-y":[5,5,[7,"z"],"f2",["",""]],}'
    """

    def kept(icon: re.Match) -> str:
        names = {icon["quoted"] or icon["plain"], *re.findall(r'"([^"]+)"', icon["also"])}
        return icon[0] if names & wanted else ""

    return ICON.sub(kept, script)


def thin(app, exception) -> None:
    script = Path(app.outdir) / "_static/scripts/fontawesome.js"
    if exception is None and app.builder.name == "html" and script.exists():
        whole = script.read_text(encoding="utf-8")
        script.write_text(thinned(whole, named(Path(app.outdir))), encoding="utf-8")


def setup(app):
    app.connect("build-finished", thin)
