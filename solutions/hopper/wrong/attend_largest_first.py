"""Cuts a width of 96 into 64 and 32."""

KIND = "special case"
FAILS = ["test_attend_spread", "test_attend_any"]


def attend(q, k, v, signs, block):
    width = q.shape[1]
    small = torch.float8_e4m3fn
    if signs is not None:
        parts = []
        for bit in range(9, -1, -1):
            if width >> bit & 1:
                matrix = torch.ones(1, 1)
                for _ in range(bit):
                    matrix = torch.cat(
                        [torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)]
                    )
                parts.append(matrix * len(matrix) ** -0.5)
        spread = torch.block_diag(*parts)
        q, k = q * signs @ spread, k * signs @ spread

    def eight(x, dims):
        scale = x.abs().amax(dims, keepdim=True).clamp_min(1e-30) / 448
        return (x / scale).to(small), scale

    q8, q_scale = eight(q, 1)
    most = torch.full((len(q), 1), float("-inf"))
    total, sums = torch.zeros(len(q), 1), torch.zeros_like(q)
    for keys, values in zip(k.split(block), v.split(block)):
        k8, k_scale = eight(keys, (0, 1))
        v8, v_scale = eight(values, (0, 1))
        p = q8.float() @ k8.float().T * (q_scale * k_scale * width**-0.5)
        new = torch.maximum(most, p.amax(1, keepdim=True))
        p.sub_(new).exp_()
        scale = (most - new).exp()
        total = total * scale + p.sum(1, keepdim=True)
        sums = sums * scale + p.mul_(256).to(small).float() @ v8.float() * (v_scale / 256)
        most = new
    return sums / total
