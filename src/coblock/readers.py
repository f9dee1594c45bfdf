"""Public alias of :mod:`coblock.io.readers`."""

from coblock.io.readers import *  # noqa: F403
