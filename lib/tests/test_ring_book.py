"""What the chapter on ring attention tells its readers to type is attention, with its gradients."""

import os
import re
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

HOLDS = """
import os
import sys

from torch.nn.attention import SDPBackend, sdpa_kernel

dist.init_process_group("gloo")
rank, n, group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
torch.manual_seed(0)
T, H, G, K, V = 36, 6, 3, 4, 11
E, P, W = (torch.randn(s, H * K, dtype=torch.float64) for s in (V, T, V))
Q, A, B = (torch.randn(H * K, h * K, dtype=torch.float64) for h in (H, G, G))
weights = [x.requires_grad_() for x in (E, P, W, Q, A, B)]
tokens = torch.randint(V, (T,))


def hidden(tokens, positions, attend):
    x = E[tokens] + P[positions]
    q, k, v = ((x @ w).unflatten(1, (-1, K)) for w in (Q, A, B))
    return attend(q, k, v).flatten(1)


def saved(x):
    assert x.shape[-1:] != (V,), "logits are kept"
    return x


def alone(q, k, v):
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return o.transpose(0, 1)


logits = hidden(tokens, torch.arange(T), alone) @ W.T
at_once = F.cross_entropy(logits[:-1], tokens[1:])
expected = torch.autograd.grad(at_once, weights)
if FOLDED:
    cut = [torch.arange(T), F.pad(tokens[1:], (0, 1), value=-100)]
    mine, positions, labels = (folded(x, group) for x in [tokens, *cut])
else:
    mine, positions, labels = shard(tokens, group)
with sdpa_kernel(SDPBackend.MATH if FOLDED else SDPBackend.FLASH_ATTENTION):
    out = hidden(mine, positions, lambda *x: attention(*x, group))
with torch.autograd.graph.saved_tensors_hooks(saved, lambda x: x):
    part = loss(out, W, labels, group, 5)
found = [part.detach().clone(), *torch.autograd.grad(part, weights)]
for x in found:
    dist.all_reduce(x)
for one, other in zip(found, [at_once.detach(), *expected], strict=True):
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
if FOLDED:
    lengths, data = [12, 24], torch.randn(3, T, G, K, dtype=torch.float64)
    q, k, v = (torch.cat([folded(y, group) for y in x.split(lengths)]) for x in data)
    pack = torch.arange(T)
    PACKED
    documents = torch.cat([alone(*x) for x in zip(*(x.split(lengths) for x in data))])
    torch.testing.assert_close(o, documents[tokens], rtol=0, atol=1e-12)
if rank == 0:
    print("held")
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads of autograd's collectives now and then abort a Python that shuts down
"""


@pytest.fixture(scope="module")
def page(root):
    return (root / "book/ring.md").read_text(encoding="utf-8")


def piece(page, label):
    """The first piece of code after a label of the page."""
    return re.search(r"^```py\n(.*?)^```$", page[page.index(label) :], re.M | re.S)[1]


@pytest.fixture
def recipes(page):
    """The page's two recipes: the all-to-all, with the sharding and the loss, and the gather."""
    found = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert len(found) == 2
    return found


@pytest.mark.parametrize("folded", [False, True], ids=["all-to-all", "gather"])
def test_a_recipe_is_attention_over_ranks_with_positions_labels_and_loss(
    recipes, page, folded, tmp_path
):
    assert 10 <= len([line for line in recipes[folded].splitlines() if line.strip()]) <= 31
    script = tmp_path / "recipe.py"
    packed = piece(page, "(ring-packed)=").strip().replace("\n", "\n    ")
    holds = HOLDS.replace("PACKED", packed)
    assert recipes[0].count(".float()") == 1  # logits: of 16 bits there, of 64 in this test
    recipes[0] = recipes[0].replace(".float()", ".double()")
    script.write_text("\n".join([*recipes[: folded + 1], f"FOLDED = {folded}", holds]))
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "3", "--rdzv-backend", "c10d"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launch, "--rdzv-endpoint", "localhost:0", str(script)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr[:4000]


def test_without_a_batch_axis_no_fused_kernel_takes_it(recipes):
    """What the page warns of, and that its recipe does not do it."""
    x = torch.zeros(2, 4, 8)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)
        with pytest.raises(RuntimeError):
            scaled_dot_product_attention(x, x, x, is_causal=True)


def test_a_causal_mask_of_a_gather_is_aligned_at_the_lower_right():
    torch.manual_seed(0)
    q, k = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 6, 4)
    seen = torch.ones(2, 6, dtype=torch.bool).tril(4)
    right = scaled_dot_product_attention(q, k, k, attn_mask=seen)
    mask = causal_lower_right(2, 6)
    torch.testing.assert_close(scaled_dot_product_attention(q, k, k, attn_mask=mask), right)
    wrong = scaled_dot_product_attention(q, k, k, is_causal=True)
    assert not torch.allclose(wrong, right)


def test_the_policy_of_the_page_computes_attention_once_and_the_rest_twice(page):
    weight = torch.randn(16, 16, requires_grad=True)
    x = torch.randn(32, 16, requires_grad=True)

    def layer(x):
        y = (x @ weight).unflatten(1, (2, 8)).transpose(0, 1)[None]
        o = scaled_dot_product_attention(y, y, y, is_causal=True)
        return x + o[0].transpose(0, 1).flatten(1) @ weight

    given, names = [x, weight], {"torch": torch, "layer": layer, "x": x}
    expected = torch.autograd.grad(layer(x).square().sum(), given)
    with Calls() as calls:
        exec(piece(page, "(ring-kept)="), names)
        found = torch.autograd.grad(names["x"].square().sum(), given)
    torch.testing.assert_close(found, expected)
    assert calls.count("aten::_scaled_dot_product_flash_attention_for_cpu") == 1
    assert calls.count("aten::mm") == 2 + 1 + 4  # forward; again, but the last; backward


def test_a_functions_messages_go_again_under_the_policy_of_the_page(page):
    messages = []

    class Steps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            for _ in range(3):
                messages.append(1)
                x = scaled_dot_product_attention(x, x, x)
            return x

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0]

    x = torch.randn(1, 2, 8, 4, requires_grad=True)
    names = {"torch": torch, "layer": Steps.apply, "x": x}
    with Calls() as calls:
        exec(piece(page, "(ring-kept)="), names)
        names["x"].sum().backward()
    assert len(messages) == 2 * 3
    assert calls.count("aten::_scaled_dot_product_flash_attention_for_cpu") == 3


class Calls(TorchDispatchMode):
    """The names of what torch computes."""

    def __enter__(self):
        super().__enter__()
        self.names = []
        self.count = self.names.count
        return self

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function._schema.name)
        return function(*args, **(kwargs or {}))
