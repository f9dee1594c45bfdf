"""Data of several relations: inputs of all kinds, names, new objects, and bad input."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from coblock import MultiIRM, Relation
from coblock.io.listing import list_cells
from coblock.io.tables import build_dataset
from coblock.model.dataset import find_objects
from coblock.model.likelihoods import first_wrong
from coblock.model.likelihoods.categorical import Categorical
from coblock.model.likelihoods.poisson import Poisson

pytestmark = pytest.mark.usefixtures("short_chains_in_file")


@pytest.fixture(scope="module")
def model():
    orders = [(f"u{i}", f"i{j}", 4) for i in range(8) for j in range(6) if i % 2 == j % 2]
    bought = Relation(orders, ["user", "item"], value=2, likelihood="poisson")
    return MultiIRM(random_state=0).fit({"bought": bought})


def relation_of(rows, places=("a", "b"), **options):
    return Relation(rows, list(places), **options)


def counts_with(exposure):
    rows = [("p", "q", 1), ("r", "q", 3)]
    return Relation(rows, ["a", "b"], value=2, likelihood="poisson", exposure=exposure)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: relation_of([("x", "y", -1)], value=2, likelihood="poisson"),
            r"^Relation 'r': 1 of 1 values are not counts .* in row 1, cell \(a='x', b='y'\)",
        ),
        (
            lambda: relation_of([("x", "y", "z")], value=2, likelihood="normal"),
            r"1 of 1 values are not numbers; .* 'z'.* in row 1, cell \(a='x', b='y'\)",
        ),
        (
            lambda: relation_of([("x", "y", 1), ("x", "y", 2)], value=2, likelihood="poisson"),
            "1 of 2 rows repeat a cell with another value; the first is row 2",
        ),
        (
            lambda: relation_of([("x", "y")], unseen=(np.array(["x"]), np.array(["y"]))),
            "1 of 1 unseen cells are listed with a value, too",
        ),
        (lambda: relation_of([("x", "y", 2)], value=2), "neither 0 nor 1"),
        (
            lambda: relation_of([("x", None)]),
            "names at place 'b' are missing; the first is in row 1",
        ),
        (lambda: relation_of([("x",)]), "not tuples of 2 entries"),
        (lambda: relation_of([("x", "y")], symmetric=True), "exactly two places of one domain"),
        (lambda: relation_of([("x", "y")], likelihood="gauss"), "likelihood"),
        (lambda: relation_of([("x", "y")], exposure=[np.ones(1), None]), "exposure is for counts"),
        (lambda: Relation(np.zeros((2, 2)), ["a"]), "2 places, but 1 are named"),
        (
            lambda: Relation(np.zeros((2, 3)), ["a", "b"], unseen=(np.array([0]), np.array([3]))),
            "object at place 'b' beyond 0 to 2; the first is 3",
        ),
        (lambda: Relation([("x", "x")], ["a", "a"]), "Name the places"),
        (
            lambda: relation_of(
                [("x", "y", 0)], value=2, likelihood="poisson", unseen=[("x", "y")]
            ),
            r"listed with a value, too; the first is row 1 of unseen, \(a='x', b='y'\)",
        ),
        (lambda: relation_of([("x", "y")], unseen=(["x"], ["y", "z"])), r"lengths are \[1, 2\]"),
        (lambda: relation_of([("x", "y")], unseen=(["x"],)), r"lengths are \[1\]"),
        (lambda: relation_of([("x", "y")], unseen=np.eye(2)), "but the data are named"),
        (lambda: relation_of([("x", "y")], likelihood="categorical"), "needs values"),
        (lambda: relation_of([("x", "y")], likelihood=3), "likelihood must be one of"),
        (lambda: relation_of([("x", "y")], symmetric="no"), "symmetric must be True or False"),
        (lambda: relation_of([("x", "y", 1)], value=3), "position of the values in a tuple"),
        (lambda: relation_of([("x", "y", 1)], value="n"), "position of the values in a tuple"),
        (lambda: Relation(np.eye(2), ["a", "b"], value="n"), "an array holds its values"),
        (
            lambda: relation_of([("x", "y")], likelihood="poisson", exposure=[None]),
            "1 entries for 2 places",
        ),
        (
            lambda: relation_of(
                [("x", "y", 1), ("z", "y", 2), ("x", "y", None)], value=2, likelihood="poisson"
            ),
            r"too; the first is row 3, which has no value, \(a='x', b='y'\)",
        ),
        (
            lambda: relation_of([("x", "y")], unseen=[("x", "z")], absent="unseen"),
            "not listed are unseen already",
        ),
        (lambda: Relation(np.eye(2) * 1j, ["a", "b"], likelihood="normal"), "4 values are complex"),
        (
            lambda: Relation(np.array([1e200, -1e300]), ["a"], likelihood="normal"),
            r"too large .* the largest is -1e\+300",
        ),
        (
            lambda: relation_of([("x", "y", 1), ("z", "y", 1e16)], value=2, likelihood="poisson"),
            r"1 of 2 values are counts above .* the largest is 1e\+16.* in row 2, cell \(a='z'",
        ),
        (
            lambda: relation_of([("x", "y")], likelihood="poisson", exposure=2.0),
            "exposure is 2.0 for 2 places",
        ),
        (
            lambda: relation_of([("x", "y")], likelihood="poisson", exposure={"b": [np.inf]}),
            "1 of 1 exposures of place 'b' are not positive and finite.*that of 0",
        ),
        (
            lambda: relation_of([("x", "y")], likelihood="poisson", exposure={"b": {"y": -1}}),
            "1 of 1 exposures of place 'b' are not positive and finite.*that of 'y'",
        ),
        (
            lambda: relation_of(
                [("x", str(i), str(i)) for i in range(1001)], value=2, likelihood="categorical"
            ),
            "1,001 categories.*for numbers.$",
        ),
        (
            lambda: counts_with({"a": ["x", "y"]}),
            r"2 of 2 exposures of place 'a' are not .* numbers; the first is that of 0. Correct",
        ),
        (lambda: counts_with({"a": [np.nan, 1]}), "1 of 2 exposures of place 'a'"),
        (lambda: counts_with({"a": np.ones((2, 1))}), "place 'a' have 2 dimensions"),
        (lambda: counts_with({"a": 3}), "place 'a' have 0 dimensions"),
        (lambda: counts_with({"a": pd.Series([1, 2], ["p", "p"])}), "name an object twice"),
        (
            lambda: counts_with({"a": [1e300, 1], "b": {"q": 1e300}}),
            "which are products, range from 1e300 to 1e600",
        ),
        (
            lambda: Relation(pd.DataFrame([["p", "q", "s"]], columns=list("abb")), ["a", "b"]),
            "1 column name occurs more than once; the first is 'b'",
        ),
        (
            lambda: Relation(pd.DataFrame({"a": "p", "b": ["q"]}), ["a", "b"], value="b"),
            "value is 'b', which is a place",
        ),
        (
            lambda: Relation(np.array([["p", "likes", "q"], ["q", "likes", "r"]]), list("abc")),
            r"an axis for each place, and 3 are named.*shape \(2, 3\).*data.tolist\(\)",
        ),
        (lambda: relation_of([("x", "y")], symmetric=[True]), "symmetric must be True or False"),
    ],
)
def test_bad_relations_are_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        MultiIRM().fit({"r": make()})
    assert "elation 'r'" in str(caught.value) or "Name the places" in sentence


def test_wrong_names_are_refused_in_a_sentence():
    with pytest.raises(TypeError, match="must be a dict"):
        MultiIRM().fit([1])
    with pytest.raises(TypeError, match="name of a relation must be a text"):
        MultiIRM().fit({1: relation_of([("x", "y")])})
    with pytest.raises(TypeError, match="name of a relation must be a text"):
        MultiIRM().fit({"": relation_of([("x", "y")])})
    with pytest.raises(TypeError, match=r"is the class Poisson. Pass Poisson\(\)"):
        MultiIRM().fit({"r": relation_of([("x", "y")], likelihood=Poisson)})
    with pytest.raises(TypeError, match="places must be a list of domains"):
        Relation([("x", "y")], "user")
    for places in ({0: "a", 1: "b"}, {"a": 0, "b": 1}, ["", "b"], [["a"], "b"]):
        with pytest.raises(TypeError, match=r"named by texts, but .* is among them"):
            Relation([("x", "y")], places)


def test_bad_data_sets_are_refused_in_a_sentence(model):
    square = Relation(np.zeros((3, 4)), {"a": "x", "b": "x"})
    with pytest.raises(ValueError, match="different numbers of objects: 3 at place 'a'"):
        build_dataset({"r": square})
    with pytest.raises(ValueError, match="has names at place 'y' of relation 's', but positions"):
        build_dataset(
            {
                "r": Relation(np.zeros((3, 4)), ["x", "y"]),
                "s": relation_of([("p", "q")], ("z", "y")),
            }
        )
    with pytest.raises(ValueError, match=r"no objects: there is no cell at place 'a' of .* 'r'"):
        build_dataset({"r": relation_of([])})
    with pytest.raises(ValueError, match=r"'a' has 2 objects, but no observed cell .* 'r'"):
        build_dataset({"r": Relation(np.full((2, 2), np.nan), ["a", "b"], likelihood="normal")})
    pair = {"a": "x", "b": "x"}
    twice = Relation([("p", "q", 1), ("q", "p", 2)], pair, value=2, likelihood="poisson")
    build_dataset({"r": twice})
    for more, what in (({}, "two different values"), ({"absent": "unseen"}, "different values")):
        rows = [("p", "q", 1), ("q", "p", 2)]
        twice = Relation(rows, pair, value=2, likelihood="poisson", symmetric=True, **more)
        with pytest.raises(ValueError, match=f"{what}; the first is .a='p', b='q'"):
            build_dataset({"r": twice})
    both = Relation([("p", "q")], pair, symmetric=True, unseen=[("q", "p")])
    with pytest.raises(ValueError, match="1 unseen pairs are listed with a value, too"):
        build_dataset({"r": both})
    with pytest.raises(ValueError, match="no place 'colour'"):
        model.predict("bought", user="u0", colour="i0")
    with pytest.raises(
        ValueError, match="'user' of relation 'bought' are unknown; the first is 'u99'"
    ):
        model.predict("bought", user="u99", item="i0")
    with pytest.raises(ValueError, match="There is no relation 'sold'"):
        model.predict("sold", user="u0", item="i0")
    with pytest.raises(
        ValueError, match=r"relation 'bought' do not broadcast .*user .2,., item .3,"
    ):
        model.predict("bought", user=["u0", "u1"], item=["i0", "i1", "i2"])
    with pytest.raises(ValueError, match=r"'bought' has no place 'colour'. Its places are: user"):
        model.rank("bought", colour="u0")
    with pytest.raises(ValueError, match=r"rank needs one object .* and user, item are given"):
        model.rank("bought", user="u0", item="i0")
    with pytest.raises(ValueError, match="'user' of relation 'bought' are lists of different"):
        model.predict("bought", user=[["u0"], ["u1", "u2"]], item="i0")
    with pytest.raises(ValueError, match=r"Relation 'bought': .* not counts .* in row 2"):
        model.score("bought", {"user": ["u0", "u1"], "item": "i0"}, [1, -1])
    with pytest.raises(ValueError, match="0 values for 0 cells of relation 'bought'"):
        model.score("bought", {"user": [], "item": []}, [])
    with pytest.raises(ValueError, match="likelihood='poisson', but user, item and 'bernoulli'"):
        model.assign("user", {"bought": Relation([("new", "i0")], ["user", "item"])})
    known = Relation([("u0", "i0")], ["user", "item"], likelihood="poisson")
    with pytest.raises(ValueError, match="has a new object of 'user'"):
        model.assign("user", {"bought": known})


def test_a_relation_is_read_when_its_name_is_known(tmp_path):
    wrong = relation_of([("x", "y", -1)], value=2, likelihood="poisson")
    assert repr(wrong) == "Relation(a, b), not read yet"
    for name in ("first", "second"):
        with pytest.raises(ValueError, match=f"^Relation '{name}': 1 of 1 values are not counts"):
            MultiIRM().fit({name: wrong})
    path = tmp_path / "cells.csv"
    with pytest.raises(FileNotFoundError, match=r"^Relation 'r', file .*cells.csv: There is no"):
        MultiIRM().fit({"r": Relation(path, ["a", "b"])})
    path.write_text("a,b\nx,y\n")
    with pytest.raises(ValueError, match=r"^Relation 'r', file .*: There is no column 'c' in data"):
        MultiIRM().fit({"r": Relation(path, ["a", "c"])})
    hidden = relation_of([("x", "y")], unseen=[("x", "y", "z")])
    with pytest.raises(ValueError, match=r"^Relation 'r': 1 of 1 rows are not tuples of 2"):
        MultiIRM().fit({"r": hidden})
    once = relation_of(iter([("x", "y"), ("z", "y")]))
    assert once.read("r") is once.read("r")
    assert repr(once) == "Relation(a, b): 2 cells, bernoulli, others are zeros"


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_of_a_file_is_found_by_its_places(tmp_path, delimiter, suffix):
    path = tmp_path / f"cells.{suffix}"
    rows = [("user", "the item, or its name", "often"), ("ann", '"tea; milk, hot"', "3")]
    path.write_text("\ufeff" + "".join(quote_row(row, delimiter) for row in rows))
    table = list_cells(path, {"user": "user", "the item, or its name": "item"}, "often")
    assert [list(objects) for objects in table.objects] == [["ann"], ["tea; milk, hot"]]
    assert list(table.values) == [3]


def quote_row(row: tuple[str, ...], delimiter: str) -> str:
    return delimiter.join(field if field[0] == '"' else f'"{field}"' for field in row) + "\n"


@pytest.mark.parametrize("wrong", [[0], [6], [3, 5], [2, 3], range(7), []])
def test_the_first_wrong_value_is_found(wrong):
    values = np.ones(7)
    values[list(wrong)] = -1
    assert first_wrong(Poisson(), values) == (min(wrong) if wrong else None)
    many = [str(i) for i in range(1001)]
    assert first_wrong(Categorical(), many) is None  # none is wrong by itself


def test_a_missing_answer_is_no_category():
    answers = ["yes", "no", np.nan]
    for column in (answers, pd.Categorical(answers), ["yes", "no", None]):
        frame = pd.DataFrame({"a": list("pqr"), "b": "x", "v": column})
        found = Relation(frame, ["a", "b"], value="v", likelihood="categorical").read("r")
        assert found.likelihood.categories == ("no", "yes")
        assert found.values.tolist() == [1, 0]


def test_whole_numbers_of_a_float_column_are_the_same_categories():
    rows = [("p", "x", 1.0), ("q", "x", np.float32(2)), ("r", "x", np.nan), ("s", "x", 1.5)]
    found = relation_of(rows, value=2, likelihood="categorical").read("r")
    assert found.likelihood.categories == ("1", "1.5", "2")
    assert found.likelihood.encode([2, 1, "2"]).tolist() == [2, 0, 2]


def test_pairs_that_are_listed_in_both_orders_are_counted():
    rows = [("p", "q"), ("q", "p"), ("q", "p"), ("p", "r")]
    pair = {"a": "x", "b": "x"}
    for order in (rows, rows[::-1]):
        calls = Relation(order, pair, likelihood="poisson", symmetric=True)
        table = build_dataset({"calls": calls}).tables[0]
        assert sorted(table.values.tolist()) == [1, 3]
    directed = build_dataset({"calls": Relation(rows, pair, likelihood="poisson")}).tables[0]
    assert directed.values.tolist() == [1, 2, 1]


def test_symmetric_places_may_follow_others():
    rows = [("mon", "p", "q"), ("tue", "q", "p"), ("mon", "p", "r"), ("mon", "q", "p")]
    places = {"day": "day", "a": "x", "b": "x"}
    calls = Relation(rows, places, likelihood="poisson", symmetric=True)
    data = build_dataset({"calls": calls})
    names = dict(zip(data.domain_names, (domain.names for domain in data.domains), strict=True))
    assert names == {"x": ("p", "q", "r"), "day": ("mon", "tue")}
    assert sorted(data.tables[0].values.tolist()) == [1, 1, 2]


def test_cells_with_an_object_twice_are_left_out_with_a_warning():
    pair = {"a": "x", "b": "x"}
    rows = [("p", "p"), ("p", "q"), ("r", "q")]
    with pytest.warns(UserWarning, match="1 of 3 cells of relation 'r' have an object twice"):
        data = build_dataset({"r": Relation(rows, pair)})
    assert len(data.tables[0].cells) == 2
    for diagonal, left in (("unseen", 2), ("seen", 3)):
        data = build_dataset({"r": Relation(rows, pair, diagonal=diagonal)})  # no warning
        assert len(data.tables[0].cells) == left


def test_warnings_about_data_point_to_the_call_of_fit():
    hidden = relation_of([("p", "q"), ("r", "s")], unseen=[("p", "t")])
    loop = Relation([("p", "p"), ("p", "q")], {"a": "x", "b": "x"})
    for relation in (hidden, loop):
        with pytest.warns(UserWarning, match="relation 'r'") as caught:
            MultiIRM(random_state=0).fit({"r": relation})
        assert caught[0].filename == __file__


def test_places_may_have_the_names_of_parameters():
    facts = [("ann", "knows", "bob"), ("bob", "knows", "ann"), ("ann", "likes", "tea")]
    places = {"self": "thing", "relation": "verb", "tail": "thing"}
    model = MultiIRM(random_state=0).fit({"facts": Relation(facts, places)})
    given = {"self": "ann", "relation": "knows"}
    assert model.predict("facts", **given, tail=["bob", "tea"]).shape == (2,)
    assert len(model.rank("facts", **given, n=2)) == 2


def test_counts_that_are_given_again_are_left_out_with_a_warning():
    rows = [("p", "q", 1), ("p", "q", 1), ("r", "q", 1)]
    again = relation_of(rows, value=2, likelihood="poisson")
    with pytest.warns(UserWarning, match="1 rows of relation 'r' give the count of a cell again"):
        data = build_dataset({"r": again})
    assert data.tables[0].values.tolist() == [1, 1]
    warnings.simplefilter("error")
    for how in ({}, {"value": 2}, {"value": 2, "likelihood": "normal"}):  # no counts
        build_dataset({"r": relation_of([row[: 2 + bool(how)] for row in rows], **how)})


def test_a_relation_without_observed_cells_is_noted():
    rows = [("p", "q", 1), ("r", "s", 2)]
    counts = relation_of(rows, value=2, likelihood="poisson")
    empty = relation_of([("p", "q", None)], value=2, likelihood="normal")
    with pytest.warns(UserWarning, match="Relation 's' has no observed cell"):
        MultiIRM(random_state=0).fit({"r": counts, "s": empty})


def test_a_name_that_only_unseen_cells_have_is_an_object_with_a_warning():
    relation = relation_of([("p", "q"), ("r", "s")], unseen=[("p", "t")])
    with pytest.warns(UserWarning, match="1 objects of domain 'b' .* 't' at place 'b' of .* 'r'"):
        data = build_dataset({"r": relation})
    assert data.domains[1].names == ("q", "s", "t")
    assert data.tables[0].unseen.tolist() == [[0, 2]]


def test_objects_without_stored_cells_stay_objects():
    import networkx as nx

    rows = [("p", "q", 1), ("r", "s", 0), ("t", "q", None)]
    data = build_dataset({"r": relation_of(rows, value=2, likelihood="poisson")})
    assert [domain.names for domain in data.domains] == [("p", "r", "t"), ("q", "s")]
    graph = nx.Graph([("p", "q")])
    graph.add_node("alone")
    data = build_dataset({"r": Relation(graph, {"a": "x", "b": "x"})})
    assert data.domains[0].names == ("p", "q", "alone")


def test_inputs_of_all_kinds():
    import networkx as nx
    import polars as pl

    cube = np.array([[[1, 0], [0, 0]], [[0, 1], [1, 0]]])
    places = ["a", "b", "c"]
    stored = sparse.coo_array(cube)
    for relation in (
        Relation(cube, places),
        Relation(stored, places),
        Relation(np.ma.masked_array(np.maximum(cube, 1), cube == 0), places),
    ):
        assert np.stack(relation.read("r").objects).T.tolist() == np.argwhere(cube).tolist()
    masked = Relation(np.ma.masked_array(np.eye(2), [[0, 1], [0, 0]]), ["a", "b"])
    assert np.stack(masked.read("r").unseen).tolist() == [[0], [1]]
    words = np.array([["x", "y"], ["y", None]], dtype=object)
    assert Relation(words, ["a", "b"], likelihood="categorical").read("r").values.tolist() == [
        0,
        1,
        1,
    ]
    frame = pd.DataFrame({"a": ["p", "q"], "b": [1.0, 2.0], "n": pd.array([1, None], "Int64")})
    counts = Relation(frame, ["a", "b"], value="n", likelihood="poisson").read("r")
    assert [each.tolist() for each in (*counts.objects, *counts.unseen)] == [
        ["p"],
        ["1"],
        ["q"],
        ["2"],
    ]
    frame["a"] = [pd.NA, "q"]
    with pytest.raises(ValueError, match="names at place 'a' are missing"):
        Relation(frame, ["a", "b"]).read("r")
    lazy = pl.LazyFrame({"a": ["p"], "b": ["q"]})
    for data in (lazy, {("p", "q")}, iter([("p", "q")]), nx.DiGraph([("p", "q")])):
        assert [each.tolist() for each in Relation(data, ["a", "b"]).read("r").objects] == [
            ["p"],
            ["q"],
        ]
    unseen = Relation(np.eye(2), ["a", "b"], unseen=np.array([[0, 1], [0, 0]]))
    assert np.stack(unseen.read("r").unseen).tolist() == [[0], [1]]


def test_repeated_cells_of_a_sparse_matrix_are_added_up():
    repeated = sparse.coo_array((np.array([200, 200], np.uint8), ([0, 0], [1, 1])), shape=(2, 2))
    found = Relation(repeated, ["a", "b"], likelihood="poisson").read("r")
    assert found.values.tolist() == [400]
    assert repeated.nnz == 2  # the matrix of the user is not changed


def test_graphs_that_do_not_fit_are_refused():
    import networkx as nx

    graph = nx.Graph([("u", "i"), ("j", "u")])
    with pytest.raises(ValueError, match=r"2 of 2 edges do not join a node with .* bipartite=0"):
        Relation(graph, ["user", "item"]).read("r")
    nx.set_node_attributes(graph, {"u": 0, "i": 1, "j": 1}, "bipartite")
    found = Relation(graph, ["user", "item"]).read("r")
    assert [each.tolist() for each in found.objects] == [["u", "u"], ["i", "j"]]
    pair = {"a": "x", "b": "x"}
    with pytest.raises(ValueError, match="No edge of the graph has an attribute 'weight'"):
        Relation(graph, pair, value="weight", likelihood="poisson").read("r")
    with pytest.raises(ValueError, match="The graph is undirected"):
        Relation(graph, pair, symmetric=False).read("r")


def test_whole_numbers_are_names_where_objects_are_named_by_numbers():
    rows = [(i, 7 + i % 2) for i in (3, 2, 1, 0)]
    data = build_dataset({"r": relation_of(rows)})
    assert find_objects(data, data.tables[0], 0, [3, 0]).tolist() == [0, 3]
    assert find_objects(data, data.tables[0], 1, 8.0).tolist() == 0
    data = build_dataset({"r": relation_of([("p", "q"), ("r", "q")])})
    assert find_objects(data, data.tables[0], 0, [1]).tolist() == [1]


def test_exposures_by_name_are_those_by_position():
    rows = [("p", "q", 1), ("r", "q", 3)]
    by_name = {"a": {"r": 2.0, "p": 0.5}}
    tables = [
        build_dataset(
            {"r": relation_of(rows, value=2, likelihood="poisson", exposure=exposure)}
        ).tables[0]
        for exposure in (
            by_name,
            {"a": [0.5, 2.0]},
            {"a": pd.Series([0.5, 2.0])},
            {"a": pd.Series(by_name["a"])},  # names of a Series are those of objects
        )
    ]
    for table in tables:
        assert table.exposures[0].tolist() == [0.5, 2.0]
    lost = relation_of(rows, value=2, likelihood="poisson", exposure={"a": {"p": 1.0}})
    with pytest.raises(ValueError, match="Relation 'r', place 'a': that of 'r' is missing"):
        build_dataset({"r": lost})


def test_new_objects_of_arrays_and_their_unseen_cells_are_assigned():
    X = np.kron([[4, 0], [0, 4]], np.ones((6, 5), int))
    places, how = ["a", "b"], {"likelihood": "poisson"}
    model = MultiIRM(random_state=0).fit({"r": Relation(X, places, **how)})
    labels = model.domains_["a"].labels
    found = model.assign("a", {"r": Relation(X[[0, 7]].astype(float), places, **how)})
    assert [found[row].argmax() for row in (0, 1)] == [labels[0], labels[7]]
    rows = [("new", j, 4 if j < 2 else None) for j in range(5)]
    new = model.assign("a", {"r": Relation(rows, places, value=2, **how)})["new"]
    zeros = [(*row[:2], row[2] or 0) for row in rows]
    other = model.assign("a", {"r": Relation(zeros, places, value=2, **how)})["new"]
    assert new[labels[0]] > other[labels[0]]
    nothing = [("new", j, 0) for j in range(5)]
    assert "new" in model.assign("a", {"r": Relation(nothing, places, value=2, **how)})


def test_relations_of_new_objects_are_described_as_the_fitted_ones():
    pair = {"who": "user", "whom": "user"}
    names = [f"u{i}" for i in range(12)]
    rows = [(a, b) for i, a in enumerate(names) for j, b in enumerate(names[:i]) if i % 2 == j % 2]
    model = MultiIRM(random_state=0).fit({"knows": Relation(rows, pair, symmetric=True)})
    once = Relation([("new", "u0"), ("new", "u2")], pair, symmetric=True)
    expected = model.assign("user", {"knows": once})["new"]
    more = [("new", "u0"), ("u0", "new"), ("u2", "new"), ("new", "new")]
    found = model.assign("user", {"knows": Relation(more, pair, symmetric=True)})["new"]
    np.testing.assert_array_equal(found, expected)
    for wrong, sentence in (
        (Relation(more, pair), "fitted with symmetric True, but False is given"),
        (Relation(more, pair, symmetric=True, absent="unseen"), "absent zero, but unseen is"),
        (
            Relation(more, {"who": "x", "whom": "x"}, symmetric=True),
            "the domains user, user, but x, x",
        ),
        (
            Relation([("new", "u0"), ("u1", "new")], pair, symmetric=True, unseen=[("u0", "new")]),
            r"unseen pairs are listed with a value, too; the first is \(who='u0', whom='new'\)",
        ),
    ):
        with pytest.raises(ValueError, match=f"Relation 'knows' .*{sentence}"):
            model.assign("user", {"knows": wrong})


def test_new_objects_have_exposures():
    rng = np.random.default_rng(0)
    days = np.repeat([1.0, 10.0], 10)
    rate = np.kron([[1.0, 4.0], [4.0, 1.0]], np.ones((10, 8)))
    X = rng.poisson(rate[np.arange(20) // 2 + 10 * (np.arange(20) % 2)] * days[:, None])
    places, how = ["a", "b"], {"likelihood": "poisson"}
    fitted = Relation(X, places, exposure={"a": days}, **how)
    model = MultiIRM(random_state=0).fit({"r": fitted})
    new = np.repeat([10, 40], 8)[None, :]  # ten days of the first rows
    found = [
        model.assign("a", {"r": Relation(new, places, exposure=each, **how)})[0]
        for each in ({"a": [10.0]}, {"a": [1.0]}, None)
    ]
    assert found[0].argmax() == model.domains_["a"].labels[0]
    assert found[0].max() > 0.99
    assert not np.array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[1], found[2])
    rows = [("new", str(j), int(n)) for j, n in enumerate(new[0])]
    by_name = Relation(rows, places, value=2, exposure={"a": {"new": 10.0}}, **how)
    np.testing.assert_array_equal(model.assign("a", {"r": by_name})["new"], found[0])
    other = Relation(rows, places, value=2, exposure={"a": {"old": 10.0}}, **how)
    with pytest.raises(ValueError, match="place 'a': the exposure of the new object 'new' is not"):
        model.assign("a", {"r": other})
    plain = MultiIRM(random_state=0).fit({"r": Relation(X, places, **how)})
    with pytest.raises(ValueError, match="'r' was fitted without exposure"):
        plain.assign("a", {"r": by_name})


def test_an_unknown_object_or_category_of_a_new_object_is_refused_with_its_cell():
    rows = [(f"p{i}", f"q{j}", "ny"[(i + j) % 2]) for i in range(6) for j in range(4)]
    how = {"value": 2, "likelihood": "categorical"}
    model = MultiIRM(random_state=0).fit({"r": relation_of(rows, **how)})
    new = relation_of([("p9", "q0", "n"), ("p9", "q0", "n"), ("p9", "q1", "maybe")], **how)
    with pytest.raises(
        ValueError, match=r"^Relation 'r': 1 of 3 .* 'maybe'.* in row 3, cell \(a='p9', b='q1'\)"
    ):
        model.assign("a", {"r": new})
    new = relation_of([("p9", "q0", "n"), ("p9", "q8", "y")], **how)
    with pytest.raises(
        ValueError,
        match=r"1 of 2 cells have an unknown object at place 'b' of relation 'r'.*b='q8'",
    ):
        model.assign("a", {"r": new})
