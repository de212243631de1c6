"""MEASURE. Bytes sent, bytes alive, tile memory used.

May import: torch, and nothing else of weft.
"""
