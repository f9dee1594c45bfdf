"""Public alias of :mod:`coblock.analysis.evaluation`."""

from coblock.analysis.evaluation import *  # noqa: F403
