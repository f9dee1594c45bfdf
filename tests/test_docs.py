"""Examples in docstrings run, cited equations and functions exist, and house rules hold."""

import ast
import doctest
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import coblock

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "coblock"
TESTS = ROOT / "tests"
EQUATIONS = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
LABEL = re.compile(r"eq:\w+")
SECTIONS = re.compile(r"(MODEL|RELATIONS|DEGREES) (D?\d+(?:(?:,| and| to) D?\d+)*)")
MOST_LINES, LONGEST_BODY, LONGEST_KERNEL = 450, 60, 80
COMPILERS = {"kernel", "inner", "inlined", "inlined_kernel"}  # decorators of kernels
MOST_HOMONYMS = 15  # names of functions and classes that several files define
REPLACED = re.compile(  # words of the former vocabulary, for which there are conventional ones
    r"(?<![a-z])(?:brought|strand|parting|errand|hear_of|nobody|everybody|loosen|manieth)",
    flags=re.IGNORECASE,
)


def python_files(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Equations


def table(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the table under a heading."""
    section = EQUATIONS.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert lines, f"no table under {heading!r}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def cited_labels() -> dict[str, list[str]]:
    """Return the files that cite each label, by label. This file cites none."""
    found: dict[str, list[str]] = {}
    for path in python_files(SOURCE, TESTS):
        if path != Path(__file__):
            for label in LABEL.findall(path.read_text(encoding="utf-8")):
                found.setdefault(label, []).append(short(path))
    return found


def listed_labels() -> list[str]:
    return [LABEL.search(row[0])[0] for row in table("Where the equations are")]


def test_labels_in_the_code_are_listed():
    listed = listed_labels()
    missing = {label: files for label, files in cited_labels().items() if label not in listed}
    assert not missing, f"docs/equations.md lacks {missing}"


def test_listed_labels_are_in_the_code():
    superfluous = set(listed_labels()) - set(cited_labels())
    assert not superfluous, f"no code cites {superfluous}"
    assert len(listed_labels()) == len(set(listed_labels())) > 30


def defined_names(path: Path) -> set[str]:
    """Return the functions and classes of a file, methods as Class.method."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
    return names


def exists(name: str, folder: Path) -> bool:
    """Return whether ``module.function`` or ``module.Class.method`` is defined below a folder."""
    parts = name.split(".")
    for cut in range(1, len(parts)):
        path = folder.joinpath(*parts[:cut]).with_suffix(".py")
        if path.exists():
            return ".".join(parts[cut:]) in defined_names(path)
    return False


@pytest.mark.parametrize(
    ("column", "folder"), [(2, SOURCE), (3, TESTS)], ids=["functions", "tests"]
)
def test_listed_functions_and_tests_exist(column, folder):
    rows = table("Where the equations are")
    assert {len(row) for row in rows} == {4}
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row[column])}
    assert all(re.search(r"`[^`]+`", row[column]) for row in rows)
    gone = sorted(name for name in named if not exists(name, folder))
    assert not gone, f"docs/equations.md names {gone}"


def test_search_for_names_can_fail():
    assert exists("kernels.gather.shift", SOURCE)
    assert exists("model.state.SoftState.bound", SOURCE)
    assert not exists("kernels.gather.shifted", SOURCE)
    assert not exists("nowhere.shift", SOURCE)


def cited_sections(text: str) -> set[tuple[str, str]]:
    """Return (document, number) of the sections of the mathematics that a text cites."""
    return {
        (document, number)
        for document, numbers in SECTIONS.findall(text)
        for number in re.findall(r"D?\d+", numbers)
    }


@pytest.mark.parametrize("document", ["MODEL", "RELATIONS", "DEGREES"])
def test_cited_sections_are_listed(document):
    cited = {
        number
        for path in python_files(SOURCE)
        for source, number in cited_sections(path.read_text(encoding="utf-8"))
        if source == document
    }
    listed = {row[0] for row in table(f"Sections of {document}")}
    assert cited
    assert cited <= listed


@pytest.mark.parametrize("path", python_files(SOURCE / "kernels"), ids=short)
def test_kernels_cite_their_equations(path):
    text = path.read_text(encoding="utf-8")
    assert LABEL.search(text) or cited_sections(text)


def test_citations_are_recognised():
    assert cited_sections("(MODEL 5, 8, 10; RELATIONS 6 and 7; DEGREES D3, D4)") == {
        *(("DEGREES", number) for number in ("D3", "D4")),
        *(("MODEL", number) for number in ("5", "8", "10")),
        *(("RELATIONS", number) for number in ("6", "7")),
    }
    assert not cited_sections("This MODEL has 10 clusters; model 5 does not.")


# Examples and imports


MODULES = sorted(
    module.name for module in pkgutil.walk_packages(coblock.__path__, prefix="coblock.")
)


@pytest.mark.parametrize("name", ["coblock", *MODULES])
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_main_modules_have_examples():
    finder = doctest.DocTestFinder()
    for name in ("datasets", "estimator", "analysis.evaluation", "generate", "model.relation"):
        module = importlib.import_module(f"coblock.{name}")
        examples = sum(len(found.examples) for found in finder.find(module))
        assert examples >= 2, name


def test_public_names_can_be_imported():
    for name in coblock.__all__:
        assert getattr(coblock, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        coblock.Nonsense  # noqa: B018


# House rules


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def body_lines(function: ast.FunctionDef) -> int:
    """Return the lines of a function without its signature and its docstring."""
    body = function.body
    documented = ast.get_docstring(function) is not None
    return 0 if documented and len(body) == 1 else body[-1].end_lineno - body[documented].lineno + 1


def is_compiled(function: ast.FunctionDef) -> bool:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return len(decorators) == 1 and decorators[0] in COMPILERS


def kernels_used(tree: ast.Module) -> set[tuple[str, str]]:
    """Return module and name of everything that a file takes from the modules of kernels."""
    imports = [
        (node.module.removeprefix("coblock.kernels").lstrip("."), name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coblock.kernels")
        for name in node.names
    ]
    modules = {name.asname or name.name: name.name for module, name in imports if not module}
    return {(module, name.name) for module, name in imports if module} | {
        (modules[node.value.id], node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
    }


def long_functions(tree: ast.Module) -> list[str]:
    return [
        f"{function.name}: {body_lines(function)} lines"
        for function in functions(tree)
        if body_lines(function) > (LONGEST_KERNEL if is_compiled(function) else LONGEST_BODY)
    ]


def calls_of_print(tree: ast.Module) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "builtins.print"}
    ]


def global_random_numbers(tree: ast.Module) -> list[str]:
    """Return uses of NumPy's global generator and of the random module."""
    allowed = {"default_rng", "Generator", "SeedSequence"}
    found = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) in {"np.random", "numpy.random"}
        and node.attr not in allowed
    ]
    return found + [name for name in imported(tree) if name.split(".")[0] == "random"]


def imported(tree: ast.Module) -> list[str]:
    """Return the names of imported modules; relative ones begin with a dot."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append("." * node.level + (node.module or ""))
    return names


def foreign_to_kernels(tree: ast.Module) -> list[str]:
    """Return imports from coblock that are not from its kernels."""
    return [
        name
        for name in imported(tree)
        if name.startswith(".")
        or (name.split(".")[0] == "coblock" and not name.startswith("coblock.kernels"))
    ]


def uncompiled(tree: ast.Module) -> list[str]:
    return [function.name for function in functions(tree) if not is_compiled(function)]


def homonyms(trees: list[ast.Module]) -> list[str]:
    """Return the public names of functions and classes that several files define."""
    files: Counter[str] = Counter()
    for tree in trees:
        defined = (n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef))
        files.update({node.name for node in defined if not node.name.startswith("_")})
    return sorted(name for name, count in files.items() if count > 1)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


every_file = pytest.mark.parametrize("path", python_files(SOURCE), ids=short)


@every_file
def test_files_and_functions_are_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES
    assert not long_functions(parse(path))


@every_file
def test_files_do_not_print_or_use_global_random_numbers(path):
    assert not calls_of_print(parse(path))
    assert not global_random_numbers(parse(path))
    assert path.stem != "utils"


@pytest.mark.parametrize("path", python_files(SOURCE / "kernels"), ids=short)
def test_kernels_are_compiled_and_import_kernels_only(path):
    tree = parse(path)
    assert not foreign_to_kernels(tree)
    private = {"_find_template", "_common_type", "_fma_instruction", "generate", "_two_roundings"}
    exempt = {"__init__.py": {*COMPILERS, *private, "gain_function", "gain_list"}}
    assert set(uncompiled(tree)) <= exempt.get(path.name, set())
    assert path.name == "__init__.py" or any(functions(tree))


def test_python_calls_no_inner_kernel():
    """A call would end the process, as inner kernels have no wrapper for Python."""
    inner = {
        (path.stem, function.name)
        for path in python_files(SOURCE / "kernels")
        for function in functions(parse(path))
        if {ast.unparse(decorator) for decorator in function.decorator_list} & {"inner", "inlined"}
    }
    assert len(inner) > 50
    folders = (SOURCE, ROOT / "tests", ROOT / "benchmarks", ROOT / "fuzz")
    files = [path for folder in folders for path in python_files(folder)]
    outside = [path for path in files if path.parent != SOURCE / "kernels"]
    used = {(short(path), *name) for path in outside for name in kernels_used(parse(path))}
    assert len(used) > 100
    assert not [use for use in sorted(used) if use[1:] in inner]


def test_uses_of_kernels_are_found():
    direct = "from coblock.kernels.special import log_beta"
    module = "from coblock.kernels import moves\nmoves.merge_gains(1)"
    renamed = "from coblock.kernels import moves as m\nm.merge_gains(1)"
    assert kernels_used(ast.parse(direct)) == {("special", "log_beta")}
    assert ("moves", "merge_gains") in kernels_used(ast.parse(module))
    assert ("moves", "merge_gains") in kernels_used(ast.parse(renamed))
    assert not kernels_used(ast.parse("import numpy\nnumpy.log(1)"))


def test_compile_options_are_set_in_one_place():
    users = [short(path) for path in python_files(SOURCE) if "numba" in imported(parse(path))]
    assert users == ["src/coblock/kernels/__init__.py"]


def test_few_names_are_defined_in_several_files():
    found = homonyms([parse(path) for path in python_files(SOURCE)])
    assert len(found) <= MOST_HOMONYMS, found


def test_homonyms_are_recognised():
    first = ast.parse("def f(): pass\nclass A:\n    def g(self): pass\ndef _h(): pass\n")
    second = ast.parse("def f(): pass\ndef g(): pass\ndef _h(): pass\n")
    assert homonyms([first, second]) == ["f"]
    assert homonyms([first]) == []


def test_replaced_words_are_not_used():
    found = {
        short(path): sorted(set(REPLACED.findall(path.read_text(encoding="utf-8"))))
        for path in python_files(SOURCE)
    }
    assert not {path: words for path, words in found.items() if words}


def test_replaced_words_are_recognised():
    assert REPLACED.findall("def hear_of_order(Brought, strands, x_parting)") == [
        "hear_of",
        "Brought",
        "strand",
        "parting",
    ]
    assert not REPLACED.findall("departing, splitting, tasks")


@pytest.mark.parametrize(
    ("rule", "code", "found"),
    [
        (long_functions, "def f():\n" + "    x = 1\n" * 61, ["f: 61 lines"]),
        (long_functions, "@kernel\ndef f():\n" + "    x = 1\n" * 61, []),
        (long_functions, "@kernel\ndef f():\n" + "    x = 1\n" * 81, ["f: 81 lines"]),
        (long_functions, "def f():\n    '''" + "word\n" * 61 + "'''\n    x = 1\n", []),
        (calls_of_print, "def f():\n    print('x')\n", [2]),
        (calls_of_print, "console.print('x')\n'''>>> print(1)'''\n", []),
        (global_random_numbers, "np.random.seed(0)\n", ["np.random.seed"]),
        (global_random_numbers, "from random import choice\n", ["random"]),
        (global_random_numbers, "np.random.default_rng(0)\n", []),
        (
            foreign_to_kernels,
            "from coblock.model.state import SoftState\n",
            ["coblock.model.state"],
        ),
        (foreign_to_kernels, "from coblock import checks\n", ["coblock"]),
        (foreign_to_kernels, "from ..state import State\n", ["..state"]),
        (foreign_to_kernels, "import numpy\nfrom coblock.kernels import kernel\n", []),
        (uncompiled, "@kernel\ndef f(): pass\ndef g(): pass\n", ["g"]),
        (uncompiled, "@njit\ndef f(): pass\n", ["f"]),
    ],
)
def test_rules_recognise_violations(rule, code, found):
    assert rule(ast.parse(code)) == found
