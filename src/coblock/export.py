"""Public alias of :mod:`coblock.io.export`."""

from coblock.io.export import *  # noqa: F403
