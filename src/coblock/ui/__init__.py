"""Show results to people: command line, report page, plots and terminal output.

A module belongs here if it draws, formats or prints. It contains no mathematics and no inference:
numbers come from :mod:`coblock.analysis` and :mod:`coblock.model`. Other folders do not import it,
except for methods of the estimator that draw, which import it when they are called.
"""
