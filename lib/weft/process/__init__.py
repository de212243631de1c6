"""START. Processes that are watched and ended; run, grade and the tests stand on it.

May import: the standard library alone.
"""
