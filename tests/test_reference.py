"""Test that the reference of Python has every public name, with its methods and attributes."""

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import coblock
from coblock import IRM, MultiIRM, Relation

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
MODULES = ("", "annotate", "datasets", "distributed", "evaluation", "export", "generate", "readers")
MODULES += ("tl",)
DIRECTIVE = re.compile(
    r"^\.\. auto(?:class|function|exception|data):: (\S+)\n((?:   .*\n)*)", flags=re.MULTILINE
)


def documented() -> dict[int, tuple[str, set[str]]]:
    """Return path and listed members of each documented object, by identity."""
    found = {}
    for path, options in DIRECTIVE.findall(PAGE.read_text(encoding="utf-8")):
        module, _, name = path.rpartition(".")
        members = re.search(r":members: ((?:.|\n)*)", options)
        listed = set(re.findall(r"\w+", members[1])) if members else set()
        found[id(getattr(importlib.import_module(module), name))] = (path, listed)
    return found


def public(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__.startswith("coblock")
        ]
    return [name for name in listed if not name.startswith("__")]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_in_the_reference(name):
    module = importlib.import_module(f"coblock.{name}" if name else "coblock")
    known = documented()
    missing = [
        each
        for each in public(module)
        if not isinstance(getattr(module, each), ModuleType)
        and id(getattr(module, each)) not in known
    ]
    assert public(module)
    assert not missing


@pytest.mark.parametrize("kind", [IRM, MultiIRM])
def test_every_method_is_in_the_reference(kind):
    _, listed = documented()[id(kind)]
    methods = {
        name
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and value.__module__.startswith("coblock")
    }
    assert methods <= listed
    assert listed <= set(dir(kind))


def fitted_names() -> dict[type, set[str]]:
    X = np.kron(np.eye(2), np.ones((4, 3)))
    models = (
        IRM(random_state=0, max_iter=60).fit(X),
        MultiIRM(random_state=0).fit({"r": Relation(X, ["a", "b"])}),
    )
    inherited = {"n_features_in_", "result_", "rows_", "columns_"}
    return {
        type(each): {n for n in vars(each) if re.fullmatch(r"[a-z]\w*_", n)} - inherited
        for each in models
    }


def test_every_fitted_attribute_is_in_the_docstring():
    for kind, names in fitted_names().items():
        text = inspect.getdoc(kind).split("Attributes\n")[1]
        missing = [name for name in sorted(names) if not re.search(rf"\b{name}(?!\w)", text)]
        assert not missing, f"the docstring of {kind.__name__} lacks {missing}"


def test_the_modules_exist():
    assert "resume" in public(coblock)
    assert "tl" in public(coblock)
