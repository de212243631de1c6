"""The ranks on each side as lists; the rank opposite by the left, and late."""


def both_ways(rank: int, sizes: list[int], tensor, exchange):
    n = len(sizes)
    chunks = tensor.split(sizes)
    calls, rights = n // 2, (n - 1) // 2
    from_left = from_right = tensor[:0]
    for call in range(calls):
        left = (rank - calls + call) % n
        goes_left = chunks[left] + from_right if call else chunks[left]
        gets = [0, sizes[(rank + 1 - calls + call) % n]]
        goes_right = tensor[:0]
        late = call - (calls - rights)
        if late >= 0:
            right = (rank + rights - late) % n
            goes_right = chunks[right] + from_left if late else chunks[right]
            gets[0] = sizes[(rank - 1 + rights - late) % n]
        from_left, from_right = exchange(goes_right, goes_left, *gets)
    total = chunks[rank].clone()
    if calls:
        total += from_right
    if rights:
        total += from_left
    return total
