"""compile_for and the interpreter switch: what they build, what they refuse, who decides."""

import importlib
import os
import pkgutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import weft.kernels
from weft.kernels import Compiled, Pass, compile_for
from weft.kernels.code import compile, digest, launch, recorded_target, recording, store
from weft.kernels.code.compile import TARGETS
from weft.process.forkserver import Forkserver

TOY = '''
"""A product of two tiles, in a module that another process can import."""
from typing import Any, NamedTuple
import torch
import triton
import triton.language as tl
from weft.kernels import Pass
from weft.kernels.code import launch, recording

@triton.jit
def product(p_a, p_b, p_c, stride, N: tl.constexpr, BROKEN: tl.constexpr):
    o = tl.arange(0, N)
    o_tile = o[:, None] * stride + o[None, :]
    b = tl.dot(tl.load(p_a + o_tile), tl.load(p_b + o_tile))
    if BROKEN:
        b = tl.dot(b, o)
    tl.store(p_c + o_tile, tl.exp2(b))

SIGNATURE = {"p_a": "*bf16:16", "p_b": "*bf16:16", "p_c": "*fp32:16", "stride": "i32:16"}

def one(broken=False, **more):
    constexprs = {"N": 64, "BROKEN": broken} | more
    return Pass("forward", product, SIGNATURE, constexprs, {"num_warps": 4})

def passes(target):
    if target == "sm_80":
        raise ValueError("target is 'sm_80'; the toy has passes for sm_90 and sm_100")
    return (one(),)

class Strided(NamedTuple):
    p: Any
    step: Any

@triton.jit
def copy(x, y, N: tl.constexpr):
    o = tl.arange(0, N)
    if y.p is not None:
        tl.store(y.p + o * y.step, tl.load(x.p + o * x.step))

def copied(x, y):
    N = 16
    launch("copy", copy, (1,), Strided(x, x.stride(0)), Strided(y, y.stride(0)), N=N)

def copied_passes(target):
    with recording(target) as found:
        copied(torch.empty(32, device="meta")[::2], torch.empty(64, device="meta")[::4])
    return tuple(found)

copied.passes = copied_passes

def face(): pass
def broken(): pass
def stranger(): pass
def sized(): pass
broken.passes = lambda target: (one(broken=True),)
stranger.passes = lambda target: (one(M=3),)
sized.passes = lambda target, n=64: (one(N=n),)
'''
SWITCH = """
import sys
{before}
from weft.kernels.code import compile
from triton.language import zeros
import triton, triton.language as tl
print(type(tl.zeros).__name__, zeros is tl.zeros, type(tl.sum).__name__)
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    (folder / "weft_toy.py").write_text(TOY)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        yield importlib.import_module("weft_toy")
        sys.modules.pop("weft_toy")


@pytest.fixture(scope="module")
def built(toy):
    (one,) = compile_for(toy.face, "sm_90")
    return one


def test_a_tile_product_becomes_tensor_core_instructions(built):
    assert isinstance(built, Compiled) and built.name == "forward"
    assert built.count("HGMMA") > 0 and built.count("wgmma.mma_async") > 0
    assert built.count("HMMA") == 0 and built.count("LDL") == built.count("STL") == 0
    assert built.spills == 0 and 0 < built.registers < 256
    assert built.shared_bytes >= 2 * 64 * 64 * 2  # both factors, two bytes an element
    assert ".target sm_90a" in built.ptx and "EF_CUDA_SM90" in built.sass


def test_the_machine_code_has_one_exponential_for_each_element(built):
    assert built.count("MUFU.EX2") == built.count("MUFU") == 64 * 64 / 128  # threads
    assert built.count("ex2.approx") == 32 and built.count("ex2.appr") == 0


def test_the_compiler_works_though_the_interpreter_is_on_here(toy, built):
    if os.environ.get("TRITON_INTERPRET") == "1":  # this machine has no GPU, and nobody said no
        assert type(toy.product).__name__ == "InterpretedFunction"
    assert built.sass


def test_what_was_built_is_remembered(toy, built, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a second process was started")

    monkeypatch.setattr(Forkserver, "start", refuse)
    assert compile_for(toy.face, "sm_90") == [built]
    with pytest.raises(AssertionError, match="second process"):
        compile_for(toy.face, "sm_100")


RACE = """
import weft_toy
from weft.kernels import compile_for
from weft.process.forkserver import Forkserver
start = Forkserver.start
def counted(server, job):
    print("compiled", flush=True)
    return start(server, job)
Forkserver.start = counted
print(compile_for(weft_toy.sized, "sm_90", n=16)[0].name)
"""


def test_of_two_processes_one_compiles(toy):
    here = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RACE]
    both = [
        subprocess.Popen(command, env=os.environ | here, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate(timeout=300)[0].split() for one in both]
    assert sorted(said) == [["compiled", "forward"], ["forward"]]


def test_a_fresh_process_finds_what_another_has_built(toy, built, monkeypatch):
    monkeypatch.setattr(Forkserver, "start", lambda *_: pytest.fail("a process was started"))
    compile._compile.cache_clear()
    assert compile_for(toy.face, "sm_90") == [built]


def test_another_text_type_constant_option_or_target_is_another_key(toy, monkeypatch):
    (one,) = toy.passes("sm_90")
    others = [
        replace(one, signature=dict(one.signature) | {"stride": "i32"}),
        replace(one, constexprs=dict(one.constexprs) | {"N": 32}),
        replace(one, options={"num_warps": 8}),
    ]
    keys = {store.key(digest.digest(x), "sm_90") for x in (one, one, *others)}
    keys |= {store.key(digest.digest(one), "sm_100")}
    text = digest._text("weft_toy")
    monkeypatch.setattr(digest, "_text", lambda _: text.replace("tl.exp2(b)", "tl.exp(b)"))
    digest._module.cache_clear()
    keys |= {store.key(digest.digest(one), "sm_90")}
    digest._module.cache_clear()
    assert len(keys) == 2 + len(others) + 1


# --- launches that are written down ---------------------------------------------------------------


def test_a_launch_on_meta_tensors_is_a_pass_and_nothing_runs(toy):
    a, c = (torch.empty(4096, dtype=x, device="meta") for x in (torch.bfloat16, torch.float32))
    with recording("sm_90") as found:
        launch("one", toy.product, (1,), a, a, c, 64, N=64, BROKEN=False, num_warps=4)
        with recording("sm_80") as inner:
            launch("two", toy.product, (1,), a, a, p_c=c, stride=1, N=64, BROKEN=False)
        assert recorded_target() == "sm_90"
    assert found == [replace(toy.one(), name="one")]
    (two,) = inner
    assert two.constexprs == {"N": 64, "BROKEN": False, "stride": 1} and two.options == {}
    assert recorded_target() is None


def test_a_named_tuple_is_one_argument_with_types_hints_and_constants_of_its_own(toy):
    tensor = torch.empty(64, dtype=torch.float16, device="meta")
    with recording("sm_90") as found:
        launch("view", toy.copy, (1,), toy.Strided(tensor, 48), toy.Strided(None, 3), N=64)
    assert found[0].signature == {
        "x": toy.Strided("*fp16:16", "i32:16"), "y": toy.Strided(None, "i32"),
    }  # fmt: skip


def test_a_named_tuple_is_compiled_and_interpreted(toy):
    (one,) = compile_for(toy.copied, "sm_90")
    assert one.ptx.count("ld.global") == 1 and "st.global" in one.ptx
    x, y = torch.arange(32.0), torch.zeros(64)
    if os.environ.get("TRITON_INTERPRET") == "1":
        toy.copied(x[::2], y[::4])
        assert torch.equal(y[::4], x[::2]) and y.count_nonzero() == 15


def test_what_passes_take_besides_the_target_is_handed_on(toy, built):
    (small,) = compile_for(toy.sized, "sm_90", n=32)
    assert 0 < small.count("MUFU.EX2") < built.count("MUFU.EX2")
    assert compile_for(toy.sized, "sm_90", n=32) == [small]
    with pytest.raises(TypeError, match="unexpected keyword argument 'm'"):
        compile_for(toy.sized, "sm_90", m=3)


def test_a_summary_for_people(built):
    text, html = str(built), built._repr_html_()
    assert text.splitlines()[0] == "forward"
    for words in (f"{built.count('HGMMA')} HGMMA", "32 MUFU", f"{built.shared_bytes:,} bytes"):
        assert words in text and words in html
    assert "local memory" not in text and "none" in text
    spilled = Compiled("<a>", "", "/*0000*/ STL [R1], R2 ;\n/*0010*/ LDL R2, [R1] ;", 255, 8, 0)
    assert "8 bytes per thread" in str(spilled) and "1 LDL, 1 STL" in str(spilled)
    assert "<a>" not in spilled._repr_html_()


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "90", 90, "", None])
def test_an_unknown_target_is_named(toy, target):
    with pytest.raises(ValueError, match=r"target is .*; it must be one of sm_80, sm_90, sm_100"):
        compile_for(toy.face, target)


@pytest.mark.parametrize("kernel", [os.getcwd, pytest.raises])
def test_a_function_without_passes_is_named(kernel):
    with pytest.raises(ValueError, match=rf"kernel is .*{kernel.__name__}.* no passes|must be a"):
        compile_for(kernel, "sm_90")


@pytest.mark.parametrize("kernel", [lambda: 0, "attention", None, 3, weft.kernels])
def test_what_is_no_function_of_a_module_is_refused(kernel):
    with pytest.raises(ValueError, match="must be a function at the top of a module"):
        compile_for(kernel, "sm_90")


def test_a_target_that_the_face_does_not_know_is_its_own_complaint(toy):
    with pytest.raises(ValueError, match="the toy has passes for sm_90 and sm_100"):
        compile_for(toy.face, "sm_80")


def test_what_the_compiler_refuses_is_told(toy):
    with pytest.raises(RuntimeError, match=r"weft_toy\.broken does not compile for sm_90: \S") as e:
        compile_for(toy.broken, "sm_90")
    assert "tl.dot(b, o)" in e.value.__notes__[0]
    with pytest.raises(RuntimeError, match=r"stranger does not .* arguments \['M'\]"):
        compile_for(toy.stranger, "sm_90")


def faces():
    """Each function of weft.kernels that can be compiled, by its full name."""
    for found in pkgutil.iter_modules(weft.kernels.__path__):
        module = importlib.import_module(f"weft.kernels.{found.name}")
        if hasattr(module, "passes"):
            yield module


@pytest.mark.parametrize("module", list(faces()), ids=lambda m: m.__name__.rpartition(".")[2])
def test_every_kernel_of_the_book_lists_passes(module):
    targets = []
    for target in TARGETS:
        try:
            listed = module.passes(target)
        except ValueError as error:
            assert target in str(error)
            continue
        targets.append(target)
        names = [one.name for one in listed]
        assert names and len(set(names)) == len(names)
        assert all(isinstance(one, Pass) for one in listed)
    assert targets


LATE = "import triton.language as tl; from triton.language import sum"


@pytest.mark.parametrize(
    ("switch", "before"), [(None, ""), (None, LATE), ("0", ""), ("0", LATE), ("1", "")]
)
def test_who_decides_whether_kernels_are_interpreted(switch, before):
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    env |= {"CUDA_VISIBLE_DEVICES": ""} | ({} if switch is None else {"TRITON_INTERPRET": switch})
    command = [sys.executable, "-c", SWITCH.format(before=before)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    kind = "JITFunction" if switch == "0" else "InterpretedFunction"
    assert (done.stdout, done.stderr) == (f"{kind} True {kind}\n", "")
