"""MOVE. What a slider of the book moves: choices in, a picture over one line of results out.

May import: the standard library, weft.plan and weft.draw.
"""
