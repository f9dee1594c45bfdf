"""Fuzz target: descriptions of several relations, as TOML and as texts of the command line."""

import random
import traceback
from pathlib import Path

import coblock
from coblock.io.relation_files import (
    DescriptionError,
    parse_relations,
    read_description,
    read_relations,
)
from coblock.io.tables import build_dataset

SEEDS = {
    "a.toml": b'[relations.bought]\ndata = "orders.csv"\nplaces = ["user", "item"]\n'
    b'value = "qty"\nlikelihood = "poisson"\nabsent = "unseen"\n\n'
    b'[relations.knows]\ndata = "knows.csv"\nplaces = {who = "user", whom = "user"}\n'
    b'symmetric = true\ndiagonal = "unseen"\n',
    "b.relation": b"bought(user,item)=orders.csv;value=qty;likelihood=poisson",
    "c.relation": b"knows(who:user,whom:user)=knows.csv;symmetric=true",
    "orders.csv": b"user,item,qty\nann,tea,2\nbob,tea,1\nbob,milk,3\n",
    "knows.csv": b"who,whom\nann,bob\nbob,cyd\n",
}


def read(path: Path, _random_numbers: random.Random) -> None:
    """Read a description with valid files, or a damaged file with a valid description."""
    others = {name: content for name, content in SEEDS.items() if name != path.name}
    for name, content in others.items():
        (path.parent / name).write_bytes(content)
    if path.suffix == ".relation":
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        described = parse_relations([text])
        for given in described.values():
            given["data"] = str(path.parent / Path(str(given["data"])).name)
    else:
        described = read_description(path if path.suffix == ".toml" else path.parent / "a.toml")
    relations = read_relations(described)
    try:
        build_dataset(relations)
    except ValueError as error:  # a sentence of ours; one of another library is a finding
        ours = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        if ours.is_relative_to(Path(coblock.__file__).parent):
            raise DescriptionError(str(error)) from error
        raise
