"""What this machine can run, and what each missing thing would take.

Every probe tries the thing itself where that costs less than a few seconds: two ranks meet over
gloo, a network namespace is opened. A probe that fails says what it would take, in one line.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

GIB = 2**30
WHOLE = 8  # GiB: an environment with torch for CUDA, JupyterLab and the book's tools
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Finding:
    """One thing: whether it is there, what was found, and what it would take where it is not."""

    what: str
    there: bool
    found: str
    takes: str = ""
    needed: bool = False

    @property
    def mark(self) -> str:
        """A word for the first column."""
        return "ok" if self.there else "--"


def examine() -> list[Finding]:
    """Look at everything, in the order in which a reader comes to need it."""
    return [probe() for probe in PROBES]


def python() -> Finding:
    """The interpreter, the only thing without which nothing runs."""
    there = sys.version_info >= (3, 11)
    takes = "" if there else "install Python 3.11, 3.12 or 3.13"
    return Finding("Python", there, platform.python_version(), takes, needed=True)


def processor() -> Finding:
    """Cores, which ranks share, and memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = f"{cores} cores"
    if "SC_PHYS_PAGES" in os.sysconf_names:
        found += f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB:.0f} GiB"
    takes = "" if cores >= 2 else "the tests and labs expect two cores; with one they take longer"
    return Finding("processor", cores >= 2, found, takes)


def disk() -> Finding:
    """Room for the environment, in the folder where it would be made."""
    free = shutil.disk_usage(".").free / GIB
    takes = "" if free >= WHOLE else f"make setup may need {WHOLE} GiB here"
    return Finding("disk", free >= WHOLE, f"{free:.0f} GiB free", takes)


def package(name: str, use: str) -> Finding:
    """A Python package, by its metadata: nothing is imported."""
    try:
        return Finding(name, True, metadata.version(name))
    except metadata.PackageNotFoundError:
        takes = f"make setup, or pip install {name}: {use}"
        return Finding(name, False, "not installed", takes)


def gpu() -> Finding:
    """A CUDA device that torch can use."""
    try:
        import torch
    except ImportError:
        return Finding("GPU", False, "cannot be asked without torch", "install torch first")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Finding("GPU", True, ", ".join(names))
    if torch.version.cuda is None:
        takes = "a build of torch for CUDA, and an NVIDIA GPU with its driver"
        return Finding("GPU", False, "this torch is a build for processors", takes)
    takes = "an NVIDIA GPU with a driver for CUDA " + torch.version.cuda
    return Finding("GPU", False, "torch sees no CUDA device", takes + "; then make gpu")


def nccl() -> Finding:
    """The library by which GPUs talk to each other."""
    try:
        import torch
    except ImportError:
        return Finding("NCCL", False, "cannot be asked without torch", "install torch first")
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        return Finding("NCCL", True, "there, for ranks on GPUs")
    takes = "a build of torch for CUDA; ranks on processors use gloo and need none"
    return Finding("NCCL", False, "not in this torch", takes)


def ranks() -> Finding:
    """Two processes that find each other over gloo, as the ranks of a run do."""
    try:
        from weft.run.world import launch

        met = launch(_rank, 2, backend="gloo", timeout=60) == [0, 1]
    except ImportError as error:
        takes = "make setup, or pip install torch: the runs of each chapter"
        return Finding("ranks", False, f"no {error.name}", takes)
    except (RuntimeError, OSError) as error:
        takes = "processes must be allowed to start and to talk over the loopback interface"
        return Finding("ranks", False, str(error).splitlines()[0], takes)
    takes = "" if met else "the ranks came back in disorder: report it with the versions above"
    return Finding("ranks", met, "two processes met over gloo", takes)


def _rank(world) -> int:
    return world.rank


def browser() -> Finding:
    """Chromium, for the tests that look at the pages."""
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return Finding("Chromium", True, _output([path, "--version"]) or name)
    cached = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", Path.home() / ".cache/ms-playwright"))
    kept = sorted(cached.glob("chromium-*"))
    if kept:
        return Finding("Chromium", True, f"playwright's {kept[-1].name}")
    takes = "apt-get install chromium, or python -m playwright install chromium: the browser tests"
    return Finding("Chromium", False, "not found", takes)


def namespaces() -> Finding:
    """Network namespaces, by which one machine plays two."""
    if sys.platform != "linux":
        return Finding(
            "network namespaces", False, "not on this system", "Linux: runs on two nodes"
        )
    command = ["unshare", "--user", "--map-root-user", "--net", "true"]
    if shutil.which("unshare") and shutil.which("ip"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        if done.returncode == 0:
            return Finding("network namespaces", True, "allowed, two nodes can be played")
        found = (done.stderr.strip().splitlines() or ["refused"])[0]
        takes = "root, or user namespaces allowed by the kernel: tests that play two nodes"
        return Finding("network namespaces", False, found, takes)
    takes = "apt-get install iproute2 util-linux: tests that play two nodes"
    return Finding("network namespaces", False, "no ip or unshare", takes)


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


PROBES: tuple[Callable[[], Finding], ...] = (
    python,
    processor,
    disk,
    lambda: package("numpy", "torch's tensors in numpy's clothes"),
    lambda: package("rich", "tables on a terminal; plain text otherwise"),
    lambda: package("torch", "references, runs and labs"),
    lambda: package("triton", "kernels (Linux)"),
    ranks,
    gpu,
    nccl,
    lambda: package("pytest", "make test, weft grade"),
    lambda: package("jupyter-book", "make read"),
    lambda: package("jupyterlab", "make lab"),
    browser,
    namespaces,
)
