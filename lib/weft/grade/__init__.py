"""GRADE. Points, hints, hidden tests and staged points on top of pytest.

May import: weft.plan and weft.meter.
"""
