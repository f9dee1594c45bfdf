"""Clusters as annotations of the source of the data: networkx graphs and AnnData."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from coblock.io import refuse
from coblock.io.atomic import write_atomic
from coblock.io.export import object_names
from coblock.io.readers.edges import import_networkx
from coblock.model.checks import check_choice
from coblock.model.relation import BinaryRelation

__all__ = ["label_anndata", "label_graph", "to_graph", "write_graph"]

_NOT_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def label_graph(graph: Any, model: Any, attribute: str = "cluster") -> None:
    """Set the clusters of an IRM fitted to a networkx graph as node attributes of that graph.

    Nodes are found by name (``str(node)``) if the relation has names, otherwise by their order,
    rows before columns. Each node gets ``attribute`` (the number of the cluster) and
    ``<attribute>_probability``. In a bipartite relation, where row and column clusters are numbered
    separately, it also gets ``<attribute>_side`` ("row" or "column").
    """
    check_is_fitted(model)
    result = model.result_
    for d, nodes in enumerate(_find_nodes(list(graph.nodes), result.relation)):
        label = result.labels[d]
        probability = result.memberships[d][np.arange(label.size), label]
        for node, cluster, p in zip(nodes, label.tolist(), probability.tolist(), strict=True):
            graph.nodes[node].update({attribute: cluster, f"{attribute}_probability": p})
            if not result.relation.repeated:
                graph.nodes[node][f"{attribute}_side"] = ("row", "column")[d]


def to_graph(model: Any) -> Any:
    """Return the relation as a networkx graph whose nodes have their clusters as attributes.

    Nodes are named after the objects. If a row and a column have the same name, all nodes get the
    prefix ``row`` or ``column``. Attributes of a node: ``name``, ``cluster``,
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
    networkx, result = import_networkx(), model.result_
    relation = result.relation
    numbers = [tuple(map(str, range(size))) for size in relation.sizes]
    names = [object_names(relation, d) or numbers[d] for d in range(len(numbers))]
    nodes = names
    if len(names) == 2 and set(names[0]) & set(names[1]):
        nodes = [[f"row {name}" for name in names[0]], [f"column {name}" for name in names[1]]]
    graph = networkx.DiGraph() if relation.kind == "directed" else networkx.Graph()
    for d, (label, q) in enumerate(zip(result.labels, result.memberships, strict=True)):
        side = {} if relation.repeated else {"bipartite": d}
        for i, node in enumerate(nodes[d]):
            data = {"name": names[d][i], "cluster": int(label[i])}
            graph.add_node(node, **data, cluster_probability=float(q[i, label[i]]), **side)
    place = relation.incidence[0][0]
    rows = np.repeat(np.arange(relation.shape[0]), np.diff(place.link_start))
    ends = zip(rows.tolist(), place.link.tolist(), strict=True)
    graph.add_edges_from((nodes[0][i], nodes[-1][j]) for i, j in ends)
    self_linked = np.flatnonzero(relation.own_link)
    graph.add_edges_from((nodes[0][i], nodes[0][i]) for i in self_linked.tolist())
    return graph


def write_graph(graph: Any, path: str | Path, kind: Literal["graphml", "gml"] = "graphml") -> None:
    """Write a networkx graph as a GraphML or GML file, completely or not at all.

    Characters that XML cannot hold, or would change, become escapes.
    """
    check_choice("kind", kind, ("graphml", "gml"))
    networkx = import_networkx()
    clean = networkx.relabel_nodes(graph, {n: _xml_text(n) for n in graph if isinstance(n, str)})
    if len(clean) < len(graph):
        refuse(f"{len(graph) - len(clean):,} nodes differ only in characters that XML lacks.")
    for _, data in clean.nodes(data=True):
        data.update({key: _xml_text(text) for key, text in data.items() if isinstance(text, str)})
    write = networkx.write_gml if kind == "gml" else networkx.write_graphml
    write_atomic(path, lambda temporary: write(clean, temporary))


def label_anndata(adata: Any, model: Any, key: str = "coblock") -> None:
    """Set clusters and their probabilities in ``obs`` and ``var`` of an AnnData object.

    Its observations and variables must be the rows and columns of the fitted IRM, in the same
    order. The new columns are ``key`` (categorical) and ``<key>_probability``. The objects of a
    one-domain relation are the observations; ``var`` is not changed.
    """
    check_is_fitted(model)
    import pandas as pd  # AnnData depends on it

    result = model.result_
    tables = [adata.obs, adata.var][: len(result.relation.sizes)]
    for d, table in enumerate(tables):
        _check_same_objects([str(name) for name in table.index], result.relation, d)
    for table, label, q in zip(tables, result.labels, result.memberships, strict=True):
        clusters = range(int(label.max()) + 1)
        categories = pd.Categorical(label, categories=clusters)
        table[key] = categories.rename_categories([str(k) for k in clusters])
        table[f"{key}_probability"] = q[np.arange(label.size), label]


def _xml_text(text: str) -> str:
    return _NOT_XML.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def _find_nodes(nodes: list[Hashable], relation: BinaryRelation) -> list[list[Hashable]]:
    """Return the nodes of the objects of each domain."""
    names = [object_names(relation, d) for d in range(len(relation.sizes))]
    if all(known is None for known in names):
        if len(nodes) != sum(relation.sizes):
            refuse(
                f"The graph has {len(nodes):,} nodes, but the model {sum(relation.sizes):,} "
                "objects without names. Pass the graph that the relation was made from."
            )
        return [nodes[: relation.sizes[0]], nodes[relation.sizes[0] :]][: len(names)]
    by_name = {str(node): node for node in nodes}
    if len(by_name) < len(nodes):
        refuse(
            f"{len(nodes) - len(by_name):,} of {len(nodes):,} nodes have the text of another node "
            "as their name. Rename them with networkx.relabel_nodes."
        )
    found: list[list[Hashable]] = []
    for known in names:
        if known is None:
            refuse(
                "Rows or columns of the model have no names, so their nodes cannot be found. Give "
                "Relation.build both row_names and column_names."
            )
        missing = [name for name in known if name not in by_name]
        if missing:
            refuse(
                f"{len(missing):,} of {len(known):,} objects of the model are not nodes of the "
                f"graph; the first is {missing[0]!r}. Pass the graph that the relation was made "
                "from."
            )
        found.append([by_name[name] for name in known])
    column_nodes = set(found[1]) if len(found) == 2 else set()
    shared = [str(node) for node in found[0] if node in column_nodes]
    if shared:
        refuse(
            f"{len(shared):,} nodes are both a row and a column of the model; the first is "
            f"{shared[0]!r}. A node has only one cluster: give rows and columns different names."
        )
    return found


def _check_same_objects(index: list[str], relation: BinaryRelation, d: int) -> None:
    """Refuse observations (d = 0) or variables that are not the objects of the domain, in order."""
    size, what = relation.sizes[d], ("observations", "variables")[d]
    if len(index) != size:
        refuse(f"There are {len(index):,} {what}, but the model was fitted to {size:,}.")
    names = object_names(relation, d) or index
    wrong = [(here, there) for here, there in zip(index, names, strict=True) if here != there]
    if wrong:
        refuse(
            f"{len(wrong):,} of {size:,} {what} have other names than in the model; the first is "
            f"{wrong[0][0]!r}, where the model has {wrong[0][1]!r}. Put them in the order of the "
            "fit."
        )
