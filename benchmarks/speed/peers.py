"""One fit of another program, in its own process.

python -m speed.peers PEER links.npz answer.json seed rows columns
"""

import json
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from scipy import sparse

MISSING = 3  # exit code: the program is not installed
Labels = tuple[np.ndarray, np.ndarray]


def graph_tool(X: sparse.coo_matrix, seed: int, *, nested: bool) -> tuple[Labels, float]:
    """Fit graph-tool's block model of a bipartite graph; return labels and description length."""
    import graph_tool.all as gt

    rows, columns = X.shape
    graph = gt.Graph(directed=False)
    graph.add_vertex(rows + columns)
    graph.add_edge_list(np.column_stack((X.row, X.col + rows)))
    side = graph.new_vp("int")
    side.a = np.repeat((0, 1), (rows, columns))
    args = {"clabel": side, "pclabel": side, "deg_corr": False}
    gt.seed_rng(seed)  # 0 means a random seed there
    np.random.seed(seed)  # noqa: NPY002  graph-tool draws from the global generator
    if nested:
        state = gt.minimize_nested_blockmodel_dl(
            graph, state_args={"base_type": gt.BlockState, **args}
        )
        return split(state.levels[0].b.a, rows), float(state.entropy())
    state = gt.minimize_blockmodel_dl(graph, state_args=args)
    return split(state.b.a, rows), float(state.entropy())


def split(label: np.ndarray, rows: int) -> Labels:
    """Return the labels of rows and of columns."""
    label = np.asarray(label)
    return label[:rows], label[rows:]


def spectral(X: sparse.coo_matrix, seed: int, clusters: int) -> Labels:
    """Fit scikit-learn's SpectralCoclustering with a given number of clusters."""
    from sklearn.cluster import SpectralCoclustering

    model = SpectralCoclustering(clusters, random_state=seed).fit(sparse.csr_matrix(X))
    return model.row_labels_, model.column_labels_


def sparsebm(X: sparse.coo_matrix, seed: int, clusters: tuple[int, int]) -> Labels:
    """Fit sparsebm's latent block model with given numbers of clusters, the best of 3 starts."""
    from sparsebm import LBM

    np.random.seed(seed)  # noqa: NPY002  sparsebm draws from the global generator
    model = LBM(*clusters, n_init=3, n_init_total_run=1, verbosity=0)
    model.fit(sparse.coo_matrix(X, dtype=np.float64))
    return model.row_labels, model.column_labels


def leiden(X: sparse.coo_matrix, seed: int) -> Labels:
    """Find Leiden communities of the bipartite graph (modularity)."""
    import igraph
    import leidenalg

    rows, columns = X.shape
    graph = igraph.Graph(rows + columns, np.column_stack((X.row, X.col + rows)))
    found = leidenalg.find_partition(graph, leidenalg.ModularityVertexPartition, seed=seed)
    return split(np.array(found.membership), rows)


def fit_peer(
    peer: str, X: sparse.coo_matrix, seed: int, clusters: tuple[int, int]
) -> tuple[Labels, float]:
    """Fit one peer; return labels and its own objective (lower is better), or 0."""
    if peer.startswith("graph-tool"):
        return graph_tool(X, seed, nested=peer.endswith("nested"))
    if peer == "Leiden":
        return leiden(X, seed), 0.0
    if peer == "sparsebm":
        return sparsebm(X, seed, clusters), 0.0
    return spectral(X, seed, max(clusters)), 0.0


def main() -> None:
    """Fit one peer and write labels, objective and seconds."""
    peer, links, answer, *numbers = sys.argv[1:]
    seed, rows, columns = (int(number) for number in numbers)
    X = sparse.coo_matrix(sparse.load_npz(links))
    began = perf_counter()
    try:
        (row, column), objective = fit_peer(peer, X, seed, (rows, columns))
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(MISSING)
    found = {
        "seconds": perf_counter() - began,
        "objective": objective,
        "rows": np.asarray(row).tolist(),
        "columns": np.asarray(column).tolist(),
    }
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
