"""Measure degree correction and write docs/degrees.md.

Run with ``python benchmarks/degrees.py DATA``. DATA is the folder of the relations; their truth is
in NAME.truth.npy. One thread is used.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is imported
if len(sys.argv) > 1:
    os.environ["DATA"] = sys.argv[1]

import numpy as np
from data import FOLDER, Trial, load
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from coblock import IRM

PAGE = Path(__file__).parents[1] / "docs" / "degrees.md"
PLANTED = ("gc_1000", "roles_1000", "gc_5000", "roles_5000", "gc_20000")
REAL = [  # name, kind
    ("polblogs", "directed"),
    ("lastfm_userxuser_full", "directed"),
    ("lastfm_userxuser", "bipartite"),
    ("lastfm_artistxtag", "bipartite"),
    ("enron156_200110", "directed"),
    ("cora_link", "undirected"),
    ("karate", "undirected"),
    ("football", "undirected"),
    ("senate109_yea", "bipartite"),
    ("animals_features", "bipartite"),
    ("house84_yea", "bipartite"),
    ("southern_women", "bipartite"),
]
HELD_OUT = [("lastfm_userxuser", "bipartite"), ("lastfm_artistxtag", "bipartite")]
HELD_OUT += [("polblogs", "directed"), ("enron156_200110", "directed")]
HEAD = """# Degree correction, measured

`python benchmarks/degrees.py DATA` writes this page: CPU seconds of one thread of a shared machine,
without compilation, seed 0. "Plain" is `degree_corrected=False`, "corrected" is `True`, "auto"
takes the model with more evidence. [Degrees](mathematics/degrees.md) is the mathematics. ARI is the
adjusted Rand index with the planted clusters. Held-out scores are mean log probabilities of a tenth
of the cells.
"""


def fit(X: sparse.csr_array, kind: str, asked: object) -> tuple[IRM, float]:
    """Return a fitted model and its CPU seconds."""
    began = process_time()
    model = IRM(kind, random_state=0, degree_corrected=asked).fit(X)
    return model, process_time() - began


def shapes(model: IRM) -> str:
    """Return the shapes of the degree law as text."""
    if model.degrees_ is None or model.degrees_.model is None:
        return ""
    return ", ".join("∞" if eta >= 1e6 else f"{eta:.3g}" for eta in model.degrees_.model.eta)


def planted() -> Iterator[str]:
    """Compare graphs with planted degrees: clusters, agreement and time."""
    yield "| graph | clusters | fit | found | ARI | CPU seconds | log evidence | shapes |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in PLANTED:
        X, truth = load(name), np.load(FOLDER / f"{name}.truth.npy")
        for asked, label in ((False, "plain"), (True, "corrected"), ("auto", "auto")):
            model, seconds = fit(X, "directed", asked)
            agree = adjusted_rand_score(truth, model.labels_)
            size, found = np.unique(truth).size, model.labels_.max() + 1
            numbers = f"{seconds:.1f} | {model.log_evidence_:,.0f} | {shapes(model)}"
            yield f"| {name} | {size} | {label} | {found} | {agree:.4f} | {numbers} |"


def without_degrees(size: int, seed: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Return a directed graph with random blocks, whose objects do not differ in degree."""
    rng = np.random.default_rng((size, seed))
    K = {600: 6, 2000: 8, 5000: 12}[size]
    label = rng.integers(K, size=size)
    rate = rng.gamma(0.5, 1.0, (K, K))
    rate = np.minimum(rate * 20.0 / size / rate.mean(), 0.9)
    return draw(rate[label][:, label], rng), label


def two_levels(seed: int, links: float, size: int = 2000) -> tuple[sparse.csr_array, np.ndarray]:
    """Return a graph of 6 patterns with 2 levels of out-degrees each, so many links per object."""
    rng = np.random.default_rng(seed)
    pattern, level = rng.integers(6, size=size), rng.integers(2, size=size)
    rate = rng.gamma(0.5, 1.0, (6, 6))
    rate = (links / size * rate / rate.mean())[pattern][:, pattern]
    mean = np.minimum(rate * np.where(level == 1, 1.6, 0.4)[:, None], 0.9)
    return draw(mean, rng), 2 * pattern + level


def draw(mean: np.ndarray, rng: np.random.Generator) -> sparse.csr_array:
    """Draw links with these probabilities, none of objects with themselves."""
    X = rng.random(mean.shape) < mean
    np.fill_diagonal(X, 0)
    return sparse.csr_array(X.astype(np.float64))


def compared(graphs: Iterator[tuple[str, sparse.csr_array, np.ndarray]]) -> Iterator[str]:
    """Compare plain fits and "auto"; clusters and agreement of each."""
    yield "| graph | clusters | plain: found, ARI | auto: found, ARI | plain | corrected | taken |"
    yield "|---|---|---|---|---|---|---|"
    for name, X, truth in graphs:
        plain, auto = (fit(X, "directed", asked)[0] for asked in (False, "auto"))
        found = [
            f"{m.labels_.max() + 1}, {adjusted_rand_score(truth, m.labels_):.4f}"
            for m in (plain, auto)
        ]
        choice = auto.degrees_
        pair = f"{choice.plain_evidence:,.1f} | {choice.corrected_evidence:,.1f}"
        taken = "plain" if choice.model is None else f"corrected, {shapes(auto)}"
        yield f"| {name} | {np.unique(truth).size} | {found[0]} | {found[1]} | {pair} | {taken} |"


def real() -> Iterator[str]:
    """Compare the evidence of both models on real relations."""
    yield (
        "| relation | plain: clusters, log evidence | corrected: clusters, log evidence | shapes "
        "| auto takes | same labels as plain | CPU seconds of plain, auto |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, kind in REAL:
        X = load(name)
        plain, seconds = fit(X, kind, False)
        auto, more = fit(X, kind, "auto")
        corrected = auto if auto.degrees_.model is not None else fit(X, kind, True)[0]
        cells = []
        for model in (plain, corrected):
            K = model.result_.n_clusters
            clusters = str(K[0]) if kind != "bipartite" else f"{K[0]} x {K[1]}"
            cells.append(f"{clusters}, {model.log_evidence_:,.1f}")
        same = all(map(np.array_equal, plain.result_.labels, auto.result_.labels))
        taken = "plain" if auto.degrees_.model is None else "corrected"
        if auto.degrees_.corrected_evidence is None:
            taken = "plain (dense)"
        row = f"| {name}, {kind} | {cells[0]} | {cells[1]} | {shapes(corrected)} | {taken} |"
        yield f"{row} {'yes' if same else 'no'} | {seconds:.1f}, {more:.1f} |"


def held_out() -> Iterator[str]:
    """Compare predictions of cells that were held out."""
    yield "| relation | plain | auto | corrected | auto takes |"
    yield "|---|---|---|---|---|"
    for name, kind in HELD_OUT:
        trial = Trial.draw(name, 0)
        scores, taken = [], ""
        for asked in (False, "auto", True):
            model = IRM(kind, random_state=0, degree_corrected=asked)
            model.fit(trial.X, unseen=trial.unseen)
            scores.append(f"{model.score_links(*trial.cells):.5f}")
            if asked == "auto":
                taken = "plain" if model.degrees_.model is None else "corrected"
        yield f"| {name}, {kind} | {' | '.join(scores)} | {taken} |"


def main() -> None:
    """Measure everything and write the page."""
    warm = sparse.csr_array(np.kron(np.eye(2), np.ones((30, 30))) - np.eye(60))
    sparse_warm = draw(np.full((300, 300), 0.05), np.random.default_rng(0))
    for kind in ("bipartite", "directed", "undirected"):  # compile
        for X in (warm, sparse_warm):
            for asked in (True, "auto"):
                fit(X, kind, asked)
    fit(draw(np.full((1500, 1500), 0.02), np.random.default_rng(0)), "directed", "auto")
    graphs = [
        (f"N {size:,}, seed {seed}", *without_degrees(size, seed))
        for size in (600, 2000, 5000)
        for seed in range(3)
    ]
    levels = [
        (f"{links} links, seed {seed}", *two_levels(seed, links))
        for links in (20, 40)
        for seed in range(2)
    ]
    parts = {
        "Planted degrees": planted(),
        "Blocks without different degrees": compared(iter(graphs)),
        "6 patterns with 2 levels of out-degrees": compared(iter(levels)),
        "Real relations": real(),
        "Held-out cells": held_out(),
    }
    text = HEAD
    for title, lines in parts.items():
        text += f"\n## {title}\n\n" + "\n".join(lines) + "\n"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
