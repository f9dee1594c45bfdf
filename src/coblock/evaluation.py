"""The public names of :mod:`coblock.analysis.evaluation`."""

from coblock.analysis.evaluation import Evaluation, HeldOut, Scores, evaluate, hold_out

__all__ = ["Evaluation", "HeldOut", "Scores", "evaluate", "hold_out"]
