"""SAY. Slow and obvious references in torch, on any device.

Every function is the paper in the fewest lines that are true, and the oracle of whatever is
faster. Inputs are finite: what NaN and infinities do is left open. May import: torch and weft.plan.
"""
