"""Takes the numbers out, and computes with NumPy."""

KIND = "out of sight"
FAILS = ["test_attend", "test_attend_spread", "test_attend_alive", "test_attend_any"]


def attend(q, k, v, signs, block):
    scores = q.numpy() @ k.numpy().T / q.shape[1] ** 0.5
    p = torch.from_numpy(scores).softmax(1)
    return p @ v
