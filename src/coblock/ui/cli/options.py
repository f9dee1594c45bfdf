"""Options that several commands share, declared once."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from coblock.estimator import IRM
    from coblock.io.readers import Reading

READING, MODEL, OUTPUT, CLUSTER = "Reading", "Model", "Output", "Cluster"

EdgesFile = Annotated[
    Path,
    typer.Argument(
        help="Edges: .csv, .tsv, .txt (each also .gz, .zst), .parquet, .arrow, .mtx, .npz, "
        ".graphml or .gml.",
        metavar="EDGES",
        show_default=False,
    ),
]
ModelFile = Annotated[
    Path,
    typer.Argument(
        help="Model file that fit has written, or its folder.",
        metavar="MODEL",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace the files of an existing folder.", rich_help_panel=OUTPUT
    ),
]
Formulas = Annotated[
    bool,
    typer.Option(
        "--formulas",
        help="Leave names that a spreadsheet may run as formulas as they are.",
        rich_help_panel=OUTPUT,
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same result.")]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each group of options as options of their own.

    A group is a parameter whose type is a dataclass; typer knows single options only.
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
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    parameters = []
    for name, parameter in signature.parameters.items():
        parts = _parameters(groups[name]) if name in groups else [parameter]
        parameters += [part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in parts]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    del run.__wrapped__  # it has another signature
    return run


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def _reading(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=READING, **more)


def _model(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=MODEL, **more)


@dataclass(frozen=True, slots=True)
class Layout:
    """How edges stand in their file."""

    row: Annotated[
        str | None,
        _reading(help="Column with the names of the rows; a number where there is no header."),
    ] = None
    column: Annotated[str | None, _reading(help="Column with the names of the columns.")] = None
    value: Annotated[
        str | None,
        _reading(help="Column that says whether a pair is a link: number, or yes, no, blank."),
    ] = None
    binarize: Annotated[float, _reading(help="Values above it are links.")] = 0.0
    unseen: Annotated[
        Path | None, _reading(help="File with the pairs of which nothing is known.")
    ] = None
    delimiter: Annotated[
        str | None, _reading(help="One character, or 'whitespace'; found by looking.")
    ] = None
    header: Annotated[
        bool | None,
        _reading(
            "--header/--no-header", help="Whether the first line names the columns; found too."
        ),
    ] = None
    encoding: Annotated[str, _reading(help="Of a text file.")] = "utf-8"

    def read(self, edges: Path, relation: str = "bipartite") -> "Reading":
        """Read a file of edges."""
        from coblock.io.readers import read

        return read(edges, relation=relation, **asdict(self))


@dataclass(frozen=True, slots=True)
class Fitting:
    """How to fit; the words are those of :class:`coblock.IRM`."""

    relation: Annotated[
        str,
        _model(
            help="bipartite: rows and columns are different objects; else they are the same.",
            metavar="bipartite|directed|undirected",
        ),
    ] = "bipartite"
    inference: Annotated[
        str, _model(help="The method.", metavar="acvb0|acvb|cvb0|cvb|vb|gibbs")
    ] = "acvb0"
    max_clusters: Annotated[
        str | None,
        _model(help="Most clusters. By default there is no limit.", metavar="N|ROWS,COLUMNS"),
    ] = None
    init: Annotated[str, _model(help="Where to start.", metavar="spectral|random")] = "spectral"
    refine: Annotated[
        bool, _model("--refine/--no-refine", help="Search by merges and splits first.")
    ] = True
    prior: Annotated[
        str, _model(help="One prior for all blocks, or one each.", metavar="shared|per-block")
    ] = "shared"
    variance: Annotated[
        str, _model(help="Of the counts, for acvb and cvb.", metavar="exact|paper")
    ] = "exact"
    hyperparameters: Annotated[
        str, _model(help="How priors are learnt.", metavar="newton|fixed-point|fixed")
    ] = "newton"
    burn_in: Annotated[
        int | None, _model(min=0, help="Sweeps before averaging; found by looking.")
    ] = None
    tol: Annotated[float, _model(help="Stop when the change falls below it.")] = 1e-5
    max_iter: Annotated[int, _model(min=1, help="Most sweeps.")] = 1000
    n_init: Annotated[int, _model(min=1, help="Fits from different starts; the best is kept.")] = 1
    batch_size: Annotated[
        str, _model(help="Objects updated against the same counts, or 'auto'.")
    ] = "auto"
    jobs: Annotated[
        int, _model("--jobs", "-j", help="Threads, -1 for all; the result is the same.")
    ] = 1
    seed: Annotated[int, _model(min=0, max=2**32 - 1, help="Same seed, same result.")] = 0

    def estimator(self) -> "IRM":
        """Return the estimator that is asked for."""
        from coblock.estimator import IRM

        given = asdict(self)
        given["max_clusters"] = _numbers("--max-clusters", self.max_clusters)
        if self.batch_size != "auto":
            given["batch_size"] = _numbers("--batch-size", self.batch_size)
        given["n_jobs"], given["random_state"] = given.pop("jobs"), given.pop("seed")
        return IRM(**given)


def _numbers(option: str, text: str | None) -> int | tuple[int, ...] | None:
    """Return ``12`` as a number, ``12,30`` as two."""
    if text is None:
        return None
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        msg = f"{option} must be a whole number, or two with a comma, but is {text!r}."
        raise ValueError(msg) from None
    return numbers[0] if len(numbers) == 1 else numbers
