"""The fuzz targets. A new target is a function that returns a Target, and a line in TARGETS."""

import gzip
import io
import random
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import checkpoint_file
import descriptions
import model_file
import multi_files
from scipy import sparse
from scipy.io import mmwrite

from coblock.io.checkpoint import CheckpointError
from coblock.io.model_file import ModelFileError
from coblock.io.readers import ReadError, read
from coblock.io.relation_files import DescriptionError

if TYPE_CHECKING:
    import polars as pl

KINDS = ("bipartite", "directed", "undirected")
SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
SHEET = (
    f'<worksheet xmlns="{SPREADSHEET}"><sheetData>'
    '<row r="1"><c r="A1" t="inlineStr"><is><t>who</t></is></c><c r="B1" t="inlineStr"><is><t>what'
    '</t></is></c></row><row r="2"><c r="A2" t="inlineStr"><is><t>ann</t></is></c><c r="B2"><v>7'
    '</v></c></row><row r="3"><c r="A3" t="inlineStr"><is><t>bob</t></is></c><c r="B3"><v>8.5</v>'
    "</c></row></sheetData></worksheet>"
).encode()


@dataclass(frozen=True)
class Sample:
    """A valid file: a name with a suffix that readers may need, and its content."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Target:
    """A reader of files.

    Attributes
    ----------
    name : str
        Name on the command line.
    samples : list of Sample
        Valid files, at least one of every kind.
    read : callable
        Reads a file, with options drawn from the random numbers.
    errors : tuple of type
        Errors that it may raise.
    """

    name: str
    samples: list[Sample]
    read: Callable[[Path, random.Random], object]
    errors: tuple[type[Exception], ...]


def readers() -> Target:
    """Return the target of the readers of relations."""
    return Target("readers", _relations(), _read_relation, (ReadError,))


def models() -> Target:
    """Return the target of the reader of model files."""
    samples = [Sample("model.safetensors", content) for content in model_file.seeds()]
    return Target("models", samples, model_file.read, (ModelFileError,))


def checkpoints() -> Target:
    """Return the target of the reader of checkpoints, and of resumed fits."""
    samples = [Sample("fit.checkpoint", content) for content in checkpoint_file.seeds()]
    return Target("checkpoints", samples, checkpoint_file.read, (CheckpointError,))


def multi_models() -> Target:
    """Return the target of model files of several relations."""
    samples = [Sample("model.safetensors", content) for content in multi_files.model_seeds()]
    return Target("multi_models", samples, multi_files.read_model, (ModelFileError,))


def multi_checkpoints() -> Target:
    """Return the target of checkpoints of several relations, and of resumed fits."""
    samples = [Sample("fit.checkpoint", content) for content in multi_files.checkpoint_seeds()]
    return Target("multi_checkpoints", samples, multi_files.read_checkpoint, (CheckpointError,))


def described() -> Target:
    """Return the target of descriptions of several relations."""
    samples = [Sample(name, content) for name, content in descriptions.SEEDS.items()]
    return Target("descriptions", samples, descriptions.read, (DescriptionError, ReadError))


def _read_relation(path: Path, random_numbers: random.Random) -> object:
    if path.suffix == ".sheet":  # damaged inside of an archive that is whole
        sheet, path = path.read_bytes(), path.with_suffix(".xlsx")
        path.write_bytes(_workbook(sheet))
    choices: dict[str, object] = {"relation": random_numbers.choice(KINDS)}
    for name, options in {
        "value": ("value", "3", "weight"),
        "row": ("row", "2"),
        "delimiter": (";", "whitespace", "é"),
        "header": (True, False),
        "encoding": ("latin-1", "utf-16", "nothing"),
        "binarize": (None, 1.5),
        "layout": ("edges", "wide", "baskets", "adjacency"),
        "absent": ("zero", "unseen"),
    }.items():
        if random_numbers.random() < 0.08:
            choices[name] = random_numbers.choice(options)
    return read(path, **choices)


def _relations() -> list[Sample]:
    import networkx
    import polars as pl

    table = pl.DataFrame(
        {
            "row": ["ann", "bob", "cyd, d.", 'e "f"', "g\nh", "ünal 😀", "ann"],
            "column": ["tea", "tea", "milk", "<b>", "tea", "7", "tea"],
            "value": [1.0, 0.0, 2.5, None, 3.0, 1.0, 1.0],
        }
    )
    kinds = pl.DataFrame(
        {
            "row": pl.Series(["a", "b", "a", None], dtype=pl.Categorical),
            "column": [["x"], ["x", "y"], [], None],
            "when": pl.Series([1, 2, 3, 4]).cast(pl.Date),
        }
    )
    csv = table.write_csv().encode()
    matrix = sparse.random_array((6, 6), density=0.3, rng=0, format="csr")
    market, npz = io.BytesIO(), io.BytesIO()
    mmwrite(market, matrix, precision=3)
    sparse.save_npz(npz, matrix, compressed=False)
    graph = networkx.path_graph(["a", "b", "c", "d"])
    networkx.set_node_attributes(
        graph, {node: "abcd".index(node) % 2 for node in graph}, "bipartite"
    )
    networkx.set_edge_attributes(graph, 1.5, "weight")
    graphml = io.BytesIO()
    networkx.write_graphml(graph, graphml)
    return [
        Sample("a.csv", csv),
        Sample("a.tsv", table.write_csv(separator="\t").encode()),
        Sample("b.csv", b"1;2;yes\n1;3;no\n2;3;\n4;2;yes\n"),
        Sample("c.csv.gz", gzip.compress(csv, mtime=0)),
        Sample("d.csv.zst", _written(table.write_csv, compression="zstd")),
        Sample("a.txt", b"# Nodes: 4 Edges: 3\n# From\tTo\n0\t1\n0\t2\n3\t1\n"),
        Sample("b.txt", b"0  1 1.5\n0   2 2\n3 1   0\n"),
        Sample("a.parquet", _written(table.write_parquet)),
        Sample("a.arrow", _written(table.write_ipc)),
        Sample("b.arrow", _written(table.write_ipc_stream)),
        Sample("a.mtx", market.getvalue()),
        Sample("b.mtx", b"%%MatrixMarket matrix array real general\n2 2\n1\n0\n0\n2\n"),
        Sample("c.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 1\n"),
        Sample("a.npz", npz.getvalue()),
        Sample("a.graphml", graphml.getvalue()),
        Sample("a.gml", "\n".join(networkx.generate_gml(graph)).encode()),
        Sample("w.csv", b",a,b,c\nann,1,0,1\nbob,0,1,\ncyd,yes,no,0\n"),
        Sample("i.csv", b",day,who,what\n0,2024-01-05,ann,tea\n1,2024-01-06,bob,tea\n"),
        Sample("a.basket", b"milk,tea\nbeer\ntea,beer,crisps\n"),
        Sample("a.adjlist", b"# a graph\na b c\nb c\nc\n"),
        Sample(
            "a.jsonl", b'{"who": "ann", "items": ["tea", "milk"]}\n{"who": "bob", "items": []}\n'
        ),
        Sample("a.json", b'{"incidences": [{"edge": "e", "node": 1}, {"edge": "f", "node": 2}]}'),
        Sample("a.db", _database(table)),
        Sample("a.duckdb", _duckdb()),
        Sample("a.xlsx", _workbook(SHEET)),
        Sample("a.sheet", SHEET),
        Sample(
            "a.nt",
            b'<http://a/ann> <http://a/likes> "tea"@en .\n_:b <http://a/is> <http://a/c> .\n',
        ),
        Sample("b.json", b'[{"who": "ann", "what": "tea"}, {"who": "bob", "what": "milk"}]'),
        Sample("c.arrow", _written(table.write_ipc_stream, compression="zstd")),
        Sample("d.arrow", _written(kinds.write_ipc_stream)),
        Sample("e.arrow", _written(kinds.write_ipc, compression="lz4")),
    ]


def _duckdb() -> bytes:
    """Return a small database with one table."""
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.duckdb"
        with duckdb.connect() as connection:
            connection.execute(f"ATTACH '{path}' AS d (BLOCK_SIZE 16384)")
            connection.execute(
                "CREATE TABLE d.edges AS SELECT 'r' || i % 3 AS a, i AS b FROM range(9) t(i)"
            )
        return path.read_bytes()


def _workbook(sheet: bytes) -> bytes:
    """Return a workbook with this sheet."""
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    linked = f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{office}/'
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default '
        'Extension="xml" ContentType="application/xml"/></Types>',
        "_rels/.rels": f'{linked}officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{SPREADSHEET}" xmlns:r="{office}"><sheets><sheet '
        'name="Sales" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'{linked}worksheet" Target="worksheets/sheet1.xml"/>'
        "</Relationships>",
        "xl/worksheets/sheet1.xml": sheet,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name, content in parts.items():
            zipped.writestr(name, content)
    return buffer.getvalue()


def _database(table: "pl.DataFrame") -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE edges (a, b, value)")
    connection.executemany("INSERT INTO edges VALUES (?, ?, ?)", table.rows())
    connection.commit()
    return connection.serialize()


def _written(write: Callable[..., object], **options: object) -> bytes:
    buffer = io.BytesIO()
    write(buffer, **options)
    return buffer.getvalue()


TARGETS: dict[str, Callable[[], Target]] = {
    "checkpoints": checkpoints,
    "descriptions": described,
    "models": models,
    "multi_checkpoints": multi_checkpoints,
    "multi_models": multi_models,
    "readers": readers,
}
