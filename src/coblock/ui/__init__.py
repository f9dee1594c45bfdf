"""What a person sees: the command line, the report page, plots and terminal output.

A module belongs here if it draws, formats or asks. It contains no mathematics and no inference:
numbers come from :mod:`coblock.analysis` and :mod:`coblock.model`. No other folder imports it,
except for the methods of the estimator that draw, which do so when they are called.
"""
