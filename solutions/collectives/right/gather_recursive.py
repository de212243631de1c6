"""Each rank that has a block of places hands the farther half of it on."""


def gather(n: int) -> list[list[Send]]:
    steps = [[] for _ in range((n - 1).bit_length())]

    def hand_on(chunk, at, behind):  # `behind` ranks from `at` on are to have it
        if behind > 1:
            near = 1 << ((behind - 1).bit_length() - 1)
            step = len(steps) - near.bit_length()
            steps[step].append(Send((chunk + at) % n, (chunk + at + near) % n, chunk, False))
            hand_on(chunk, at, near)
            hand_on(chunk, at + near, behind - near)

    for chunk in range(n):
        hand_on(chunk, 0, n)
    return steps
