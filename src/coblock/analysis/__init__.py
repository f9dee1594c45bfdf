"""What a result says: predictions, held-out scores and descriptions of clusters.

A module belongs here if it takes a fitted result and derives numbers or words from it. It does
not change the result, and it does not draw or print. Figures and pages belong to :mod:`coblock.ui`.
"""
