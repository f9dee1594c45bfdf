"""Files in and out: readers of relations, model files, checkpoints and exported tables.

A module belongs here if it turns bytes or foreign objects into those of :mod:`coblock.model` and
:mod:`coblock.inference`, or back. What comes from a file is checked here, because kernels trust
what they are given. Nothing here computes a result or talks to a person.
"""
