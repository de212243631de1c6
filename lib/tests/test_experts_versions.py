"""The experts' MLP, version by version: the same numbers, and what each one costs."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from weft.kernels import experts
from weft.kernels.experts import VERSIONS
from weft.ref.experts import route

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
T, D, E, F, K = 37, 9, 5, 21, 2


def drawn(*shapes):
    dice = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(s, generator=dice).to(DEVICE).requires_grad_() for s in shapes]


def scored(x, router):
    """Scores of which expert 3 has the least everywhere."""
    return x @ router - 99 * (torch.arange(E, device=DEVICE) == 3)


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("most", [None, 9, 0])
def test_every_version_is_switchs_with_all_gradients(name, most):
    x, router, up, down, dy = drawn((T, D), (D, E), (E, D, F), (E, F, D), (T, D))
    routes = route(scored(x, router), K, most)
    y = VERSIONS[name](x, routes.expert, routes.weight, routes.kept, up, down)
    y.backward(dy)
    wide = [one.detach().double().requires_grad_() for one in (x, router, up, down)]
    chosen = route(scored(*wide[:2]), K, most)
    wanted = torch.zeros_like(wide[0])
    for e in range(E):
        token, choice = (chosen.kept & (chosen.expert == e)).nonzero(as_tuple=True)
        made = (wide[0][token] @ wide[2][e]).relu() @ wide[3][e]
        wanted = wanted.index_add(0, token, chosen.weight[token, choice, None] * made)
    grads = torch.autograd.grad(wanted, wide, dy.double())
    found = (y, x.grad, router.grad, up.grad, down.grad)
    for one, other in zip(found, (wanted, *grads), strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-4, rtol=1e-5)


def given():
    x, router, up, down = (one.detach() for one in drawn((T, D), (D, E), (E, D, F), (E, F, D)))
    routes = route(x @ router, K)
    return (x, routes.expert, routes.weight, routes.kept, up, down), routes


def test_a_padded_batch_keeps_the_first_choices_of_each_expert():
    tensors, routes = given()
    for capacity in (0, 3, 8, T, 10**12):
        y = experts.padded(*tensors, capacity=capacity)
        tensors_kept = [*tensors[:3], routes.position < capacity, *tensors[4:]]
        torch.testing.assert_close(y, experts.mlp(*tensors_kept))


def test_a_padded_batch_multiplies_as_many_rows_for_all_as_for_the_fullest():
    tensors, routes = given()
    fullest = int(routes.position.max()) + 1
    for name, rows in (("looped", T * K), ("padded", E * fullest)):
        with FlopCounterMode(display=False) as counter:
            VERSIONS[name](*tensors)
        assert counter.get_total_flops() == 2 * 2 * rows * D * F, name
    with FlopCounterMode(display=False) as counter:
        experts.padded(*tensors, capacity=11)
    assert counter.get_total_flops() == 2 * 2 * E * 11 * D * F


def saved(face, tensors):
    """Numbers of floating point that autograd keeps for the backward pass, beside the arguments."""
    found = {}

    def note(x):
        found[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        face(*tensors)
    own = {one.untyped_storage().data_ptr() for one in tensors}
    return sum(x.numel() for at, x in found.items() if at not in own and x.is_floating_point())


def test_what_is_fused_keeps_what_the_two_matmuls_make_and_nothing_else():
    tensors, routes = given()
    floats = [one.requires_grad_() if one.is_floating_point() else one for one in tensors]
    kept = {name: saved(face, floats) for name, face in VERSIONS.items()}
    assert kept["fused"] == T * K * (F + D)
    assert kept["looped"] >= T * K * (D + F + D) and kept["permuted"] >= T * K * (D + F + D)
    fullest = int(routes.position.max()) + 1
    assert kept["padded"] == E * fullest * (D + F) + T * K * D
