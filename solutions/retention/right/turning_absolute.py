"""Turns by the position in this call, as the page does, and brings the state home at the end."""


def turning(q, k, v, decay, speeds, S, chunk):
    def turned(x, positions):
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        angles = positions[:, None] * speeds
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    T = q.shape[1]
    positions = torch.arange(1, T + 1)
    q, k, o = turned(q, positions), turned(k, positions), torch.zeros(v.shape, dtype=v.dtype)
    for start in range(0, T, chunk):
        end = min(T, start + chunk)
        n = torch.arange(1, end - start + 1).double()[:, None]
        scores = q[:, start:end] @ k[:, start:end].transpose(1, 2)
        scores *= torch.tril(torch.pow(decay, (n - n.T).abs()))
        o[:, start:end] = scores @ v[:, start:end] + decay**n * (q[:, start:end] @ S)
        S = S * decay ** (end - start) + torch.einsum(
            "htk,htv->hkv", k[:, start:end] * decay ** (end - start - n), v[:, start:end]
        )
    home = turned(S.transpose(1, 2), torch.tensor([-T]))
    return o, home.transpose(1, 2)
