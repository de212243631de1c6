"""Find a Chromium for the tests that look at the pages; `--ensure` installs one if it can.

Any Chromium or Chrome will do: the system's, or the one that Playwright keeps. Installing takes
no question where it can be done without one (as root with apt-get, or by Playwright itself);
elsewhere one line names the command. The exit code says whether there is a browser now.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Google\Chrome\Application\chrome.exe",
)
# In a container there is no user namespace for the sandbox, little /dev/shm and no GPU. The pages
# are our own.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
PLAYWRIGHT_INSTALL = [sys.executable, "-m", "playwright", "install", "chromium"]


def find() -> str | None:
    """The path of a Chromium that is installed, or None."""
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found
    for path in APPLICATIONS:
        if os.path.isfile(path):
            return path
    return _playwrights_own()


def _playwrights_own() -> str | None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if path and os.path.isfile(path) else None


@contextmanager
def launched() -> Iterator[object]:
    """A running browser with the flags that a container needs."""
    from playwright.sync_api import sync_playwright

    path = find()
    if path is None:
        raise RuntimeError(missing())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def missing() -> str:
    """One line: what is missing, and the command that installs it here."""
    return f"no Chromium for the browser tests; install it with: {_command_by_hand()}"


def _command_by_hand() -> str:
    if shutil.which("apt-get"):
        return "sudo apt-get install chromium"
    if sys.platform == "darwin" and shutil.which("brew"):
        return "brew install --cask chromium"
    return " ".join(["python", *PLAYWRIGHT_INSTALL[1:]])


def ensure() -> bool:
    """Install a Chromium if there is none and no question is needed for it."""
    if find():
        return True
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if as_root and shutil.which("apt-get"):
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        _try(["apt-get", "update", "-qq"], quiet)
        _try(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], quiet)
    if not find():
        _try(PLAYWRIGHT_INSTALL, {})
    return find() is not None


def _try(command: list[str], more: dict[str, str]) -> None:
    """Run an installer; whether it helped is asked of `find`, not of its exit code."""
    print(f"Chromium: {' '.join(command[-4:])}", file=sys.stderr, flush=True)
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            command, env=os.environ | more, timeout=600, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Print the browser's path, or what to do about there being none."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--ensure", action="store_true", help="install one if that needs no question"
    )
    options = parser.parse_args(arguments)
    if options.ensure:
        ensure()
    path = find()
    if path is None:
        print(missing(), file=sys.stderr)
        return 0 if options.ensure and not os.environ.get("CI") else 1
    if not options.ensure:
        print(Path(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
