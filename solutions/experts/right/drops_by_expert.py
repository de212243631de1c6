"""Each expert by itself: who asks for it, who has a place at home, who gets one that is left."""


def drops(choices, E, percent):
    lost = set()
    for expert in range(E):
        left, homeless = 0, []
        for rank in range(len(choices)):
            asked = []
            for token in range(len(choices[rank])):
                for choice in range(len(choices[rank][token])):
                    if choices[rank][token][choice] == expert:
                        asked.append((choice, rank, token))
            total = sum(len(token) for token in choices[rank])
            places, rest = divmod(total * percent, 100 * E)
            places += rest > 0
            asked.sort()
            homeless.extend(asked[places:])
            left += max(places - len(asked), 0)
        homeless.sort()
        lost.update((rank, token, choice) for choice, rank, token in homeless[left:])
    return sorted(lost)
