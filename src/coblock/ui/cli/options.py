"""Define the options that several commands share."""

import inspect
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

from typer import Argument, Option

from coblock.io import refuse

if TYPE_CHECKING:
    from distributed import Security

    from coblock.estimator import IRM
    from coblock.io.readers import Reading
    from coblock.ui.cli.console import OutputOptions

OUTPUT = "Output"  # heading of the help
SEED_HELP = "Random seed. The same seed gives the same result."
MAX_SEED = 2**32 - 1

EDGES_HELP = (
    "File of edges: .csv, .tsv or .txt (also with .gz or .zst), .xlsx, .parquet, .arrow, "
    ".sqlite, .duckdb, .json, .jsonl, .nt, .mtx, .npz, .graphml or .gml; file.db::table; - for "
    "text from standard input."
)
FitFile = Annotated[
    Path | None,
    Argument(
        help=f"{EDGES_HELP} A .toml file describes several relations: a table [relations.NAME] for "
        "each, with data (a path relative to that file), places, and the keys of --relation.",
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
ReportTitle = Annotated[
    str | None, Option(help="Title of the report. Default: file name.", rich_help_panel=OUTPUT)
]
CSV_HELP = "CSV file to write. Default: standard output."
TableFile = Annotated[Path | None, Option("--out", "-o", help=CSV_HELP, rich_help_panel=OUTPUT)]
Seed = Annotated[int, Option(help=SEED_HELP, min=0, max=MAX_SEED)]


def option(default: Any, help: str, *names: str, **more: Any) -> Any:
    """Return a dataclass field that :func:`expand_option_groups` turns into an option."""
    return field(default=default, metadata={"option": Option(*names, help=help, **more)})


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one parameter for each field of its option groups.

    A group is a parameter whose type is a dataclass; its ``panel`` is a heading of the help. Typer
    supports single options only.
    """
    signature = inspect.signature(command)
    kinds = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}

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
            kind, info = types[part.name], part.metadata["option"]
            info.rich_help_panel = groups[name].panel
            single = by_name.replace(name=part.name, default=part.default)
            expanded.append(single.replace(annotation=Annotated[kind, info]))
    run.__signature__ = signature.replace(parameters=expanded)  # type: ignore[attr-defined]
    run.__annotations__ = {part.name: part.annotation for part in expanded} | {"return": None}
    del run.__wrapped__  # typer would read its signature
    return run


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options on the layout of a file of edges; the names are those of :func:`coblock.read`."""

    panel: ClassVar = "Input file"
    row: str | None = option(
        None,
        "Column with the row names, or its number if there is no header. Default: the first that "
        "has neither dates nor values.",
    )
    column: str | None = option(None, "Column with the column names. Default: the next.")
    value: str | None = option(
        None,
        "Column with the values: numbers, or yes, no, and blank for unseen. Default: none; every "
        "pair in the file is a link.",
    )
    binarize: float = option(0.0, "Values above this number are links.")
    unseen: Path | None = option(  # noqa: RUF009 - it returns a dataclass field
        None, "File with unseen pairs: it is unknown whether they are links."
    )
    wide: bool = option(
        False, "One line per row and one column per object; short for --layout wide.", "--wide"
    )
    layout: str | None = option(
        None,
        "One edge per line, one column per object, or lists of columns. Default: detected.",
        metavar="edges|wide|baskets|adjacency",
    )
    absent: str | None = option(
        None,
        "What pairs are that are not listed, or blank in a wide table. Default: zero if not "
        "listed, unseen if blank.",
        metavar="zero|unseen",
    )
    yes: str | None = option(
        None,
        "Answers in words that are links, in a wide table or in --value. Other answers are not.",
        metavar="WORD,WORD",
    )
    query: str | None = option(None, "SQL query of a database, instead of a table.", metavar="SQL")
    delimiter: str | None = option(None, "One character or 'whitespace'. Default: detected.")
    header: bool | None = option(
        None, "Whether the first line names the columns. Default: detected."
    )
    encoding: str = option("utf-8", "Encoding of a text file.")
    max_columns: int = option(10_000, "Most columns of a table.", min=2)
    max_unpacked: int = option(
        1 << 30, "Most bytes of a small compressed file when it is unpacked.", min=1
    )

    @property
    def chosen_layout(self) -> Any:
        """The layout, which --wide may give, too."""
        if self.wide and self.layout not in {None, "wide"}:
            refuse(f"--wide and --layout {self.layout} contradict each other. Pass one.")
        return "wide" if self.wide else self.layout

    def read(self, edges: Path, output: "OutputOptions", kind: Any = "bipartite") -> "Reading":
        """Read a file of edges; print what was read, and each note of the reader."""
        from coblock.io.readers import read

        given = asdict(self) | {"layout": self.chosen_layout}
        del given["wide"]
        reading = read(edges, relation=kind, **given)
        for line in reading.lines:
            output.say(line)
        for text in reading.notes:
            output.note(text)
        return reading


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Options of a fit; the names are those of :class:`coblock.IRM`."""

    panel: ClassVar = "Model"
    relation: list[str] | None = option(  # noqa: RUF009 - it returns a dataclass field
        None,
        "bipartite (default): rows and columns are different objects, such as users and items. "
        "directed, undirected: they are the same objects. Or, once for each of several relations "
        "of any number of places, its name, places and file, in place of EDGES, such as "
        "'bought(user,item)=orders.csv;value=qty;likelihood=poisson'. Places are columns of the "
        "file and domains, or both: 'knows(who:user,whom:user)=k.csv;symmetric=true'. Keys: value, "
        "likelihood=bernoulli|poisson|categorical|normal, unseen=FILE, absent=zero|unseen, "
        "symmetric=true|false, diagonal=seen|unseen, exposure=PLACE:FILE, "
        "degree_corrected=true|false|auto.",
        metavar="bipartite|directed|undirected|NAME(PLACES)=FILE",
    )
    likelihood: str = option(
        "bernoulli",
        "What the values of --value are: links or not, counts, categories or real numbers. All "
        "but the first write the folder of several relations.",
        metavar="bernoulli|poisson|categorical|normal",
    )
    inference: str = option(
        "acvb0",
        "(Averaged) collapsed variational Bayes of order 0 or 2, variational Bayes, or Gibbs.",
        metavar="acvb0|acvb|cvb0|cvb|vb|gibbs",
    )
    degree_corrected: str = option(
        "false",
        "Whether members of a cluster may differ in degree. auto: what has more evidence.",
        metavar="false|true|auto",
    )
    max_clusters: str | None = option(
        None,
        "Largest number of clusters. Default: no limit.",
        metavar="N|ROWS,COLUMNS|DOMAIN=N,...",
    )
    init: str = option("spectral", "Initial partition.", metavar="spectral|random")
    refine: bool = option(True, "Improve the initial clusters with merges and splits.")
    prior: str = option(
        "shared", "One prior for all blocks, or one for each.", metavar="shared|per-block"
    )
    variance: str = option(
        "exact", "Variance of the counts in acvb and cvb.", metavar="exact|paper"
    )
    hyperparameters: str = option(
        "newton", "How hyperparameters are estimated.", metavar="newton|fixed-point|fixed"
    )
    block_prior: str | None = option(
        None, "Prior of the blocks to begin with. Default: weak.", metavar="A,B"
    )
    concentration: str | None = option(
        None, "Concentration to begin with. Default: 1.", metavar="X|ROWS,COLUMNS"
    )
    hyperprior: str | None = option(
        None, "Gamma hyperprior of the concentrations. Default: 1,1.", metavar="SHAPE,RATE"
    )
    block_hyperprior: str | None = option(
        None, "Gamma hyperprior of A and B. Default: 1,0.1, per block 2,1.", metavar="SHAPE,RATE"
    )
    burn_in: int | None = option(None, "Sweeps before averaging. Default: detected.", min=0)
    tol: float = option(1e-5, "Stop when a sweep changes memberships by less than this.")
    max_iter: int = option(1000, "Largest number of sweeps.", min=1)
    n_init: int = option(1, "Number of starts; the fit with most evidence is kept.", min=1)
    batch_size: str = option("auto", "Objects updated with the same counts, or 'auto'.")
    jobs: int = option(1, "Threads, -1 for all; they do not change results.", "--jobs", "-j")
    seed: int = option(0, SEED_HELP, min=0, max=MAX_SEED)

    @property
    def tables(self) -> list[str]:
        """The texts that describe several relations, if any does."""
        given = self.relation or []
        return given if any("(" in text or "=" in text for text in given) else []

    @property
    def kind(self) -> str:
        """The kind of one relation."""
        given = self.relation or ["bipartite"]
        if self.tables:
            refuse(
                "Several relations are for 'coblock fit' and 'coblock evaluate'; other commands "
                "take one file."
            )
        if len(given) > 1:
            refuse(f"--relation is given {len(given)} times: {', '.join(given)}. Pass it once.")
        return given[0]

    def estimator(self) -> "IRM":
        """Return an estimator with these parameters."""
        from coblock.estimator import IRM

        if self.likelihood != "bernoulli":
            refuse(
                f"--likelihood {self.likelihood} can be used with 'coblock fit' only. In Python, "
                "MultiIRM.score scores held-out cells."
            )
        given = asdict(self) | {"relation": self.kind}
        switch = {"false": False, "true": True}
        given["degree_corrected"] = switch.get(self.degree_corrected, self.degree_corrected)
        given["max_clusters"] = _parse_numbers("--max-clusters", self.max_clusters, int)
        if self.batch_size != "auto":
            given["batch_size"] = _parse_numbers("--batch-size", self.batch_size, int)
        for name in ("block_prior", "concentration", "hyperprior", "block_hyperprior"):
            given[name] = _parse_numbers(f"--{name.replace('_', '-')}", given[name], float)
        given["n_jobs"], given["random_state"] = given.pop("jobs"), given.pop("seed")
        return IRM(**given)


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options on what is said about clusters."""

    panel: ClassVar = "Report"
    names: Path | None = option(  # noqa: RUF009 - it returns a dataclass field
        None, "CSV file with names of clusters: clusters.csv with an edited column 'name'."
    )
    labels: Path | None = option(  # noqa: RUF009
        None, "CSV file with known classes: names of rows or columns, and the class of each."
    )
    level: str | None = option(
        None, "Merge clusters along the tree down to so many.", metavar="N|ROWS,COLUMNS"
    )

    def read(self) -> dict[str, Any]:
        """Read the files; return the options of :func:`~coblock.analysis.description.describe`."""
        from coblock.io.export import read_labels, read_names

        return {
            "names": None if self.names is None else read_names(self.names),
            "labels": None if self.labels is None else read_labels(self.labels),
            "level": _parse_numbers("--level", self.level, int),
        }


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Options of a Dask cluster; those of TLS are the ones of ``dask scheduler``."""

    panel: ClassVar = "Dask cluster"
    scheduler: str | None = option(
        None,
        "Fit on the Dask cluster of this scheduler, such as tcp://host:8786. EDGES may be a folder "
        "of files that all workers can read.",
        metavar="ADDRESS",
    )
    tls_ca_file: str | None = option(None, "Certificate of the authority.", metavar="FILE")
    tls_cert: str | None = option(None, "Own certificate.", metavar="FILE")
    tls_key: str | None = option(None, "Private key of the own certificate.", metavar="FILE")

    @property
    def certificates(self) -> dict[str, str]:
        """The files of TLS, by their names in Dask."""
        names = ("tls_ca_file", "tls_client_cert", "tls_client_key")
        files = (self.tls_ca_file, self.tls_cert, self.tls_key)
        return {name: file for name, file in zip(names, files, strict=True) if file}

    def check(self) -> None:
        """Refuse some of the files without the others, and files that do not exist."""
        files = self.certificates
        if files and (len(files) < 3 or self.scheduler is None):
            refuse("--tls-ca-file, --tls-cert and --tls-key are needed together, with --scheduler.")
        for file in files.values():
            if not Path(file).is_file():
                refuse(f"There is no file {file}.", FileNotFoundError)

    def security(self) -> "Security | None":
        """Return the certificates as Dask uses them."""
        from distributed import Security

        files = self.certificates
        return Security(require_encryption=True, **files) if files else None  # type: ignore[no-untyped-call]


def _parse_numbers(name: str, text: str | None, kind: type[int] | type[float]) -> Any:
    """Return ``12`` as a number and ``12,30`` as a pair."""
    if text is None:
        return None
    try:
        numbers = tuple(kind(part) for part in text.split(","))
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        msg = f"{name} must be {what}, or two with a comma, but is {text!r}."
        raise ValueError(msg) from None
    return numbers[0] if len(numbers) == 1 else numbers


_NAMES = "|".join(part.name for group in (ReadOptions, FitOptions) for part in fields(group))


def with_options(text: str) -> str:
    """Replace parameters of the library (``name=value``) by options of the command line.

    A key of a relation follows a semicolon and stays.

    Examples
    --------
    >>> with_options("Pass relation='directed', header=False, or name it with value=.")
    'Pass --relation directed, --no-header, or name it with --value.'
    """

    def replacement(parameter: re.Match[str]) -> str:
        name, value = parameter[1].replace("_", "-"), parameter[2].strip("'")
        if value in {"True", "False"}:
            return f"--{name}" if value == "True" else f"--no-{name}"
        return f"--{name} {value}".rstrip()

    return re.sub(rf"(?<!;)\b({_NAMES})=('[\w-]*'|\w*)", replacement, text)
