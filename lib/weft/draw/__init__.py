"""SHOW. Pictures of plans: strings of SVG or characters, the same each time.

May import: the standard library and weft.plan.
"""
