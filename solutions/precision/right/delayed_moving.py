"""One amax list beforehand, and the power searched by doubling and halving."""


def delayed(steps, top, least, length, margin):
    amaxes = [max([abs(x) for x in numbers] + [0.0]) for numbers in steps]
    scales, told = [1.0], []
    for i, numbers in enumerate(steps):
        largest = max([0.0, *amaxes[max(0, i - length) : i]])
        scale = scales[-1]
        if largest != 0.0 and largest != float("inf"):
            scale = 1.0
            while largest * 2**margin * scale <= top:
                scale *= 2
            while largest * 2**margin * scale > top:
                scale /= 2
        scales.append(scale)
        beyond = lost = 0
        for x in numbers:
            beyond += abs(x) > top / scale
            lost += x != 0 and abs(x) / least <= 0.5 / scale
        told.append((scale, beyond, lost))
    return told
