"""Does it in NumPy, where nothing is counted."""

KIND = "out of sight"
FAILS = ["test_kda", "test_kda_decay", "test_kda_bytes", "test_kda_steps", "test_kda_any"]


def kda(q, k, v, g, beta, C: int):
    import numpy as np

    S, o = np.zeros((k.shape[1], v.shape[1])), []
    for Q, K, V, gates, strength in zip(*(x.numpy() for x in (q, k, v, g, beta)), strict=True):
        S = np.exp(gates)[:, None] * S
        S = S + np.outer(K, strength * (V - K @ S))
        o.append(Q @ S)
    return torch.from_numpy(np.stack(o))
