"""The mended interpreter: what Triton's own gets wrong, that ours does not, and for how long."""

import os
import subprocess
import sys

import triton

from weft.kernels import interpret

KERNELS = """
import warnings
import torch
import triton
import triton.language as tl
{mended}

@triton.jit
def add(p_x, p_y, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(p_y + o, tl.load(p_x + o) + tl.load(p_x + o))

@triton.jit
def rounded(p_x, p_y, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(p_y + o, tl.load(p_x + o).to(tl.bfloat16))

@triton.jit
def product(p_x, p_y, N: tl.constexpr):
    o = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    b = tl.load(p_x + o)
    tl.store(p_y + o, tl.dot(b, b).to(tl.bfloat16))

@triton.jit
def undefined(p_x, p_y, N: tl.constexpr):
    b = tl.load(p_x + tl.arange(0, N)) * float("inf")
    tl.store(p_y + tl.arange(0, N), b - b)

@triton.jit
def if_positive(p_x, p_y, N: tl.constexpr):
    o = tl.arange(0, N)
    mask = (o < N - 1) & (tl.load(p_x) > 0.0)
    tl.store(p_y + o, tl.load(p_x + o), mask=mask)

def sums():
    add[(1,)](brain, y := brain * 0, N=256)
    assert y.equal(brain + brain)

def rounding():
    rounded[(1,)](x, y := brain * 0, N=256)
    assert y.equal(brain)

def products():
    a = brain.view(16, 16)
    product[(1,)](a, y := a * 0, N=16)
    assert (y.float() - a.float() @ a.float()).abs().max() < 0.5

def masks():
    if_positive[(1,)](x, y := x * 0, N=256)
    assert y[:-1].equal(x[:-1]) and y[-1] == 0

def silence():
    undefined[(1,)](x, y := x * 0, N=256)
    assert y.isnan().all()

warnings.simplefilter("error")
x = torch.linspace(0.1, 3, 256)
brain = x.bfloat16()
for right in (sums, rounding, products, masks, silence):
    try:
        right()
        print(right.__name__)
    except Exception:
        pass
"""


def right(folder, mended: bool) -> list[str]:
    """What comes out right in a fresh process, interpreted by Triton's own or by the mended one."""
    file = folder / "program.py"
    file.write_text(KERNELS.format(mended="import weft.kernels" if mended else ""))
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, file], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split()


def test_all_is_right_with_the_mends_and_nothing_without(tmp_path):
    assert right(tmp_path, mended=True) == ["sums", "rounding", "products", "masks", "silence"]
    assert right(tmp_path, mended=False) == [], "these mends are not needed any more"


def test_the_release_is_one_whose_interpreter_was_looked_at():
    release = ".".join(triton.__version__.split(".")[:2])
    assert release in interpret.SEEN, (
        f"Triton {triton.__version__} is newer than {interpret.SEEN[-1]}: is weft.kernels.interpret"
        " still needed? Delete what the test above finds right without it, and add to SEEN"
    )
