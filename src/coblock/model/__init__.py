"""The model and its data: relations, domains, likelihoods, hyperparameters, counts and results.

A module belongs here if it says what the model is or holds a state of it, whichever method of
inference uses it. Nothing here decides how a fit proceeds, reads a file or prints. It builds on
:mod:`coblock.kernels` alone.
"""
