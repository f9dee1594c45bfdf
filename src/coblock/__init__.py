"""coblock finds the blocks in relational data: groups of rows, groups of columns, how they link."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coblock.estimator import IRM
    from coblock.io.readers import read
    from coblock.loading import load, resume
    from coblock.model.relation import Relation

__version__ = "0.1.0"
__all__ = ["IRM", "Relation", "__version__", "load", "read", "resume"]

_HOMES = {
    "IRM": "coblock.estimator",
    "Relation": "coblock.model.relation",
    "load": "coblock.loading",
    "read": "coblock.io.readers",
    "resume": "coblock.loading",
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: scikit-learn alone costs seconds."""
    if name not in _HOMES:
        msg = f"module 'coblock' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
