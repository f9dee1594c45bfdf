"""Clusters written back to where the data came from: networkx graphs and AnnData."""

import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from coblock.io.atomic import write_whole
from coblock.io.export import object_names
from coblock.model.checks import check_choice

_NOT_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def label_graph(graph: Any, model: Any, attribute: str = "cluster") -> None:
    """Set the cluster of every node of a networkx graph as a node attribute.

    Nodes are found by name (``str(node)``) where the relation has names, else by their order,
    rows before columns. Beside ``attribute`` (the number of the cluster) each node gets
    ``<attribute>_probability`` and, since row and column clusters are counted apart,
    ``<attribute>_side`` ("row" or "column") where the relation is bipartite.

    Parameters
    ----------
    graph : networkx.Graph
        Changed in place.
    model : IRM
        Fitted to the relation of this graph.
    attribute : str
        Name of the attribute.
    """
    check_is_fitted(model)
    nodes = list(graph.nodes)
    sides = ("object",) if model.result_.relation.one_domain else ("row", "column")
    for d, (side, found) in enumerate(zip(sides, _nodes_of(nodes, model), strict=True)):
        label, q = model.result_.labels[d], model.result_.memberships[d]
        for i, node in enumerate(found):
            data = graph.nodes[node]
            data[attribute] = int(label[i])
            data[f"{attribute}_probability"] = float(q[i, label[i]])
            if side != "object":
                data[f"{attribute}_side"] = side


def to_graph(model: Any) -> Any:
    """Return the relation as a networkx graph whose nodes carry their clusters.

    Nodes are called after the objects; where a row and a column have the same name, all get
    ``row`` or ``column`` before it. Attributes of a node: ``name``, ``cluster``,
    ``cluster_probability`` and, in a bipartite relation, ``bipartite`` (0 for rows, 1 for columns).

    Examples
    --------
    >>> import numpy as np
    >>> from coblock import IRM
    >>> graph = to_graph(IRM(random_state=0).fit(np.kron(np.eye(2), np.ones((9, 8)))))
    >>> len(graph), graph.number_of_edges(), sorted(graph.nodes["row 0"])[:2]
    (34, 144, ['bipartite', 'cluster'])
    """
    check_is_fitted(model)
    networkx = _networkx()
    result = model.result_
    relation = result.relation
    graph = networkx.DiGraph() if relation.kind == "directed" else networkx.Graph()
    nodes = _node_names(model)
    for d, (names, label, q) in enumerate(
        zip(nodes, result.labels, result.memberships, strict=True)
    ):
        known = object_names(relation, d)
        for i, node in enumerate(names):
            data = {"name": str(i) if known is None else known[i], "cluster": int(label[i])}
            side = {} if relation.one_domain else {"bipartite": d}
            graph.add_node(node, **data, cluster_probability=float(q[i, label[i]]), **side)
    place = relation.places[0][0]
    rows = np.repeat(np.arange(relation.shape[0]), np.diff(place.link_start))
    ends = zip(rows.tolist(), place.link.tolist(), strict=True)
    graph.add_edges_from((nodes[0][i], nodes[-1][j]) for i, j in ends)
    own = np.flatnonzero(relation.self_link)
    graph.add_edges_from((nodes[0][i], nodes[0][i]) for i in own.tolist())
    return graph


def write_graph(graph: Any, path: str | Path, kind: str = "graphml") -> None:
    """Write a networkx graph as a GraphML or GML file, whole or not at all.

    Characters that XML cannot hold, or would change, become escapes.
    """
    check_choice("kind", kind, ("graphml", "gml"))
    networkx = _networkx()
    clean = networkx.relabel_nodes(graph, {n: _xml_text(n) for n in graph if isinstance(n, str)})
    if len(clean) < len(graph):
        msg = f"{len(graph) - len(clean):,} nodes differ only in characters that XML lacks."
        raise ValueError(msg)
    for _, data in clean.nodes(data=True):
        data.update({key: _xml_text(text) for key, text in data.items() if isinstance(text, str)})
    write = networkx.write_gml if kind == "gml" else networkx.write_graphml
    write_whole(path, lambda temporary: write(clean, temporary))


def label_anndata(adata: Any, model: Any, key: str = "coblock") -> None:
    """Set clusters and their probabilities in ``obs`` and ``var`` of an AnnData object.

    The columns are ``key`` (categorical) and ``<key>_probability``. A one-domain relation is one
    of the observations and leaves ``var`` alone.

    Parameters
    ----------
    adata : anndata.AnnData
        Changed in place; its observations and variables are the model's rows and columns, in
        the same order.
    model : IRM
        Fitted to this object.
    key : str
        Name of the columns.
    """
    check_is_fitted(model)
    import pandas as pd  # AnnData's own tables

    relation = model.result_.relation
    sides = [("observations", adata.obs), ("variables", adata.var)][: len(relation.sizes)]
    for d, (what, table) in enumerate(sides):
        _check_same_objects(what, [str(name) for name in table.index], model, d)
    for (_, table), label, q in zip(
        sides, model.result_.labels, model.result_.memberships, strict=True
    ):
        clusters = pd.Categorical(label, categories=range(q.shape[1]))
        table[key] = clusters.rename_categories([str(k) for k in range(q.shape[1])])
        table[f"{key}_probability"] = q[np.arange(label.size), label]


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        msg = "Graphs need networkx, which is not installed: pip install 'coblock[graphs]'"
        raise ImportError(msg) from error
    return networkx


def _node_names(model: Any) -> list[list[str]]:
    """Return for each domain what the nodes of its objects are called."""
    relation = model.result_.relation
    names = []
    for d, size in enumerate(relation.sizes):
        known = object_names(relation, d)
        names.append([str(i) for i in range(size)] if known is None else list(known))
    if len(names) == 1 or not set(names[0]) & set(names[1]):
        return names
    sides = zip(("row", "column"), names, strict=True)
    return [[f"{side} {name}" for name in side_names] for side, side_names in sides]


def _xml_text(text: str) -> str:
    return _NOT_XML.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def _nodes_of(nodes: list[Hashable], model: Any) -> list[list[Hashable]]:
    """Return the node of each object, for each domain."""
    relation = model.result_.relation
    names = [object_names(relation, d) for d in range(len(relation.sizes))]
    if all(known is None for known in names):
        if len(nodes) != sum(relation.sizes):
            msg = (
                f"The graph has {len(nodes):,} nodes, but the model {sum(relation.sizes):,} "
                "objects without names. Pass the graph that the relation was made from."
            )
            raise ValueError(msg)
        return [nodes[: relation.sizes[0]], nodes[relation.sizes[0] :]][: len(names)]
    by_name = {str(node): node for node in nodes}
    if len(by_name) < len(nodes):
        msg = (
            f"{len(nodes) - len(by_name):,} of {len(nodes):,} nodes have the text of another node "
            "as their name. Rename them with networkx.relabel_nodes."
        )
        raise ValueError(msg)
    known = [_checked_names(side, by_name) for side in names]
    both = sorted(set(known[0]) & set(known[1])) if len(known) == 2 else []
    if both:
        msg = (
            f"{len(both):,} nodes are a row and a column of the model at once; the first is "
            f"{both[0]!r}. A node carries one cluster only: give the two sides names of their own."
        )
        raise ValueError(msg)
    return [[by_name[name] for name in side] for side in known]


def _checked_names(names: Sequence[str] | None, by_name: dict[str, Hashable]) -> Sequence[str]:
    if names is None:
        msg = (
            "Rows or columns of the model have no names, so that their nodes cannot be found. Give "
            "Relation.build both row_names and column_names."
        )
        raise ValueError(msg)
    missing = [name for name in names if name not in by_name]
    if missing:
        msg = (
            f"{len(missing):,} of {len(names):,} objects of the model are no nodes of the graph; "
            f"the first is {missing[0]!r}. Pass the graph that the relation was made from."
        )
        raise ValueError(msg)
    return names


def _check_same_objects(what: str, index: list[str], model: Any, d: int) -> None:
    relation = model.result_.relation
    size, names = relation.sizes[d], object_names(relation, d)
    if len(index) != size:
        msg = f"There are {len(index):,} {what}, but the model was fitted to {size:,}."
        raise ValueError(msg)
    if names is None:
        return
    wrong = [i for i, (here, there) in enumerate(zip(index, names, strict=True)) if here != there]
    if wrong:
        msg = (
            f"{len(wrong):,} of {size:,} {what} have other names than in the model; the first is "
            f"{index[wrong[0]]!r}, where the model has {names[wrong[0]]!r}. Bring them in "
            "the order of the fit."
        )
        raise ValueError(msg)
