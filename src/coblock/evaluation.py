"""The public names of :mod:`coblock.analysis.evaluation` and of that of several relations."""

from coblock.analysis.evaluation import Evaluation, HeldOut, Scores, evaluate, hold_out
from coblock.analysis.multi_evaluation import evaluate_several

__all__ = ["Evaluation", "HeldOut", "Scores", "evaluate", "evaluate_several", "hold_out"]
