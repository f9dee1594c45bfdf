"""Write a fitted model as one HTML page that needs no network."""

from coblock.ui.report.page import render, write_report

__all__ = ["render", "write_report"]
