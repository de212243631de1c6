"""The theme's icons: those that a page names stay, under any of their names."""

import sys

import pytest


@pytest.fixture(scope="module")
def icons(root):
    sys.path.insert(0, str(root / "book" / "_ext"))
    from weft_book import icons

    yield icons
    sys.path.remove(str(root / "book" / "_ext"))


def test_an_icon_stays_under_any_of_its_names(icons):
    moon, file = 'moon:[5,5,[],"f1","M1"],', '"x-y":[5,5,[7,"file"],"f2",["",""]],'
    whole = f'var p={{{moon}{file}"q":[1,1,[],"f3","M2"]}};f(p)'
    assert icons.thinned(whole, {"file"}) == f"var p={{{file}}};f(p)"
    assert icons.thinned(whole, {"moon", "x-y", "q"}) == whole


def test_pages_and_the_themes_scripts_name_them(icons, tmp_path):
    scripts = tmp_path / "_static/scripts"
    scripts.mkdir(parents=True)
    (scripts / "some-theme.js").write_text('add("fa-solid fa-sun")')
    (scripts / "fontawesome.js").write_text('"fa-no"')
    (tmp_path / "book").mkdir()
    (tmp_path / "book/a.html").write_text('<i class="fa-solid fa-angle-left"></i>')
    assert icons.named(tmp_path) == {"solid", "sun", "angle-left"}
