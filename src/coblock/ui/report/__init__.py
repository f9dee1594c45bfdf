"""A fitted model as one HTML page that needs nothing else."""

from coblock.ui.report.page import render, write_report

__all__ = ["render", "write_report"]
