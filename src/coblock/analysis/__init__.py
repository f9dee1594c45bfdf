"""Derive predictions, held-out scores and descriptions of clusters from a fitted result.

A module belongs here if it computes numbers or words from a result. It does not change the result,
and it does not draw or print: figures and pages belong to :mod:`coblock.ui`.
"""
