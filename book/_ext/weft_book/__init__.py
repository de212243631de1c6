"""The book's Sphinx extension: pages whose numbers, pictures and measurements come from lib/.

    calc      {calc}                        a number in a sentence, computed at build time
    picture   {picture}                     a picture of the library, with caption and alt text
    explore   {explore}                     a picture with sliders
    planner   {planner}                     a form that plans a model on a cluster
    guess     {guess}, {guess-answer}       the reader's guess, kept and compared
    measured  {measured}, {measured-value}  records of book/measured
    path      {path}, {words}               the way through the chapters, and their words
    labs      the labs' stored outputs      pictures among them
    icons     the theme's icons             those that a page shows
    references                              a list with links, no two works alike
    repository  {repository}                the checkout's own remote, its buttons or none

Whatever is wrong is a warning with file and line; the book is built with warnings as errors.
"""

from . import (
    calc,
    explore,
    fresh,
    guess,
    icons,
    labs,
    measured,
    path,
    picture,
    planner,
    references,
    repository,
)


def one_page(app):
    """The book as a single page has the formulas' script, though its first chapter needs none."""
    if app.builder.name == "singlehtml":
        app.set_html_assets_policy("always")


def setup(app):
    for part in (
        fresh,
        calc,
        picture,
        explore,
        planner,
        guess,
        icons,
        measured,
        labs,
        path,
        references,
        repository,
    ):
        part.setup(app)
    app.connect("builder-inited", one_page)
    app.add_css_file("weft.css")
    for script in ("explore.js", "planner.js", "guess.js", "measured.js", "wide.js"):
        app.add_js_file(script, loading_method="defer")
    return {"version": "1", "env_version": 1, "parallel_read_safe": True}
