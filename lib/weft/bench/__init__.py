"""COMPARE. Side-by-side benchmarks that write records.

A topic's module has a table JOBS, one row for each record that it can make; `weft bench TOPIC`
carries them out. May import every layer but the command line.
"""
