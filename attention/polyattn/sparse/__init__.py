"""Sparse video attention: sliding tiles, video sparse attention, VMoBA.

`options` and `mask_strategy` need no torch. A kernel file holds one algorithm; what it computes is
defined by polyattn.oracle.sparse.
"""
