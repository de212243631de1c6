"""Lets every program walk its list, whoever else is there."""

KIND = "part left out"
FAILS = ["test_timetable", "test_timetable_regular", "test_timetable_sparse", "test_timetable_any"]


def timetable(sees):
    return [list(tiles) for tiles in sees]
