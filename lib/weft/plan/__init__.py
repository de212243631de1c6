"""THINK. Schedules, costs and calculators as plain data and plain arithmetic.

May import: the standard library, and nothing else: no torch, no numpy, no devices, no files.
What is planned here runs in the browser, is drawn in the book and is executed by weft.run.
"""
