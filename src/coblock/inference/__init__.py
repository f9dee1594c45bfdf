"""How a fit proceeds: start, search, sweeps, posterior averaging, and the engine that runs them.

A module belongs here if it changes labels or memberships, or decides what happens next in a fit.
Compiled loops belong to :mod:`coblock.kernels`, and the counts that a sweep changes to
:mod:`coblock.model`. Files, terminals and clusters are the business of other folders.
"""
