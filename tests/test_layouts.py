"""Shapes of tables and formats that people have: each is read correctly, or refused with advice."""

import json
import sqlite3
import zipfile
from io import BytesIO
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from coblock import IRM, read
from coblock.io.readers import ReadError
from coblock.ui.cli import app
from test_readers import links, unseen, written

pytestmark = pytest.mark.usefixtures("short_chains_in_file")
PEOPLE, GOODS = [f"p{i}" for i in range(12)], [f"item {j}" for j in range(5)]
BOUGHT = np.add.outer(np.arange(12), np.arange(5)) % 3 == 0
PAIRS = {(PEOPLE[i], GOODS[j]) for i, j in zip(*BOUGHT.nonzero(), strict=True)}
SORTED = sorted(PAIRS)


def edge_frame(**others: object) -> pd.DataFrame:
    """Return the pairs as a frame of customers and products, after other columns."""
    who, what = zip(*SORTED, strict=True)
    return pd.DataFrame({**others, "customer": who, "product": what})


def wide_frame(yes: object = 1, no: object = 0) -> pd.DataFrame:
    return pd.DataFrame(np.where(BOUGHT, yes, no), index=PEOPLE, columns=GOODS)


def days() -> list[str]:
    return [f"2024-03-{1 + i % 28:02d}" for i in range(len(SORTED))]


def workbook(frame: pd.DataFrame) -> bytes:
    """Return the smallest workbook with a frame: one sheet of strings and numbers."""

    def cell(value: object) -> str:
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    lines = [list(frame.columns), *frame.values.tolist()]
    rows = "".join(f"<row>{''.join(map(cell, line))}</row>" for line in lines)
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default '
        'Extension="xml" ContentType="application/xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet '
        'name="Sales" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
        "</Relationships>",
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData>'
        "</worksheet>",
    }
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name, text in parts.items():
            zipped.writestr(name, text)
    return buffer.getvalue()


def database(path, **tables: pd.DataFrame):
    with sqlite3.connect(path) as connection:
        for name, frame in tables.items():
            frame.to_sql(name, connection, index=False)
    connection.close()
    return path


# The twelve files of the issue


def write_wide(folder):
    frame = wide_frame()
    frame.index.name = "name"
    return written(folder, "wide.csv", frame.to_csv())


def write_tab_wide(folder):
    return written(folder, "wide.tsv", wide_frame("yes", "no").to_csv(sep="\t"))


def write_named_index(folder):
    frame = edge_frame()
    frame.index.name = "index"
    return written(folder, "index.csv", frame.to_csv())


def write_unnamed_index(folder):
    return written(folder, "unnamed.csv", edge_frame().to_csv())


def write_r(folder):
    """Write as ``write.csv`` of R does: strings and row numbers in quotes, counted from 1."""
    lines = [f'"{i}","{a}","{b}"' for i, (a, b) in enumerate(SORTED, start=1)]
    return written(folder, "r.csv", '"","customer","product"\n' + "\n".join(lines) + "\n")


def write_date_first(folder):
    return written(folder, "date.csv", edge_frame(date=days()).to_csv(index=False))


def write_rating_first(folder):
    count = range(len(SORTED))
    times, ratings = [964982703 + 7 * i for i in count], [1 + i % 5 for i in count]
    frame = edge_frame(timestamp=times, rating=ratings)
    frame.columns = ["timestamp", "rating", "user", "movie"]
    return written(folder, "ratings.csv", frame.to_csv(index=False))


def write_workbook(folder):
    pytest.importorskip("fastexcel")
    return written(folder, "sales.xlsx", workbook(edge_frame()))


def write_sqlite(folder):
    return f"{database(folder / 'shop.db', sales=edge_frame(), other=edge_frame())}::sales"


READ = {
    "wide": write_wide,
    "tab wide": write_tab_wide,
    "named index": write_named_index,
    "unnamed index": write_unnamed_index,
    "R": write_r,
    "date first": write_date_first,
    "rating first": write_rating_first,
    "workbook": write_workbook,
    "SQLite": write_sqlite,
}


@pytest.mark.parametrize("write", READ.values(), ids=READ)
def test_files_that_people_have_are_read(tmp_path, write):
    reading = read(write(tmp_path))
    assert links(reading) == PAIRS
    assert reading.unseen == 0
    assert (reading.rows, reading.columns) == (12, 5)


def test_answers_of_a_questionnaire_are_refused_with_advice(tmp_path):
    frame = wide_frame("often", "never")
    frame.iloc[0, 0] = "sometimes"
    path = written(tmp_path, "answers.csv", frame.to_csv())
    with pytest.raises(ReadError, match=r"'never', 'often', 'sometimes'.* are: yes=WORD,WORD"):
        read(path)
    frame = frame.replace({"often": "1", "sometimes": "", "never": "0"})
    reading = read(written(tmp_path, "marks.csv", frame.to_csv()))
    assert links(reading) == PAIRS - {("p0", "item 0")}
    assert unseen(reading) == {("p0", "item 0")}


def test_the_answers_that_are_links_are_listed(tmp_path):
    frame = wide_frame("Often", "never")
    frame.iloc[0, 0], frame.iloc[1, 0] = "always", None
    gone = {("p0", "item 0"), ("p1", "item 0")}
    path = written(tmp_path, "answers.csv", frame.to_csv())
    for source in (path, frame, written(tmp_path, "r.csv", frame.reset_index().to_csv())):
        reading = read(source, yes="often, ALWAYS")
        assert links(reading) == (PAIRS | {("p0", "item 0")}) - {("p1", "item 0")}
        assert unseen(reading) == {("p1", "item 0")}
        assert "Links are the answers 'often', 'always'; 'never' are not." in reading.notes
    assert links(read(path, yes=["often"])) == PAIRS - gone
    with pytest.raises(ReadError, match=r"'oftn' of yes= does not occur .*'always', 'never', 'of"):
        read(path, yes="oftn")
    with pytest.raises(ReadError, match="yes= must list answers"):
        read(path, yes="")


def test_answers_of_edges_are_in_the_value_column():
    frame = pl.DataFrame({"who": ["a", "a", "b"], "what": ["x", "y", "x"], "how": ["+", "-", None]})
    reading = read(frame, value="how", yes="+")
    assert links(reading) == {("a", "x")}
    assert unseen(reading) == {("b", "x")}
    with pytest.raises(ReadError, match="A graph is none"):
        read(nx.Graph([("a", "b")]), yes="+", relation="undirected")


BASKETS = ["milk,tea,beer", "tea", "milk,beer", "beer,crisps,tea,milk", "tea,milk", "crisps"]


@pytest.mark.parametrize("lines", [BASKETS, BASKETS[::-1], ["a,b", "c", "b,a"]])
def test_baskets_are_refused_with_advice_and_then_read(tmp_path, lines):
    path = written(tmp_path, "baskets.csv", "\n".join(lines) + "\n")
    with pytest.raises(ReadError, match="layout='baskets'"):
        read(path)
    reading = read(path, layout="baskets")
    expected = {(str(n), item) for n, line in enumerate(lines, 1) for item in line.split(",")}
    assert links(reading) == expected
    named = written(tmp_path, "baskets.basket", "\n".join(lines))
    assert links(read(named)) == expected


def test_standard_input(tmp_path, monkeypatch):
    content = edge_frame().to_csv(index=False).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=BytesIO(content)))
    assert links(read("-")) == PAIRS
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=BytesIO(content)))
    with pytest.raises(ReadError, match=r"more than 50 bytes.*max_unpacked="):
        read("-", max_unpacked=50)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=BytesIO(b"\n")))
    with pytest.raises(ReadError, match="Standard input is empty"):
        read("-")


# Notes and choices


def test_dropped_and_passed_columns_are_noted(tmp_path):
    notes = "\n".join(read(write_unnamed_index(tmp_path)).notes)
    assert "Column 1 (without a name) only counts the lines and was not used" in notes
    assert "0 columns" not in notes
    notes = "\n".join(read(write_date_first(tmp_path)).notes)
    assert (
        "Not used as names: 'date' (dates). Rows are in 'customer', columns in 'product'" in notes
    )
    notes = "\n".join(read(write_rating_first(tmp_path)).notes)
    assert "'timestamp' (times), 'rating' (values)" in notes
    notes = "\n".join(read(write_wide(tmp_path)).notes)
    assert "wide table with 5 columns of cells; the row names are in 'name'" in notes


def test_chosen_columns_are_used_whatever_they_have(tmp_path):
    path = write_date_first(tmp_path)
    reading = read(path, row="date", column="product")
    assert reading.relation.row_names[0] == "2024-03-01"
    first_two = read(path, layout="edges")
    assert first_two.relation.column_names == tuple(dict.fromkeys(a for a, _ in SORTED))
    rows = read(write_unnamed_index(tmp_path), layout="edges").rows
    assert rows == len(SORTED)


def test_too_few_columns_of_names_are_refused(tmp_path):
    frame = edge_frame(date=days()).drop(columns="product")
    frame["price"] = 1.5
    path = written(tmp_path, "prices.csv", frame.to_csv(index=False))
    with pytest.raises(
        ReadError, match=r"has dates in column 'date', and too few .*row= and column"
    ):
        read(path)
    both = edge_frame(date=days())[["date", "product"]]
    assert read(written(tmp_path, "days.csv", both.to_csv(index=False))).columns == 5


def test_one_link_per_row_is_noted(tmp_path):
    frame = pd.DataFrame({"order": [f"o{i}" for i in range(30)], "product": GOODS * 6})
    note = "Every row has exactly one link"
    found = [one for one in read(frame).notes if note in one]
    assert len(found) == 1
    assert "rows from 'order', columns from 'product': are they the columns you meant?" in found[0]
    reversed_notes = read(frame, row="product", column="order").notes
    assert any("Every column has exactly one link" in one for one in reversed_notes)
    assert not any("exactly one link" in one for one in read(edge_frame()).notes)


def test_tables_that_may_be_wide_are_refused(tmp_path):
    counts = wide_frame(7, 2).to_csv()
    path = written(tmp_path, "counts.csv", counts)
    with pytest.raises(ReadError, match=r"may be a wide table\. .*layout='wide'.*row= and column="):
        read(path)
    reading = read(path, layout="wide", binarize=2)
    assert links(reading) == PAIRS
    frame = wide_frame()
    frame.insert(0, "age", range(20, 32))
    mixed = written(tmp_path, "mixed.csv", frame.to_csv())
    with pytest.raises(ReadError, match=r"5 columns of 0 and 1, such as 'item 0', and 2 others"):
        read(mixed)
    twice = pd.concat([wide_frame(), wide_frame()]).to_csv()
    for layout in (None, "wide"):
        with pytest.raises(ReadError, match=r"12 of 24 (row )?names .*occur before"):
            read(written(tmp_path, "twice.csv", twice), layout=layout)


def test_blank_cells_of_a_wide_table(tmp_path):
    only_ones = written(tmp_path, "ones.csv", wide_frame("x", "").to_csv())
    with pytest.raises(ReadError, match=r"no 0 or no\. .*absent='zero' or absent='unseen'"):
        read(only_ones)
    reading = read(only_ones, absent="zero")
    assert (links(reading), reading.unseen) == (PAIRS, 0)
    assert (reading.rows, reading.columns) == (12, 5)
    assert read(only_ones, absent="unseen").unseen == 60 - len(PAIRS)


def test_wide_tables_without_names(tmp_path):
    path = written(tmp_path, "bare.csv", wide_frame().to_csv(index=False))
    expected = {(str(int(a[1:]) + 1), b) for a, b in PAIRS}
    assert links(read(path)) == expected
    numbers = wide_frame()
    numbers.columns = [101, 102, 103, 104, 105]
    numbered = written(tmp_path, "numbers.csv", numbers.to_csv(index_label="user"))
    assert read(numbered).relation.column_names == ("101", "102", "103", "104", "105")
    assert links(read(wide_frame())) == PAIRS  # the index of pandas


def test_wide_network(tmp_path):
    names = ["a", "b", "c", "d", "e"]
    matrix = np.triu(np.ones((5, 5)), 1).astype(int)
    frame = pd.DataFrame(matrix, index=names, columns=names[::-1])
    reading = read(written(tmp_path, "n.csv", frame.to_csv()), relation="directed")
    linked = frame.stack()
    expected = {pair for pair in linked[linked == 1].index if pair[0] != pair[1]}
    assert links(reading) == expected
    assert reading.rows == 5


def test_absent_pairs_of_a_list(tmp_path):
    frame = edge_frame()
    frame["stars"] = np.arange(len(frame)) % 5 + 1
    reading = read(frame, value="stars", binarize=3, absent="unseen")
    assert reading.unseen == 60 - len(PAIRS)
    assert reading.relation.n_links == int((frame["stars"] > 3).sum())
    assert read(frame, value="stars", binarize=3).unseen == 0
    with pytest.raises(ReadError, match="absent='unseen' leaves no zeros"):
        read(frame, absent="unseen")
    undirected = pd.DataFrame({"a": ["x", "x", "y"], "b": ["y", "z", "w"], "v": [1, 0, 1]})
    found = read(undirected, value="v", relation="undirected", absent="unseen")
    assert (found.relation.n_links, found.unseen, found.relation.n_cells) == (2, 3, 3)


def test_values_that_are_not_0_or_1_are_cut_with_a_note():
    frame = edge_frame()
    frame["times"] = np.arange(len(frame)) % 4
    share = (frame["times"] > 0).mean()
    notes = read(frame, value="times").notes
    (note,) = (one for one in notes if "neither 0 nor 1" in one)
    assert f"from 0 to 3. Those above 0 count as links, {share:.0%} of the values" in note
    assert "binarize=t" in note
    for other in (
        read(frame, value="times", binarize=1),
        read(frame.assign(times=1), value="times"),
    ):
        assert not any("neither 0 nor 1" in one for one in other.notes)


def test_table_of_r_without_the_name_of_its_row_names(tmp_path):
    lines = [f'"{i}" "{a}" "{b}"' for i, (a, b) in enumerate(SORTED, start=1)]
    path = written(tmp_path, "r.csv", '"customer" "product"\n' + "\n".join(lines) + "\n")
    with pytest.raises(ReadError, match=r"as write\.table of R writes them.*col\.names=NA"):
        read(path, header=True, delimiter=" ")


# One relation in every layout

CELLS = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=6, max_size=9).filter(
    lambda lines: all(map(any, lines)) and all(any(c) for c in zip(*lines, strict=True))
)


def layouts(folder, cells):
    """Yield the relation with these cells in every layout."""
    matrix = np.array(cells)
    rows, columns = [f"r{i}" for i in range(len(cells))], ["u", "v", "w", "z"]
    wide = pd.DataFrame(matrix.astype(int), index=rows, columns=columns)
    pairs = [(rows[i], columns[j]) for i, j in zip(*matrix.nonzero(), strict=True)]
    edges = pd.DataFrame(pairs, columns=["from", "to"])
    all_pairs = [(a, b, int(wide.loc[a, b])) for a in rows for b in columns]
    valued = pd.DataFrame(all_pairs, columns=["from", "to", "value"])
    near = "\n".join(" ".join([a, *(b for x, b in pairs if x == a)]) for a in rows)
    records = [{"from": a, "to": b} for a, b in pairs]
    hif = {"network-type": "undirected", "incidences": [{"edge": b, "node": a} for a, b in pairs]}
    lists = [{"row": a, "columns": [b for x, b in pairs if x == a]} for a in rows]
    yield "edges", read(written(folder, "e.csv", edges.to_csv(index=False)), header=True)
    yield "index", read(written(folder, "i.csv", edges.to_csv()))
    yield "values", read(written(folder, "v.csv", valued.to_csv(index=False)), value="value")
    yield "wide", read(written(folder, "w.csv", wide.to_csv()))
    yield "yes", read(written(folder, "y.csv", wide.replace({1: "Yes", 0: "No"}).to_csv()))
    yield "frame", read(wide)
    yield "polars", read(pl.DataFrame({"name": rows} | wide.to_dict("list")))
    yield "adjacency", read(written(folder, "a.adjlist", near))
    yield "JSON Lines", read(written(folder, "l.jsonl", "\n".join(map(json.dumps, records))))
    yield "lists", read(written(folder, "b.jsonl", "\n".join(map(json.dumps, lists))))
    yield "HIF", read(written(folder, "h.json", json.dumps(hif)))
    stream = pl.DataFrame(edges.to_dict("list")).__arrow_c_stream__
    yield "stream", read(SimpleNamespace(__arrow_c_stream__=stream))


@given(cells=CELLS)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20
)
def test_every_layout_gives_the_same_relation(tmp_path, cells):
    found = dict(layouts(tmp_path, cells))
    expected = links(found["edges"])
    assert len(expected) == np.count_nonzero(cells)
    for name, reading in found.items():
        assert links(reading) == expected, name
        assert reading.unseen == 0, name


def test_the_comparison_of_layouts_can_fail(tmp_path):
    cells = [[True, True, False, False]] * 3 + [[False, False, True, True]] * 3
    good = dict(layouts(tmp_path, cells))
    wrong = read(tmp_path / "w.csv", layout="edges")
    assert links(wrong) != links(good["wide"])
    assert links(read(tmp_path / "v.csv")) != links(good["values"])
    assert links(read(tmp_path / "i.csv", layout="edges")) != links(good["index"])


# Formats


def test_tables_of_a_database(tmp_path):
    path = database(tmp_path / "shop.sqlite", sales=edge_frame(), stock=edge_frame())
    with pytest.raises(ReadError, match=r"has 2 tables \('sales', 'stock'\).*shop\.sqlite::sales"):
        read(path)
    with pytest.raises(ReadError, match=r"no table 'none'\. Its tables are 'sales', 'stock'"):
        read(f"{path}::none")
    query = "SELECT customer, product FROM sales WHERE customer = 'p1'"
    assert links(read(path, query=query)) == {pair for pair in PAIRS if pair[0] == "p1"}
    with pytest.raises(ReadError, match="cannot be read"):
        read(path, query="DROP TABLE sales")
    assert links(read(f"{path}::sales")) == PAIRS
    with pytest.raises(ReadError, match="query= is for databases"):
        read(written(tmp_path, "a.csv", "a,b\nc,d\n"), query=query)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mixed (a, b)")
        connection.executemany("INSERT INTO mixed VALUES (?, ?)", [(1, "x"), ("one", 2), (1, 2)])
        connection.execute("CREATE TABLE bare (a, b)")
    connection.close()
    assert links(read(f"{path}::mixed")) == {("1", "x"), ("one", "2"), ("1", "2")}
    with pytest.raises(ReadError, match="the table has no rows"):
        read(f"{path}::bare")
    with pytest.raises(ReadError, match="neither an SQLite nor a DuckDB database"):
        read(written(tmp_path, "fake.db", "customer,product\n"))


def test_duckdb(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE sales (customer VARCHAR, product VARCHAR)")
        connection.executemany("INSERT INTO sales VALUES (?, ?)", SORTED)
    assert links(read(path)) == PAIRS
    one = "SELECT * FROM sales WHERE customer = 'p1'"
    assert links(read(path, query=one)) == {pair for pair in PAIRS if pair[0] == "p1"}
    with pytest.raises(ReadError, match="cannot be read"):
        read(path, query=f"SELECT * FROM read_csv('{path}')")


def test_sheets_of_a_workbook(tmp_path):
    pytest.importorskip("fastexcel")
    path = written(tmp_path, "sales.xlsx", workbook(edge_frame()))
    assert links(read(f"{path}::Sales")) == PAIRS
    with pytest.raises(ReadError, match=r"no sheet 'Stock'\. Its sheets are 'Sales'"):
        read(f"{path}::Stock")
    frame = wide_frame().reset_index(names="name")
    assert links(read(written(tmp_path, "wide.xlsx", workbook(frame)))) == PAIRS
    with pytest.raises(ReadError, match="is not a workbook"):
        read(written(tmp_path, "fake.xlsx", "customer,product\n"))


@pytest.mark.parametrize("far", ['r="XFD1048576"', "r = 'A12147483648'"])
def test_a_sheet_with_a_cell_far_away_is_refused(tmp_path, far):
    """The reader of workbooks would allocate all cells up to it."""
    inside = BytesIO()
    with (
        zipfile.ZipFile(BytesIO(workbook(edge_frame()))) as whole,
        zipfile.ZipFile(inside, "w", zipfile.ZIP_DEFLATED) as changed,
    ):
        for name in whole.namelist():
            text = whole.read(name).replace(b"<c t=", b"<c %b t=" % far.encode(), 1)
            changed.writestr(name, b" " * (1 << 24) + text if "sheet1" in name else text)
    path = written(tmp_path, "far.xlsx", inside.getvalue())
    with pytest.raises(ReadError, match=r"when it is unpacked.*max_unpacked="):
        read(path)


def test_triples(tmp_path):
    pytest.importorskip("rdflib")
    text = "".join(f"<urn:{a}> <urn:buys> <urn:{b.replace(' ', '')}> .\n" for a, b in SORTED)
    path = written(tmp_path, "shop.nt", text + '<urn:p0> <urn:name> "Ann" .\n')
    reading = read(path)
    assert len(links(reading)) == len(PAIRS) + 1
    assert any("2 predicates are not distinguished" in note for note in reading.notes)
    assert ("urn:p0", "urn:name Ann") in links(read(path, row="subject", column="feature"))


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("a.xlsx", "fastexcel", "excel"), ("a.nt", "rdflib", "rdf"), ("a.duckdb", "duckdb", "duckdb")],
)
def test_missing_packages_are_named(tmp_path, monkeypatch, name, package, extra):
    content = workbook(edge_frame()) if extra == "excel" else b"\0" * 8 + b"DUCK" + b"\0" * 20
    monkeypatch.setitem(__import__("sys").modules, package, None)
    expected = rf"need {package}, which is not installed: pip install 'coblock\[{extra}\]'"
    with pytest.raises(ImportError, match=expected):
        read(written(tmp_path, name, content))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ('{"a": 1}', "neither a hypergraph"),
        ("[1, 2]", "neither a hypergraph"),
        ('{"incidences": [{"node": 1}]}', "1 of 1 incidences without a node or an edge"),
    ],
)
def test_damaged_json_is_refused(tmp_path, content, words):
    with pytest.raises(ReadError, match=words):
        read(written(tmp_path, "a.json", content))


# Command line


def run(*arguments: object, **options: object):
    return CliRunner().invoke(app, [str(one) for one in arguments], **options)


def test_three_lines_say_what_was_read(tmp_path):
    path = write_date_first(tmp_path)
    ran = run("fit", path, "--out", tmp_path / "out", "--max-iter", "3", "--inference", "cvb0")
    assert "Read: rows from 'customer', columns from 'product'.\n" in ran.stderr
    first = f"First links: {SORTED[0][0]} - {SORTED[0][1]}, {SORTED[1][0]} - {SORTED[1][1]}.\n"
    assert first in ran.stderr
    assert f"12 rows and 5 columns, {len(PAIRS)} links, 0 unseen cells; " in ran.stderr
    assert "--row and --column change that" in ran.stderr


def test_options_of_layouts(tmp_path):
    path = written(tmp_path, "counts.csv", wide_frame(7, 2).to_csv())
    out = ("--out", tmp_path / "out", "--max-iter", "3", "--inference", "cvb0")
    refused = run("fit", path, *out)
    assert refused.exit_code == 2
    assert "pass --layout wide" in refused.stderr
    ran = run("fit", path, *out, "--wide", "--binarize", "2", "--json")
    assert json.loads(ran.stdout)["links"] == len(PAIRS)
    both = run("fit", path, "--out", tmp_path / "no", "--wide", "--layout", "edges")
    assert "--wide and --layout edges contradict each other" in both.stderr
    text = edge_frame().to_csv(index=False)
    piped = run("fit", "-", "--out", tmp_path / "piped", *out[2:], "--json", input=text)
    assert json.loads(piped.stdout)["links"] == len(PAIRS)


def test_folders_and_missing_parents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (".", "..", tmp_path):
        ran = run("fit", folder, "--out", "out")
        assert ran.exit_code == 2
        assert f"Error: {folder} is a directory, not a file. Name a file in it.\n" in ran.stderr
    path = written(tmp_path, "a.csv", edge_frame().to_csv(index=False))
    quick = ("--max-iter", "3", "--inference", "cvb0")
    assert run("fit", path, "--out", "no/such/dir", *quick).exit_code in {0, 1}
    assert (tmp_path / "no/such/dir/rows.csv").exists()
    written(tmp_path, "file", "x")
    ran = run("fit", path, "--out", "file/such/dir", *quick)
    assert ran.exit_code == 2
    assert "file/such/dir cannot be written: its folder is a file. Choose another" in ran.stderr


def test_a_rerun_says_that_it_goes_on(tmp_path):
    path = written(tmp_path, "a.csv", edge_frame().to_csv(index=False))
    reading = read(path)
    stop = IRM(
        inference="cvb0",
        refine=False,
        n_jobs=1,
        random_state=0,
        checkpoint=tmp_path / "out.checkpoint",
        callback=interrupt,
    )
    with pytest.raises(KeyboardInterrupt):
        stop.fit(reading.relation)
    assert (tmp_path / "out.checkpoint").exists()
    options = ("--out", tmp_path / "out", "--inference", "cvb0", "--no-refine")
    ran = run("fit", path, *options)
    assert ran.exit_code in {0, 1}, ran.output
    assert "Note: The fit goes on from" in ran.stderr
    again = run("fit", path, *options, "--force")
    assert "goes on" not in again.stderr


def interrupt(sweep: object) -> None:
    raise KeyboardInterrupt


def test_networks_have_one_table_of_objects(tmp_path):
    path = written(tmp_path, "n.csv", "from,to\na,b\nb,c\nc,a\na,c\n")
    options = ("--out", tmp_path / "out", "--inference", "cvb0", "--json", "--force")
    both = run("fit", path, *options)
    assert "columns.csv" in json.loads(both.stdout)["files"]
    assert (tmp_path / "out" / "columns.csv").exists()
    one = run("fit", path, *options, "--relation", "directed")
    assert "columns.csv" not in json.loads(one.stdout)["files"]
    assert not (tmp_path / "out" / "columns.csv").exists()
    assert "not empty" in run("fit", path, *options[:-1]).stderr


def test_recommendations_are_a_table_on_a_terminal(tmp_path, monkeypatch):
    path = written(tmp_path, "a.csv", edge_frame().to_csv(index=False))
    run("fit", path, "--out", tmp_path / "out", "--inference", "cvb0")
    arguments = ("recommend", tmp_path / "out", "--rows", "p1", "-n", "2")
    assert run(*arguments).stdout.startswith('"row","rank","column","probability","lift"\n')
    monkeypatch.setattr("coblock.ui.cli.new_links.sys", SimpleNamespace(stdout=Terminal()))
    page = run(*arguments).stdout.splitlines()
    assert page[0].split() == ["row", "rank", "column", "probability", "lift"]
    assert page[1].split()[:3] == ["p1", "1", "item"]
    assert '"' not in page[1]


class Terminal:
    def isatty(self) -> bool:
        return True
