"""The scan against a loop in float64, in both versions: values, gradients, states, odd sizes."""

import pytest
import torch

from weft.kernels import compile_for, griffin
from weft.kernels.griffin import chunked, scan, sequential

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
VERSIONS = {"sequential": sequential, "chunked": lambda *args: chunked(*args, chunk=7)}


@pytest.fixture(autouse=True)
def few_steps(monkeypatch, request):
    """Several groups of steps in a chunk, also where time is short and kernels are interpreted."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(griffin, "STEPS", 4)


def loop(a, x, initial, final):
    """The recurrence as it is written."""
    h, rows = torch.zeros_like(x[:, 0]) if initial is None else initial, []
    for t in range(a.shape[1]):
        h = a[:, t] * h + x[:, t]
        rows.append(h)
    return torch.stack(rows, 1), h


def given(T, B=2, D=37, seed=0, spread=1.0):
    """a of both signs, x, a state, and gradients of h and of the last state."""
    dice = torch.Generator().manual_seed(seed + T)
    a, x, dh = (torch.randn(B, T, D, generator=dice) for _ in range(3))
    initial, dlast = (torch.randn(B, D, generator=dice) for _ in range(2))
    return [one.to(DEVICE) for one in (spread * a.tanh(), x, initial, dh, dlast)]


def answers(face, a, x, initial, dh, dlast):
    """h, the last state, and the gradients of a, x and the initial state."""
    inputs = [one.detach().requires_grad_() for one in (a, x, initial) if one is not None]
    h, last = face(inputs[0], inputs[1], inputs[2] if len(inputs) > 2 else None, True)
    grads = torch.autograd.grad((h, last), inputs, (dh.to(h.dtype), dlast.to(last.dtype)))
    return [one.detach() for one in (h, last, *grads)]


def exactly(*arguments):
    return answers(loop, *(None if one is None else one.double() for one in arguments))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("T", "begun"), [(1, True), (5, False), (8, True), (19, True)])
def test_it_is_the_loop_and_so_are_its_gradients(version, T, begun):
    a, x, initial, dh, dlast = given(T, spread=1.2)
    arguments = a, x, initial if begun else None, dh, dlast
    for got, want in zip(answers(VERSIONS[version], *arguments), exactly(*arguments), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("types", [("bfloat16", "bfloat16"), ("float32", "float16")])
def test_half_precision_is_rounded_once(version, types):
    """Each number to half an ulp of its own type; da, made from the rounded h, to one more."""
    a, x, initial, dh, dlast = given(12, D=66)
    a, x = (one.to(getattr(torch, name)) for one, name in zip((a, x), types, strict=True))
    got = answers(VERSIONS[version], a, x, initial, dh.to(x.dtype), dlast)
    want = exactly(a, x, initial, dh.to(x.dtype), dlast)
    assert [one.dtype for one in got] == [x.dtype, torch.float32, a.dtype, x.dtype, torch.float32]
    eps = torch.finfo(x.dtype).eps
    for one, right in zip(got, want, strict=True):
        torch.testing.assert_close(one.double(), right, rtol=1.1 * eps, atol=1e-5)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_time_at_all_hands_the_state_on(version):
    a, x, initial, dh, dlast = given(0)
    h, last, da, dx, dinitial = answers(VERSIONS[version], a, x, initial, dh, dlast)
    assert h.shape == da.shape == dx.shape == (2, 0, 37)
    assert torch.equal(last, initial) and torch.equal(dinitial, dlast)
    assert not VERSIONS[version](a, x, None, True)[1].any()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_sequence_goes_on_from_its_state(version):
    a, x, initial, *_ = given(11)
    face = VERSIONS[version]
    whole, end = face(a, x, initial, True)
    first, state = face(a[:, :7], x[:, :7], initial, True)
    second, last = face(a[:, 7:], x[:, 7:], state, True)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(last, end)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_state_alone_has_gradients_and_so_has_h_alone(version):
    a, x, initial, dh, dlast = given(9)
    inputs = [one.requires_grad_() for one in (a, x, initial)]
    of_h = torch.autograd.grad(VERSIONS[version](*inputs), inputs, dh)
    of_last = torch.autograd.grad(VERSIONS[version](*inputs, True)[1], inputs, dlast)
    both = answers(VERSIONS[version], a, x, initial, dh, dlast)[2:]
    for one, other, total in zip(of_h, of_last, both, strict=True):
        torch.testing.assert_close(one + other, total, rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="scan has no second derivative"):
        torch.autograd.grad(VERSIONS[version](*inputs).sum(), inputs, create_graph=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_strides_do_not_matter(version):
    a, x, initial, dh, dlast = given(9)
    right = answers(VERSIONS[version], a, x, initial, dh, dlast)
    moved = [one.transpose(0, 1).contiguous().transpose(0, 1) for one in (a, x)]
    turned = dh.transpose(1, 2).contiguous().transpose(1, 2), dlast.T.contiguous().T
    got = answers(VERSIONS[version], *moved, initial.T.contiguous().T, *turned)
    assert all(torch.equal(one, other) for one, other in zip(got, right, strict=True))


def test_few_channels_are_cut_into_chunks_and_many_are_not():
    def cut(B, T, D, dtype=torch.float32):
        like = torch.empty(B, T, D, dtype=dtype, device="meta")
        return griffin._length(like, like)

    enough = griffin.ON_THE_WAY // (8 * griffin.STEPS)  # channels in fp32
    assert cut(1, 4096, enough) == cut(4, 4096, enough // 4) == 4096
    assert cut(1, 4096, int(0.6 * enough) + 1) == 4096
    assert cut(1, 4096, enough // 2) == 2048 and cut(1, 4096, enough // 2, torch.bfloat16) == 1024
    assert cut(1, 4096, 1) == cut(1, 3, 1) == griffin.SHORTEST


WRONG = {
    "a has shape [2, 7], must be a tensor [B, T, D]": {"a": torch.zeros(2, 7)},
    "a is float64, must be float32 or bfloat16 or float16": {"a": torch.zeros(2, 7, 3).double()},
    "x has shape [2, 6, 3], must be [2, 7, 3]": {"x": torch.zeros(2, 6, 3)},
    "x is int64, must be float32": {"x": torch.zeros(2, 7, 3).long()},
    "x is on meta, must be where a is": {"x": torch.zeros(2, 7, 3, device="meta")},
    "initial is bfloat16, must be float32": {"initial": torch.zeros(2, 3).bfloat16()},
    "initial has shape [3], must be [2, 3]": {"initial": torch.zeros(3)},
    "chunk is 0": {"chunk": 0},
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_argument_is_named(said):
    arguments = {"a": torch.zeros(2, 7, 3), "x": torch.zeros(2, 7, 3)} | WRONG[said]
    for name, one in arguments.items():
        if isinstance(one, torch.Tensor) and one.device.type == "cpu":
            arguments[name] = one.to(DEVICE)
    for face in (chunked,) if "chunk" in arguments else (scan, sequential, chunked):
        with pytest.raises(ValueError) as caught:
            face(**arguments)
        assert str(caught.value).startswith(said)


# --- the machine code -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_a_group_of_steps_is_asked_for_at_once_and_nothing_spills(target):
    """For the older and the newer chip one pass, to save time."""
    only = () if target == "sm_90" else ("scan",)
    found = {one.name: one for one in compile_for(scan, target, only=only)}
    names = {"scan", "gradient", "ends", "between"}
    assert found.keys() == (names if target == "sm_90" else {"scan"})
    loads = {"scan": 64, "between": 64, "ends": 64, "gradient": 96}  # of STEPS = 32 steps
    for name, one in found.items():
        assert one.spills == 0 and one.shared_bytes == 0, name
        code = [x.name.split(".")[0] for x in one.instructions]
        first = code.index("FFMA" if "FFMA" in code else "FMUL")
        assert code.count("LDG") - loads[name] in (0, 1), name  # and the state
        assert code[:first].count("LDG") >= 0.9 * loads[name], name


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("B", "T", "D"), [(4, 1000, 2560), (1, 4096, 512), (3, 333, 1001), (1, 5000, 7)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_gpu_many_channels_and_few_are_right(B, T, D, dtype):
    a, x, initial, dh, dlast = given(T, B, D)
    a, x, dh = (one.to(dtype) for one in (a, x, dh))
    want = exactly(a, x, initial, dh, dlast)
    eps = max(1.1 * torch.finfo(dtype).eps, 1e-5)
    for face in (scan, sequential, chunked):
        got, again = (answers(face, a, x, initial, dh, dlast) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(got, again, strict=True))
        for one, right in zip(got, want, strict=True):
            torch.testing.assert_close(one.double(), right, rtol=eps, atol=1e-4)


@pytest.mark.gpu
def test_more_than_two_to_the_31_elements():
    a = torch.full((1, 2**20 + 3, 2049), 0.5, device="cuda", dtype=torch.bfloat16)
    assert a.numel() > 2**31
    h, last = scan(a, a, final=True)
    assert h[0, -5:].eq(1).all() and last.eq(1).all()


@pytest.mark.gpu
def test_a_tensor_on_the_processor_is_refused_where_kernels_are_for_a_gpu():
    with pytest.raises(ValueError, match="a is on cpu, must be on a CUDA device"):
        scan(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3))
