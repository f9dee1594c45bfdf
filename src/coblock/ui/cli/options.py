"""Define the options that several commands share."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Option

if TYPE_CHECKING:
    from coblock.estimator import IRM
    from coblock.io.readers import Reading

INPUT, MODEL, OUTPUT, CLUSTER = "Input file", "Model", "Output", "Dask cluster"  # help panels
SEED_HELP = "Random seed. The same seed gives the same result."
MAX_SEED = 2**32 - 1

EdgesFile = Annotated[
    Path,
    Argument(
        help="File of edges: .csv, .tsv or .txt (also with .gz or .zst), .parquet, .arrow, .mtx, "
        ".npz, .graphml or .gml.",
        metavar="EDGES",
    ),
]
ModelFile = Annotated[
    Path, Argument(help="Folder that fit has written, or its model.safetensors.", metavar="MODEL")
]
OutFolder = Annotated[Path, Option("--out", "-o", help="Folder for the results.")]
Force = Annotated[bool, Option("--force", help="Replace existing files.", rich_help_panel=OUTPUT)]
Formulas = Annotated[
    bool,
    Option(
        "--formulas",
        help="Do not put an apostrophe before names that a spreadsheet would run as formulas.",
        rich_help_panel=OUTPUT,
    ),
]
Seed = Annotated[int, Option(help=SEED_HELP, min=0, max=MAX_SEED)]


def grouped_option(default: Any, help: str, *names: str, panel: str, **more: Any) -> Any:
    """Return a dataclass field that :func:`expand_option_groups` turns into an option."""
    info = Option(*names, help=help, rich_help_panel=panel, **more)
    return field(default=default, metadata={"option": info})


input_option = partial(grouped_option, panel=INPUT)
model_option = partial(grouped_option, panel=MODEL)
output_option = partial(grouped_option, panel=OUTPUT)


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one parameter for each field of its option groups.

    A group is a parameter whose type is a dataclass. Typer supports single options only.
    """
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{part.name: given.pop(part.name) for part in fields(group)})
        command(**given)

    expanded = []
    for name, parameter in signature.parameters.items():
        by_name = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        if name not in groups:
            expanded.append(by_name)
            continue
        types = get_type_hints(groups[name])
        for part in fields(groups[name]):
            option = by_name.replace(name=part.name, default=part.default)
            kind = types[part.name]
            expanded.append(option.replace(annotation=Annotated[kind, part.metadata["option"]]))
    run.__signature__ = signature.replace(parameters=expanded)  # type: ignore[attr-defined]
    run.__annotations__ = {part.name: part.annotation for part in expanded} | {"return": None}
    del run.__wrapped__  # typer would read its signature
    return run


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options on the layout of a file of edges; the names are those of :func:`coblock.read`."""

    row: str | None = input_option(
        None, "Column with the row names, or its number if there is no header. Default: the first."
    )
    column: str | None = input_option(None, "Column with the column names. Default: the second.")
    value: str | None = input_option(
        None,
        "Column with the values: numbers, or yes, no, and blank for unseen. Default: none; every "
        "pair in the file is a link.",
    )
    binarize: float = input_option(0.0, "Values above this number are links.")
    unseen: Path | None = input_option(  # noqa: RUF009 - it returns a dataclass field
        None, "File with unseen pairs: it is unknown whether they are links."
    )
    delimiter: str | None = input_option(None, "One character or 'whitespace'. Default: detected.")
    header: bool | None = input_option(
        None, "Whether the first line names the columns. Default: detected.", "--header/--no-header"
    )
    encoding: str = input_option("utf-8", "Encoding of a text file.")

    def read(
        self, edges: Path, note: Callable[[str], None], relation: str = "bipartite"
    ) -> "Reading":
        """Read a file of edges; call ``note`` with each note of the reader."""
        from coblock.io.readers import read

        reading = read(edges, relation=relation, **asdict(self))
        for text in reading.notes:
            note(text)
        return reading


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Options of a fit; the names are those of :class:`coblock.IRM`."""

    relation: str = model_option(
        "bipartite",
        "bipartite: rows and columns are different objects, such as users and items. directed, "
        "undirected: they are the same objects.",
        metavar="bipartite|directed|undirected",
    )
    inference: str = model_option(
        "acvb0",
        "(Averaged) collapsed variational Bayes of order 0 or 2, variational Bayes, or Gibbs.",
        metavar="acvb0|acvb|cvb0|cvb|vb|gibbs",
    )
    max_clusters: str | None = model_option(
        None, "Largest number of clusters. Default: no limit.", metavar="N|ROWS,COLUMNS"
    )
    init: str = model_option("spectral", "Initial partition.", metavar="spectral|random")
    refine: bool = model_option(
        True, "Improve the initial clusters with merges and splits.", "--refine/--no-refine"
    )
    prior: str = model_option(
        "shared", "One prior for all blocks, or one for each.", metavar="shared|per-block"
    )
    variance: str = model_option(
        "exact", "Variance of the counts in acvb and cvb.", metavar="exact|paper"
    )
    hyperparameters: str = model_option(
        "newton", "How hyperparameters are estimated.", metavar="newton|fixed-point|fixed"
    )
    burn_in: int | None = model_option(None, "Sweeps before averaging. Default: detected.", min=0)
    tol: float = model_option(1e-5, "Stop when a sweep changes memberships by less than this.")
    max_iter: int = model_option(1000, "Largest number of sweeps.", min=1)
    n_init: int = model_option(1, "Number of starts; the fit with most evidence is kept.", min=1)
    batch_size: str = model_option("auto", "Objects updated with the same counts, or 'auto'.")
    jobs: int = model_option(1, "Threads, -1 for all; they do not change results.", "--jobs", "-j")
    seed: int = model_option(0, SEED_HELP, min=0, max=MAX_SEED)

    def estimator(self) -> "IRM":
        """Return an estimator with these parameters."""
        from coblock.estimator import IRM

        given = asdict(self)
        given["max_clusters"] = _parse_integers("--max-clusters", self.max_clusters)
        if self.batch_size != "auto":
            given["batch_size"] = _parse_integers("--batch-size", self.batch_size)
        given["n_jobs"], given["random_state"] = given.pop("jobs"), given.pop("seed")
        return IRM(**given)


def _parse_integers(name: str, text: str | None) -> int | tuple[int, ...] | None:
    """Return ``12`` as an integer and ``12,30`` as a pair."""
    if text is None:
        return None
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        msg = f"{name} must be a whole number, or two with a comma, but is {text!r}."
        raise ValueError(msg) from None
    return numbers[0] if len(numbers) == 1 else numbers
