"""Test what is said about clusters against a slow dense definition; names and classes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from coblock.analysis import explain as module
from coblock.analysis.description import compose, describe
from coblock.analysis.explain import (
    Feature,
    describe_certainty,
    describe_structure,
    explain_clusters,
    name_clusters,
    similarity,
)
from coblock.io.export import read_labels, read_names
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result
from coblock.ui.report.markdown import escape, render_markdown
from fabricated import NASTY, one_domain_result, result_of, small_result

KINDS = ["bipartite", "directed", "undirected"]


def drawn_result(kind: str, seed: int, *, self_links: bool = False) -> Result:
    """Return a result of a random relation with unseen cells and random labels."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2, 12))
    columns = rows if kind != "bipartite" else int(rng.integers(1, 12))
    X = (rng.random((rows, columns)) < 0.4).astype(float)
    X[rng.random(X.shape) < 0.2] = np.nan
    if kind != "bipartite" and not self_links:
        np.fill_diagonal(X, 0)
    relation = BinaryRelation.build(
        np.triu(X, 1) if kind == "undirected" else X, kind=kind, self_links=self_links
    )
    sizes = relation.sizes
    labels = [np.unique(rng.integers(0, 3, n), return_inverse=True)[1] for n in sizes]
    return result_of(relation, *labels)


def dense(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """Return links and seen cells of a relation as dense tables."""
    relation = result.relation
    links, seen = np.zeros(relation.shape), np.ones(relation.shape)
    place = relation.incidence[0][0]
    for i in range(relation.shape[0]):
        links[i, place.link[place.link_start[i] : place.link_start[i + 1]]] = 1
        seen[i, place.unseen[place.unseen_start[i] : place.unseen_start[i + 1]]] = 0
    if relation.repeated:
        np.fill_diagonal(links, relation.own_link)
        np.fill_diagonal(seen, relation.own_seen)
    return links, seen


def reference_objects(links, seen, label, k) -> dict[int, tuple[float, float, float]]:
    """Return probability, lift and share of every linked column of cluster k, by definition."""
    found = {}
    mine = label == k
    for j in range(links.shape[1]):
        if links[mine, j].sum() == 0:
            continue
        probability = links[mine, j].sum() / seen[mine, j].sum()
        average = links[:, j].sum() / seen[:, j].sum()
        found[j] = (probability, probability / average, links[mine, j].sum() / links[:, j].sum())
    return found


def ranked(found: dict[int, tuple[float, float, float]], most: int) -> list[int]:
    largest = max((value[0] for value in found.values()), default=0.0)
    kept = [
        (-round(lift, 9), -p, j)
        for j, (p, lift, _) in found.items()
        if lift > 1.0 and p >= module.SUPPORT * largest
    ]
    return [j for _, _, j in sorted(kept)[:most]]


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32 - 1), own=st.booleans())
def test_single_partners_equal_the_dense_definition(kind, seed, own):
    result = drawn_result(kind, seed, self_links=own and kind == "directed")
    links, seen = dense(result)
    for d, profiles in enumerate(explain_clusters(result).profiles):
        label = result.labels[d]
        ways = [(links, seen), (links.T, seen.T)]
        ways = ways[d:] if kind == "bipartite" else ways[: 1 + (kind == "directed")]
        for k, profile in enumerate(profiles):
            assert profile.size == (label == k).sum()
            for way, (cells, observed) in zip(profile.directions, ways, strict=False):
                expected = reference_objects(cells, observed, label, k)
                shown = [part.index for part in way.objects]
                assert shown == ranked(expected, module.OBJECTS_SHOWN)
                for part in [*way.objects, *way.exclusive, *way.shared]:
                    numbers = (part.probability, part.lift, part.share)
                    assert_allclose(numbers, expected[part.index], rtol=1e-12)
                assert all(part.share > 0.5 for part in way.exclusive)
                assert all(part.lift < module.SHARED for part in way.shared)


def test_unseen_cells_counted_as_zeros_would_be_noticed():
    """Negative control: the definition with unseen cells as zeros gives other numbers."""
    noticed = 0
    for seed in range(5):
        result = drawn_result("bipartite", seed)
        links, seen = dense(result)
        wrong = reference_objects(links, np.ones_like(seen), result.labels[0], 0)
        right = reference_objects(links, seen, result.labels[0], 0)
        for part in explain_clusters(result).profiles[0][0].directions[0].objects:
            assert part.probability == pytest.approx(right[part.index][0])
            noticed += part.probability != pytest.approx(wrong[part.index][0])
    assert noticed > 0


@pytest.mark.parametrize("kind", KINDS)
def test_partner_clusters_have_lift_over_the_average_of_the_partner(kind):
    result = small_result() if kind == "bipartite" else one_domain_result(kind)
    p, n, cells = result.block_probability, result.n, result.n + result.N
    for k, profile in enumerate(explain_clusters(result).profiles[0]):
        way = profile.directions[0]
        assert way.verb == "links to"
        for part in way.clusters:
            l = part.index
            twice = np.ones(n.shape[0])
            if kind == "undirected":
                twice[l] = 2.0  # both ends of a pair within the cluster
            average = (twice * n[:, l]).sum() / (twice * cells[:, l]).sum()
            assert part.lift == pytest.approx(p[k, l] / average)
            assert part.probability == pytest.approx(p[k, l])
        lifts = [part.lift for part in way.clusters]
        assert lifts == sorted(lifts, reverse=True)
        assert all(lift > 1.0 for lift in lifts)


def test_directed_clusters_have_both_directions():
    profiles = explain_clusters(one_domain_result("directed")).profiles[0]
    assert [way.verb for way in profiles[0].directions] == ["links to", "linked from"]
    senders = {part.index for part in profiles[2].directions[1].clusters}
    assert 0 in senders  # cluster 0 links to cluster 2, and not the reverse
    assert 0 not in {part.index for part in profiles[2].directions[0].clusters}


@pytest.mark.parametrize("kind", KINDS)
def test_nearest_clusters_have_the_largest_cosine(kind):
    result = small_result() if kind == "bipartite" else one_domain_result(kind)
    p, size = result.block_probability, np.bincount(result.labels[-1])
    vectors = p * np.sqrt(size)
    if kind == "directed":
        vectors = np.hstack((vectors, p.T * np.sqrt(size)))
    for k, profile in enumerate(explain_clusters(result).profiles[0]):
        cosine = [
            (vectors[k] @ v) / np.linalg.norm(vectors[k]) / np.linalg.norm(v) for v in vectors
        ]
        assert_allclose(similarity(result, 0)[k], cosine, rtol=1e-12)
        shown = [value for _, value in profile.nearest]
        assert_allclose(shown, sorted(np.delete(cosine, k), reverse=True), rtol=1e-12)


def test_unsure_members_are_listed_with_their_next_cluster():
    result = small_result()
    q = result.memberships[0].copy()
    i = int(np.flatnonzero(result.labels[0] == 1)[2])
    q[i] = [0.25, 0.4, 0.35]
    sure = np.eye(3)[result.labels[0]]
    sure[i] = q[i]
    profiles = explain_clusters(
        replace(result, memberships=[sure, result.memberships[1]])
    ).profiles[0]
    (unsure,) = profiles[1].unsure
    assert (unsure.index, unsure.other) == (i, 2)
    assert (unsure.certainty, unsure.other_probability) == pytest.approx((0.4, 0.35))
    assert profiles[0].unsure == profiles[2].unsure == []


# Names


def test_names_come_from_the_smaller_domain_and_differ():
    rows, columns = [f"buyer {i}" for i in range(16)], [f"thing {j}" for j in range(12)]
    result = small_result(rows, columns)
    names = name_clusters(result, explain_clusters(result))
    assert all(name.startswith("thing") for side in names for name in side)
    assert [len(set(side)) for side in names] == [3, 2]
    swapped = replace(result, relation=replace(result.relation, row_names=None, column_names=None))
    assert name_clusters(swapped, explain_clusters(swapped))[0][2] == "row cluster 2"


def test_names_do_not_depend_on_the_numbers_of_clusters():
    rng = np.random.default_rng(0)
    X = np.kron(np.eye(4), np.ones((6, 5)))
    relation = BinaryRelation.build(X, column_names=[f"c{j}" for j in range(20)])
    labels = [np.repeat(np.arange(4), 6), np.repeat(np.arange(4), 5)]
    named = []
    for _ in range(3):
        order = rng.permutation(4)
        result = result_of(relation, order[labels[0]], order[labels[1]])
        found = name_clusters(result, explain_clusters(result))[0]
        named.append(
            {name: set(np.flatnonzero(result.labels[0] == k)) for k, name in enumerate(found)}
        )
    assert named[0] == named[1] == named[2]
    assert len(named[0]) == 4


def test_clusters_with_the_same_words_get_numbers():
    X = np.zeros((6, 3))
    X[:3], X[3:, 0] = 1, 1
    relation = BinaryRelation.build(X, column_names=["same", "same", "same"])
    result = result_of(relation, np.repeat([0, 1, 2], 2), np.zeros(3, int))
    names = name_clusters(result, explain_clusters(result))[0]
    assert len(set(names)) == 3


def test_given_names_replace_automatic_ones(tmp_path):
    result = small_result(column_names=[f"thing {j}" for j in range(12)])
    path = tmp_path / "names.csv"
    path.write_text('side,cluster,name\nrow,1,"Odd, ones"\ncolumn,0,\n', encoding="utf-8")
    found = describe(result, names=read_names(path))
    assert found.names[0][1] == "Odd, ones"
    path.write_text("side,cluster,name\nrow,1,'=sum\nrow,2,'tis\n", encoding="utf-8")
    assert read_names(path) == {("row", 1): "=sum", ("row", 2): "'tis"}
    assert found.names[1][0].startswith("thing")
    with pytest.raises(ValueError, match="There is no row cluster 7: the model has 3 row clusters"):
        describe(result, names={("row", 7): "x"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster,name\n1,x\n", "no column 'side'"),
        ("side,cluster,name\nleft,1,x\n", "line 2: side must be row, column or object"),
        ("side,cluster,name\nrow,one,x\n", "line 2: cluster must be a number, but is 'one'"),
        ("", "is not a CSV file with a header"),
    ],
)
def test_wrong_files_of_names_are_refused(tmp_path, text, message):
    path = tmp_path / "names.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_names(path)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_names(tmp_path / "none.csv")


# Known classes


def test_composition_purity_and_rand_index(tmp_path):
    rows = [f"buyer {i}" for i in range(16)]
    result = small_result(rows)
    truth = ["north" if label == 0 else "south" for label in result.labels[0]]
    path = tmp_path / "party.csv"
    lines = [f"{name},{kind}" for name, kind in zip(rows, truth, strict=True)]
    path.write_text("\n".join(["who,party", *lines[:-1], f"{rows[-1]},", "else,x"]), "utf-8")
    made = compose(result, read_labels(path))
    assert (made.domain, made.objects) == (0, 15)
    assert made.purity == 1.0
    assert 0.0 < made.rand_index < 1.0
    assert made.counts.sum() == 15
    assert sorted(made.classes) == ["north", "south"]
    assert made.line(1) in {"5 south", "4 south"}
    mixed = {name: "ab"[i % 2] for i, name in enumerate(rows)}
    assert compose(result, mixed).purity < 1.0


def test_wrong_labels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="None of the 1 names with a class is in the model"):
        compose(small_result(), {"nobody": "x"})
    path = tmp_path / "party.csv"
    for text, message in [
        ("name,class\na,x\na,y\n", "line 3: 'a' has two classes"),
        ("name\na\n", "has one column"),
        ("name,class\na,\n", "no line with a name and a class"),
    ]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            read_labels(path)


# Words


def test_certainty_says_what_it_is_conditional_on():
    result = small_result()
    assert "does not say whether another partition fits as well: fit with" in describe_certainty(
        result
    )
    assert "agree with an adjusted Rand index of 0.70" in describe_certainty(
        replace(result, stability=0.7)
    )
    assert describe_structure(result) is None


def test_features_in_words():
    words = [
        module.describe_feature("use::game", Feature(0, 0.98, 40.2, 0.9)),
        module.describe_feature("rare", Feature(0, 0.00012, 1.26, 0.9)),
    ]
    assert words == ["use::game 98 %, 40 x average", "rare 0.012 %, 1.3 x average"]


def test_markdown_has_every_cluster_and_no_markup_from_names():
    found = describe(small_result(NASTY, NASTY[:12]))
    text = render_markdown(found, title="<b>A | B</b>")
    assert text.startswith("# \\<b\\>A \\| B\\</b\\>\n")
    assert "<img" not in text.replace("\\<img", "")
    for noun, count in (("row", 3), ("column", 2)):
        assert text.count(f"### {noun} cluster ") == count
    assert "| 1 x 1 | -" in text
    assert escape("`*_[x]`") == "\\`\\*\\_\\[x\\]\\`"
