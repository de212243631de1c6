"""Token by token: the state is turned, faded and written for each."""

KIND = "too much time"
FAILS = ["test_turning_bytes", "test_turning_any"]


def turning(q, k, v, decay, speeds, S, chunk):
    turn = decay * torch.exp(-1j * speeds)
    S, o = S.mT.contiguous(), []
    for t in range(q.shape[1]):
        pairs = torch.view_as_complex(S.unflatten(-1, (-1, 2)))
        S = torch.view_as_real(pairs * turn).flatten(-2)
        S = S + v[:, t, :, None] * k[:, t, None, :]
        o.append(S @ q[:, t, :, None])
    return torch.stack(o, 1).flatten(2), S.mT
