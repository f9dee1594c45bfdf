"""coblock finds the blocks in relational data: groups of rows, groups of columns, how they link."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coblock import tl
    from coblock.estimator import IRM
    from coblock.io.readers import read
    from coblock.io.tables import Relation
    from coblock.loading import load, resume
    from coblock.multi import MultiIRM

__version__ = "0.2.0"
__all__ = ["IRM", "MultiIRM", "Relation", "__version__", "load", "read", "resume", "tl"]

_HOMES = {
    "IRM": "coblock.estimator",
    "MultiIRM": "coblock.multi",
    "Relation": "coblock.io.tables",
    "load": "coblock.loading",
    "read": "coblock.io.readers",
    "resume": "coblock.loading",
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: scikit-learn alone costs seconds."""
    if name not in {*_HOMES, "tl"}:
        msg = f"module 'coblock' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    if name == "tl":
        return import_module("coblock.tl")
    return getattr(import_module(_HOMES[name]), name)
