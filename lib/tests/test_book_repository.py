"""The repository's address comes from the checkout's own remote, or is not there."""

import subprocess
import sys

import pytest
from book_site import small_book


@pytest.fixture(scope="module")
def repository(root):
    sys.path.insert(0, str(root / "book" / "_ext"))
    from weft_book import repository

    yield repository
    sys.path.remove(str(root / "book" / "_ext"))


@pytest.mark.parametrize(
    ("remote", "page"),
    {
        "https://github.com/warp/weft.git": "https://github.com/warp/weft",
        "https://github.com/warp/weft/": "https://github.com/warp/weft",
        "https://name:secret@github.com/warp/weft.js": "https://github.com/warp/weft.js",
        "git@github.com:warp/weft.git": "https://github.com/warp/weft",
        "ssh://git@git.example.org:2222/a/b/weft.git": "https://git.example.org/a/b/weft",
        "http://gitlab.example.org:8080/a/weft": "http://gitlab.example.org:8080/a/weft",
        "/srv/git/weft.git": None,
        "../weft": None,
        "file:///srv/git.example.org/weft.git": None,
        "": None,
    }.items(),
)
def test_a_remote_has_a_page_or_none(repository, remote, page):
    assert repository.address(remote) == page


def test_what_the_theme_is_told_depends_on_the_host(repository):
    github = repository.options("https://github.com/warp/weft", "trunk")
    assert github["repository_branch"] == "trunk" and "colab_url" in github["launch_buttons"]
    gitlab = repository.options("https://gitlab.example.org/warp/weft", "main")
    assert gitlab["repository_provider"] == "gitlab" and "launch_buttons" not in gitlab
    assert repository.options("https://git.example.org/warp/weft", "main") == {}


PAGE = {"index": "# Source\n\nIt lies in {repository}`one repository`.\n"}


def test_the_words_are_a_link_where_there_is_a_remote(tmp_path):
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    alone = small_book(tmp_path, PAGE)
    assert not alone.failed, alone.said
    assert "one repository" in alone.read("index.html")
    assert ">one repository</a>" not in alone.read("index.html")
    remote = "https://someone:secret@github.com/warp/weft.git"
    subprocess.run([*git, "remote", "add", "origin", remote], check=True)
    linked = small_book(tmp_path, PAGE)
    assert not linked.failed, linked.said
    link = '<a class="reference external" href="https://github.com/warp/weft">one repository</a>'
    assert link in linked.read("index.html") and "secret" not in linked.read("index.html")
