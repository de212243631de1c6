"""live(): bytes alive, against counts made by hand."""

import gc

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from weft.meter import live

B, D, DEPTH = 32, 64, 4
BLOCK = B * D * 4  # bytes of one activation


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [(torch.nn.Linear(D, D), torch.nn.ReLU()) for _ in range(DEPTH)]
    return torch.nn.Sequential(*(layer for pair in layers for layer in pair))


def test_a_tensor_counts_from_its_making_until_it_is_dropped():
    with live() as meter:
        a = torch.ones(10)
        assert meter.now == 40
        b = torch.zeros(5, dtype=torch.float64)
        assert meter.now == 80
        del a
        assert meter.now == 40
        del b
    assert (meter.now, meter.peak) == (0, 80)


def test_a_view_counts_nothing_and_keeps_all_of_its_storage():
    with live() as meter:
        a = torch.ones(10, 10)
        views = [a.T, a[0], a.view(-1), a.detach(), a.expand(3, 10, 10)]
        assert meter.now == 400
        del a
        row = views[1]
        views.clear()
        assert meter.now == 400
        del row
        assert meter.now == 0


def test_operations_in_place_and_into_out_make_nothing():
    with live() as meter:
        a = torch.ones(10)
        a.add_(1).mul_(2)
        torch.add(a, a, out=a)
        assert (meter.now, meter.peak) == (40, 40)


def test_what_was_there_before_does_not_count():
    x = torch.ones(100)
    with live() as meter:
        y = x[10:].view(9, 10)
        x += 1
        assert meter.now == 0
        z = y.sum(0)
        assert meter.now == z.nbytes == 40


def test_tensors_made_from_data_count():
    with live() as meter:
        a = torch.tensor([1.0, 2.0])
        assert meter.now == a.nbytes == 8


def test_temporaries_count_in_the_peak():
    x = torch.ones(100)
    with live() as meter:
        y = (x + 1) * 2  # x + 1 lives until the product is there
        assert (meter.now, meter.peak) == (400, 800)
        assert y[0] == 4


def test_results_in_lists_count():
    with live() as meter:
        parts = torch._foreach_add([torch.ones(4), torch.ones(6)], 1.0)
        assert meter.now == sum(part.nbytes for part in parts) == 40


def test_what_has_no_memory_does_not_count():
    with live() as meter:
        meta = torch.ones(1000, device="meta") + 1
        assert (meter.now, meta.shape) == (0, (1000,))


def test_a_resized_storage_counts_with_its_new_size():
    with live() as meter:
        a = torch.ones(10)
        a.resize_(100)
        assert meter.now == 400


def test_what_is_resized_without_an_operation_is_seen_by_who_looks():
    with live(resized=True) as looking, live() as plain:
        row = torch.ones(100)
        row.untyped_storage().resize_(0)
        other = torch.ones(10)
    assert (looking.now, plain.now) == (40, 440)
    del row, other
    assert (looking.now, plain.now, looking.peak) == (0, 0, 400)


def test_what_autograd_saves_counts_though_no_name_holds_it():
    net, x = network(), torch.ones(B, D)
    with live() as meter:
        y = net(x)
        # A ReLU saves its result, which the next layer saves too; a Linear's result is dropped.
        assert meter.now == DEPTH * BLOCK
        del y
        assert meter.now == 0


def test_without_autograd_only_neighbours_are_alive():
    net, x = network(), torch.ones(B, D)
    with torch.no_grad(), live() as meter:
        net(x)
    assert (meter.now, meter.peak) == (0, 2 * BLOCK)


def test_gradients_count():
    net, x = network(), torch.ones(B, D)
    with live() as meter:
        net(x).sum().backward()
        weights = sum(p.nbytes for p in net.parameters())
        assert meter.now == weights == DEPTH * (D * D + D) * 4
        assert meter.peak > weights + BLOCK
        net.zero_grad(set_to_none=True)
        assert meter.now == 0


def test_checkpointing_lowers_the_peak():
    net, x = network(), torch.ones(B, D, requires_grad=True)

    def peak(keep: bool) -> int:
        net.zero_grad(set_to_none=True)
        with live() as meter:
            y = net(x) if keep else checkpoint(net, x, use_reentrant=False)
            assert meter.now == (DEPTH * BLOCK if keep else BLOCK)
            del y
        return meter.peak

    assert peak(keep=False) < peak(keep=True)


def test_an_optimizer_keeps_its_states():
    net = network()
    weights = sum(p.nbytes for p in net.parameters())
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    with live() as meter:
        adam = torch.optim.Adam(net.parameters(), lr=0.1, foreach=False)
        adam.step()
        steps = sum(state["step"].nbytes for state in adam.state.values())
        assert meter.now == 2 * weights + steps


def test_contexts_nest():
    with live() as outer:
        a = torch.ones(10)
        with live() as inner:
            b = torch.ones(20)
            del a
        assert (inner.now, inner.peak, outer.now, outer.peak) == (80, 80, 80, 120)
        del b


def test_an_error_leaves_nothing_counted():
    with live() as meter:
        with pytest.raises(RuntimeError):
            torch.ones(3) @ torch.ones(4)
        gc.collect()
        assert meter.now == 0


@pytest.mark.gpu
def test_cuda_tensors_count_in_forward_and_backward():
    net, x = network().cuda(), torch.ones(B, D, device="cuda")
    with live() as meter:
        y = net(x)
        assert meter.now == DEPTH * BLOCK
        y.sum().backward()
        del y
        assert meter.now == sum(p.nbytes for p in net.parameters())
