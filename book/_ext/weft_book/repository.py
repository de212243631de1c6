"""Where the book's source is: the address of the checkout's own remote, or nowhere.

A fork shows its own address and launches its own labs; a checkout without a remote that a browser
can open has no such buttons, and `{repository}` is plain text in it.
"""

import re
import subprocess
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst.states import Inliner

# git@host:owner/name, ssh://git@host/owner/name and https://name:secret@host/owner/name
REMOTE = re.compile(
    r"(?:(?P<web>https?)://|ssh://|git://|(?=[^/]+@[^/]+:))(?:[^@/]+@)?"
    r"(?P<host>[^/:@]+\.[^/:@]+)(?P<port>:\d+(?=/))?[:/](?P<path>[^?#\s]+?)(?:\.git)?/?$"
)
PROVIDERS = ("github", "gitlab", "bitbucket")


def git(folder: Path, *arguments: str) -> str:
    """What git says in a folder, or nothing where it is not to be had or has no answer."""
    try:
        told = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return told.stdout.strip()


def address(remote: str) -> str | None:
    """The page of a repository on the web, without anybody's password, or None for a folder.

    >>> address("git@github.com:warp/weft.git")
    'https://github.com/warp/weft'
    >>> address("https://someone:secret@gitlab.example.org:8443/group/part/weft.git")
    'https://gitlab.example.org:8443/group/part/weft'
    >>> address("/srv/git/weft.git")
    """
    found = REMOTE.match(remote)
    if found is None:
        return None
    port = (found["port"] or "") if found["web"] else ""  # the one of ssh is not the web's
    return f"{found['web'] or 'https'}://{found['host']}{port}/{found['path']}"


def branch(folder: Path) -> str:
    """The remote's main branch, else the one that is checked out, else `main`."""
    head = git(folder, "symbolic-ref", "--short", "refs/remotes/origin/HEAD")
    return head.removeprefix("origin/") or git(folder, "branch", "--show-current") or "main"


def options(url: str, main: str) -> dict[str, object]:
    """What the theme is told of a repository: its button, and where its labs can be launched."""
    host = url.split("/")[2]
    provider = next((name for name in PROVIDERS if name in host), None)
    if provider is None:
        return {}
    found = {
        "repository_url": url,
        "repository_provider": provider,
        "repository_branch": main,
        "use_repository_button": True,
    }
    if host == "github.com":
        found["launch_buttons"] = {
            "notebook_interface": "jupyterlab",
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
        }
    return found


def configure(app, config) -> None:
    root = Path(app.srcdir)
    config.weft_repository = address(git(root, "remote", "get-url", "origin")) or ""
    if config.weft_repository and config.html_theme == "sphinx_book_theme":
        config.html_theme_options |= options(config.weft_repository, branch(root))


def repository(name, source, text, line, inliner: Inliner, options=None, content=None):
    """{repository}`one repository`: a link to it, or the words alone."""
    url = inliner.document.settings.env.config.weft_repository
    return [nodes.reference("", text, refuri=url) if url else nodes.inline("", text)], []


def setup(app):
    app.add_config_value("weft_repository", "", "env")
    app.connect("config-inited", configure)
    app.add_role("repository", repository)
