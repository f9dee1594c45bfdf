"""Public alias of :mod:`coblock.io.annotate`."""

from coblock.io.annotate import *  # noqa: F403
