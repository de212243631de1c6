"""The tested library under the book Warp & Weft: training large models.

The layers are weft.plan (think), weft.ref (say), weft.kernels (go fast), weft.nn (build),
weft.run (act), weft.meter (measure), weft.grade (grade) and weft.bench (compare). Importing
weft itself loads none of them.
"""
