"""A small language model in several precisions: what each loses, and what mends it."""

import torch
from torch.nn import functional as F

N, STEPS, RATE = 64, 300, 5e-4  # words, and channels
TOKENS, PARTS = 256, 2**14  # of a pass; passes in a step: we run one
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
zeros = []  # of each gradient on its way back: the part that became 0


def cast(dtype):
    return lambda x: x.to(dtype).float()


def e4m3(block=None):
    """FP8: each block times a power of two that takes it to at most 448."""

    def rounded(x):
        parts = x.reshape(-1, block or x.numel())
        room = 448 / parts.abs().amax(1, keepdim=True).clamp(min=1e-30)
        scale = room.log2().floor().exp2()
        eight = (parts * scale).to(torch.float8_e4m3fn)
        return (eight.float() / scale).view_as(x)

    return rounded


class Matmul(torch.autograd.Function):
    """x @ w as tensor cores do it: factors in few bits, sums in fp32."""

    @staticmethod
    def forward(ctx, x, w, few):
        ctx.save_for_backward(x, w)
        ctx.few = few
        return few(x) @ few(w.T).T  # the summed dim is last where we round

    @staticmethod
    def backward(ctx, dy):
        (x, w), few = ctx.saved_tensors, ctx.few
        zeros.append((few(dy) == 0).float().mean().item())
        return few(dy) @ few(w).T, few(x.T) @ few(dy.T).T, None


def fp32(old, new, lost):
    return new


def nearest(old, new, lost):
    return new.bfloat16().float()


def kahan(old, new, lost):
    update = new - old + lost
    new = (old + update).bfloat16().float()
    lost.copy_((update - (new - old)).bfloat16())
    return new


def stochastic(old, new, lost):
    dice = torch.randint(2**16, new.shape, dtype=torch.int32, device=device)
    return ((new.view(torch.int32) + dice) & -(2**16)).view(torch.float32)


def train(name, few, keep=fp32, scale=1.0):
    torch.manual_seed(0)
    chance = (2 * torch.randn(N, N)).softmax(1).to(device)  # of a next word
    drawn = [(torch.randn(N, N) / 8).to(device) for _ in range(3)]
    weights = [keep(w, w, w * 0).requires_grad_() for w in drawn]
    lost = [torch.zeros_like(w) for w in weights]
    adam = torch.optim.AdamW(weights, lr=RATE, eps=1e-12)
    skipped = 0

    def scores(words):
        x = Matmul.apply(weights[0][words], weights[1], few)
        return Matmul.apply(F.gelu(x), weights[2], few)

    for _ in range(STEPS):
        words = torch.randint(N, (TOKENS,)).to(device)
        target = chance[words].multinomial(1)[:, 0]
        loss = F.cross_entropy(scores(words), target) / PARTS
        zeros.clear()
        gradients = torch.autograd.grad(loss * scale, weights)
        if not all(g.isfinite().all() for g in gradients):
            scale, skipped = scale / 2, skipped + 1
            continue
        before = [w.detach().clone() for w in weights]
        for w, g in zip(weights, gradients, strict=True):
            w.grad = g / scale
        adam.step()
        with torch.no_grad():
            for w, old, rest in zip(weights, before, lost, strict=True):
                w.copy_(keep(old, w, rest))

    with torch.no_grad():
        guess = scores(torch.arange(N, device=device)).log_softmax(1)
        above = (chance * (chance.log() - guess)).sum(1).mean()
    gone = sum(zeros) / len(zeros)
    print(f"{name:24} {above:.2f} {gone:5.0%} {skipped:5}")


print(f"{'':24} loss zeros skipped")
bf16 = cast(torch.bfloat16)
train("fp32", cast(torch.float32))
train("fp16", cast(torch.float16))
train("fp16, scaled loss", cast(torch.float16), scale=2.0**40)
train("bf16, weights in fp32", bf16)
train("bf16 alone", bf16, nearest)
train("  with Kahan's sum", bf16, kahan)
train("  rounded by chance", bf16, stochastic)
train("e4m3, a scale per tensor", e4m3())
train("e4m3, a scale per 32", e4m3(32))

torch.manual_seed(0)
x, w = (torch.randn(64, 4096, device=device) for _ in range(2))
for outlier in 1.0, 2.0**12, 2.0**17:
    x[0, 0] = outlier
    y, errors = x[1:] @ w.T, []
    for block in None, 128, 32:
        error = (e4m3(block)(x)[1:] - x[1:]) @ w.T
        errors.append((error.norm() / y.norm()).item())
    told = " ".join(f"{error:.1%}" for error in errors)
    print(f"outlier {outlier:6.0f}, error of other rows: {told}")
