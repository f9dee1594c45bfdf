"""Relations that a command line or a TOML file describes.

The text ``bought(user,item)=orders.csv;value=qty`` and the table ``[relations.bought]`` have the
same keys: those of :class:`~coblock.Relation`.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coblock.io import refuse

if TYPE_CHECKING:
    from coblock.io.readers.reader import Reader
    from coblock.io.tables import Relation

KEYS: dict[str, tuple[tuple[type, ...], str]] = {  # types in a TOML file, and their name
    "data": ((str,), "the path of a file"),
    "places": ((list, dict), "a list of domains, or a table from places to domains"),
    "value": ((str,), "the name of a column"),
    "likelihood": ((str,), "a text"),
    "unseen": ((str,), "the path of a file"),
    "absent": ((str,), "'zero' or 'unseen'"),
    "symmetric": ((bool,), "true or false"),
    "diagonal": ((str,), "'seen' or 'unseen'"),
    "exposure": ((dict,), "a table from places to files of factors"),
    "degree_corrected": ((bool, str), "true, false or 'auto'"),
}
TEXT = re.compile(r"\s*([^()=;]*[^()=;\s])\s*\(([^()]*)\)\s*=\s*(.+)", flags=re.DOTALL)
FORM = "NAME(PLACE,PLACE)=FILE, then ;KEY=VALUE, as in 'bought(user,item)=orders.csv;value=qty'"
SWITCH = {"true": True, "false": False}
SWITCHED = ("symmetric", "degree_corrected")  # keys with these values


class DescriptionError(ValueError):
    """The description of a relation, or the data it names, are refused."""


def parse_relations(texts: list[str]) -> dict[str, dict[str, Any]]:
    """Return the keys of relations by name, from texts of the command line.

    Examples
    --------
    >>> parse_relations(["knows(who:user,whom:user)=k.csv;symmetric=true"])["knows"]["places"]
    {'who': 'user', 'whom': 'user'}
    """
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = TEXT.fullmatch(text)
        if match is None:
            refuse(f"--relation {text!r} must have the form {FORM}.", DescriptionError)
        name, places, rest = match.groups()
        if name in found:
            refuse(f"The relation '{name}' is given twice. Rename one.", DescriptionError)
        path, *options = rest.split(";")
        given: dict[str, Any] = {"data": path.strip(), "places": _parse_places(name, places)}
        for option in options:
            key, equals, value = (part.strip() for part in option.partition("="))
            if not equals or key in given:
                what = f"'{option}' of relation '{name}' must be a key, once, and a value"
                refuse(f"{what}: {FORM}.", DescriptionError)
            given[key] = SWITCH.get(value, value) if key in SWITCHED else value
            if key == "exposure":
                pairs = (part.partition(":") for part in value.split(","))
                given[key] = {place.strip(): file.strip() for place, _, file in pairs}
        found[name] = given
    return found


def _parse_places(name: str, text: str) -> dict[str, str]:
    """Return the domain of each place of ``user,item`` or ``who:user,whom:user``."""
    places: dict[str, str] = {}
    for part in text.split(","):
        place, colon, domain = (each.strip() for each in part.partition(":"))
        domain = domain if colon else place
        if not place or not domain or place in places:
            refuse(
                f"The places of relation '{name}' must have names of their own, but are '{text}'. "
                f"Places of one domain are written who:user,whom:user.",
                DescriptionError,
            )
        places[place] = domain
    return places


def read_description(path: Path) -> dict[str, dict[str, Any]]:
    """Return the keys of relations by name, from a TOML file; paths are relative to its folder."""
    if not path.is_file():
        refuse(f"There is no file {path}.", FileNotFoundError)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        refuse(f"{path} is not a TOML file: {error}.", DescriptionError)
    other = [key for key in content if key != "relations"]
    if other:
        refuse(
            f"{path} has the unknown key '{other[0]}'. The only one is 'relations', with a table "
            "[relations.NAME] for each relation.",
            DescriptionError,
        )
    relations = content.get("relations")
    if not isinstance(relations, dict) or not relations:
        refuse(f"{path} has no table [relations.NAME]. Add one for each.", DescriptionError)
    for name, given in relations.items():
        if not isinstance(given, dict):
            refuse(f"relations.{name} of {path} must be a table.", DescriptionError)
        for key in ("data", "unseen"):
            if isinstance(given.get(key), str):
                given[key] = str(path.parent / given[key])
        if isinstance(given.get("exposure"), dict):
            files = given["exposure"].items()
            given["exposure"] = {place: str(path.parent / str(file)) for place, file in files}
    return relations


def check_keys(described: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse unknown keys, keys that are missing, and values of another type."""
    for name, given in described.items():
        if not name:
            refuse("A relation has no name. Write [relations.NAME].", DescriptionError)
        for key, value in given.items():
            if key not in KEYS:
                refuse(
                    f"Relation '{name}' has the unknown key '{key}'. The keys are: "
                    f"{', '.join(KEYS)}.",
                    DescriptionError,
                )
            types, expected = KEYS[key]
            if not isinstance(value, types):
                found = f"but is {value!r}"
                refuse(f"{key} of relation '{name}' must be {expected}, {found}.", DescriptionError)
        for key in ("data", "places"):
            if not given.get(key):
                refuse(f"Relation '{name}' has no {key}. Name {KEYS[key][1]}.", DescriptionError)


def read_relations(described: Mapping[str, Mapping[str, Any]]) -> "dict[str, Relation]":
    """Read the files of relations; an error names the relation and the file."""
    from coblock.io.tables import Relation

    check_keys(described)
    found = {}
    for name, given in described.items():
        try:
            exposure = _read_exposures(given)
            relation = Relation(**{**given, "data": Path(given["data"]), "exposure": exposure})
        except (TypeError, ValueError, OSError) as error:
            msg = f"Relation '{name}': {error}"
            raise DescriptionError(msg) from error
        try:
            relation.read(name)
        except (ValueError, OSError) as error:
            raise DescriptionError(str(error)) from error
        found[name] = relation
    return found


def _read_exposures(given: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Read the files with a factor for each object at some places."""
    from coblock.io.listing import check_places, read_frame

    if "exposure" not in given:
        return None
    places, found = check_places(given["places"]), {}
    for place, file in given["exposure"].items():
        if place not in places or not file:
            what = f"'{place}', which does not exist" if file else f"'{place}' without a file"
            refuse(
                f"exposure names the place {what}. Write place:file; places: {', '.join(places)}."
            )
        frame = read_frame(Path(file), [place, places[place]])
        names = next((each for each in (place, places[place]) if each in frame.columns), None)
        others = [each for each in frame.columns if each != names]
        if names is None or len(others) != 1:
            refuse(
                f"The file of exposures {file} must have two columns, '{place}' and the factor, "
                f"but has: {', '.join(frame.columns)}."
            )
        repeated = frame[names].is_duplicated()
        if repeated.any():
            first = frame[names].filter(repeated)[0]
            refuse(
                f"{repeated.sum():,} of {len(frame):,} rows of {file} name an object more than "
                f"once; the first is '{first}'. Keep one row for each object."
            )
        found[place] = dict(zip(frame[names], frame[others[0]], strict=True))
    return found


def read_single(
    path: Path, kind: str, likelihood: str, reader: "Reader"
) -> tuple["Relation", tuple[str, ...]]:
    """Read one relation of two places whose values are not binary, and notes of the reader.

    The places are ``row`` and ``column``, filled by ``rows`` and ``columns``, or both by
    ``objects``. A blank value is unseen.
    """
    import polars as pl

    from coblock.io.readers.edges import EdgeTable
    from coblock.io.tables import Relation

    edges = reader.read(path)
    if not isinstance(edges, EdgeTable):
        refuse(
            f"{path} is a matrix without names. Values that are not binary are read from tables; "
            "in Python, Relation takes arrays and sparse matrices."
        )
    frame, value = edges.frame, "value" if "value" in edges.frame.columns else None
    if value is not None and likelihood != "categorical":
        words = frame[value].cast(pl.String).str.strip_chars()
        numbers = words.set(words == "", None).cast(pl.Float64, strict=False)
        wrong = numbers.is_null() & (words != "").fill_null(False)
        if wrong.any():
            first = int(wrong.arg_max() or 0)
            refuse(
                f"{path} has {wrong.sum():,} of {len(words):,} values that are not numbers; the "
                f"first is {words[first]!r}, {edges.locate(first)}. Correct them, or pass "
                "likelihood='categorical' if they are categories."
            )
        frame = frame.with_columns(numbers.alias(value))
    names = ("rows", "columns") if kind == "bipartite" else ("objects", "objects")
    absent = "zero" if edges.complete and likelihood == "poisson" else reader.absent
    places = dict(zip(("row", "column"), names, strict=True))
    how: dict[str, Any] = {"absent": absent, "symmetric": kind == "undirected"}
    return Relation(frame, places, value=value, likelihood=likelihood, **how), edges.notes
