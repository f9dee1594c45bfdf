"""The size of the source of one checkout."""

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
COMPILED = {"kernel", "inner", "inlined", "inlined_kernel"}  # decorators of kernels
TOP = "top level"  # of the package: modules outside of its folders


def measure_size(source: Path) -> dict[str, Any]:
    """Count lines, files, functions and repeated names of all Python files below a folder."""
    texts = {path.relative_to(source): path.read_text("utf-8") for path in source.rglob("*.py")}
    lines = {str(path): len(text.splitlines()) for path, text in texts.items()}
    bodies: dict[bool, dict[str, int]] = {False: {}, True: {}}  # of functions, of kernels
    names: Counter[str] = Counter()
    for path, text in texts.items():
        tree = ast.parse(text)
        names.update({node.name for node in tree.body if isinstance(node, DEFINITIONS)})
        for function in functions(tree):
            where = f"{path}:{function.name}:{function.lineno}"
            bodies[is_kernel(function)][where] = body_lines(function)
    repeated = sorted(name for name, count in names.items() if count > 1)
    public = [name for name in repeated if not name.startswith("_")]
    counted = {"file": lines, "function": bodies[False], "kernel": bodies[True]}
    longest = {kind: max(counts, key=counts.__getitem__) for kind, counts in counted.items()}
    return {
        "lines": sum(lines.values()),
        **{f"{kind}s": len(counts) for kind, counts in counted.items()},
        **{f"longest {kind}": counted[kind][name] for kind, name in longest.items()},
        **{f"median {kind}": median(counts.values()) for kind, counts in counted.items()},
        "repeated names": len(public),
        "names": {
            "longest": longest,
            "repeated": public,
            "repeated private": [name for name in repeated if name.startswith("_")],
        },
    }


def lines_by_folder(repository: Path, commit: str = "HEAD") -> Counter[str]:
    """Count the lines of the package at a commit by folder; none if the clone lacks the commit."""
    command = ["git", "grep", "--count", "", commit, "--", "src/coblock/*.py"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    counts: Counter[str] = Counter()
    for line in done.stdout.splitlines():
        _, path, number = line.split(":")
        folder, *rest = Path(path).relative_to("src/coblock").parts
        counts[folder if rest else TOP] += int(number)
    return counts


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield all functions and methods, nested ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def body_lines(function: ast.FunctionDef) -> int:
    """Return the lines of a function without its signature and its docstring."""
    body = function.body
    documented = ast.get_docstring(function) is not None
    return 0 if documented and len(body) == 1 else body[-1].end_lineno - body[documented].lineno + 1


def is_kernel(function: ast.FunctionDef) -> bool:
    """Return whether a function is compiled."""
    decorators = (ast.unparse(one).partition("(")[0] for one in function.decorator_list)
    return not COMPILED.isdisjoint(decorators)
