"""Descriptions and options of several relations, and of one whose values are not binary."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coblock.io import refuse
from coblock.io.relation_files import parse_relations, read_description, read_relations
from coblock.ui.cli.console import OutputOptions
from coblock.ui.cli.options import FitOptions, ReadOptions

if TYPE_CHECKING:
    from coblock.io.tables import Relation
    from coblock.multi import MultiIRM

INTERRUPTED = "Interrupted. The same command continues the fit."
Described = dict[str, dict[str, Any]]
METHOD = ("inference", "init", "refine", "burn_in", "tol", "max_iter")
USED = ("relation", "max_clusters", "seed", "jobs", *METHOD)  # of a fit of several relations


def describe_relations(edges: Path | None, fit_options: FitOptions) -> Described | None:
    """Return the keys of several relations, by name; None if one file of edges is given."""
    texts = fit_options.tables
    from_file = edges is not None and edges.suffix == ".toml"
    if not texts and not from_file:
        if edges is None:
            refuse("Name a file of edges, a TOML file, or relations with --relation.")
        return None
    if texts and edges is not None:
        refuse(f"Relations are given with --relation, and {edges} as well. Pass one of the two.")
    if texts:
        return parse_relations(texts)
    assert edges is not None
    if fit_options.relation:
        refuse(f"--relation cannot be used with {edges}, which describes its relations.")
    return read_description(edges)


def read_several(described: Described, output: OutputOptions) -> "dict[str, Relation]":
    """Read the files of several relations; print what was read."""
    relations = read_relations(described)
    for name, relation in relations.items():
        output.say(f"{name}: {relation!r}")
    return relations


READ = ("row", "column", "value", "wide", "layout", "absent", "query", "delimiter", "header")
USED_OF_ONE = (*USED, *READ, "encoding", "max_columns", "max_unpacked", "likelihood")


def read_one(
    edges: Path, read_options: ReadOptions, fit_options: FitOptions, output: OutputOptions
) -> "dict[str, Relation]":
    """Read one relation with values that are not binary; print what was read."""
    from coblock.io.cells import LIKELIHOODS
    from coblock.io.readers.limits import Limits
    from coblock.io.readers.reader import Columns, Reader, TextLayout
    from coblock.io.relation_files import read_single
    from coblock.model.checks import KINDS, check_choice

    kind: Any = fit_options.kind
    check_choice("--likelihood", fit_options.likelihood, tuple(LIKELIHOODS))
    check_choice("--relation", kind, KINDS)
    given = read_options
    text = TextLayout(given.delimiter, given.header, given.encoding)
    columns = Columns(given.row, given.column, given.value)
    limits = Limits(given.max_columns, given.max_unpacked)
    how: tuple[Any, ...] = (given.chosen_layout, given.absent, given.query)
    reader = Reader(kind, columns, None, text, limits, *how)
    relation, notes = read_single(edges, kind, fit_options.likelihood, reader)
    name = "standard input" if str(edges) == "-" else edges.stem
    relation.read(name)
    output.say(f"{name}: {relation!r}")
    for note in notes:
        output.note(note)
    return {name: relation}


def refuse_options(
    *groups: Any, used: tuple[str, ...] = USED, what: str = "several relations"
) -> None:
    """Refuse options that a model of several relations does not have."""
    given = [
        f"--{part.name}".replace("_", "-")
        for group in groups
        for part in fields(group)
        if part.name not in used and getattr(group, part.name) != part.default
    ]
    if given:
        refuse(
            f"{', '.join(given)} cannot be used with {what}. Leave it out; options of "
            "a relation follow its file, as in 'bought(user,item)=orders.csv;value=qty'."
        )


def make_model(fit_options: FitOptions) -> "MultiIRM":
    """Return an estimator with these parameters."""
    from coblock.multi import MultiIRM

    return MultiIRM(
        max_clusters=parse_limits(fit_options.max_clusters),
        random_state=fit_options.seed,
        n_jobs=fit_options.jobs,
        **{name: getattr(fit_options, name) for name in METHOD},
    )


def parse_limits(text: str | None) -> int | dict[str, int] | None:
    """Return ``12`` as a number and ``user=4,item=8`` as a dict.

    Examples
    --------
    >>> parse_limits("user=4,item=8")
    {'user': 4, 'item': 8}
    """
    if text is None:
        return None
    try:
        if "=" not in text:
            return int(text)
        pairs = (part.rpartition("=") for part in text.split(","))
        return {domain.strip(): int(number) for domain, _, number in pairs}
    except ValueError:
        msg = f"--max-clusters must be a number, or DOMAIN=N,DOMAIN=N, but is {text!r}."
        raise ValueError(msg) from None
