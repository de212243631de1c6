"""COMPARE. Side-by-side benchmarks that write records.

One module per topic with a function bench(progress) that returns records. May import every
layer but the command line.
"""
