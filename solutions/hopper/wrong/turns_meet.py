"""Lets every program walk its list, whoever else is there."""

KIND = "part left out"
FAILS = ["test_turns", "test_turns_regular", "test_turns_sparse", "test_turns_any"]


def turns(sees):
    return [list(tiles) for tiles in sees]
