"""Measure degree correction and write docs/degrees.md.

Run with ``python benchmarks/degrees.py DATA [PART ...]``. DATA is the folder of the relations;
their truth is in NAME.truth.npy. The parts are those of ``PARTS``; without any, all are measured.
Their tables are kept in benchmarks/results/degrees.json. One thread is used.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is imported
if len(sys.argv) > 1:
    os.environ["DATA"] = sys.argv[1]

import numpy as np
from data import FOLDER, load
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from coblock import IRM
from coblock.analysis.evaluation import sample_held_out, score, without_cells
from coblock.model.relation import Relation

PAGE = Path(__file__).parents[1] / "docs" / "degrees.md"
RESULTS = Path(__file__).parent / "results" / "degrees.json"
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
HELD_OUT = [
    ("lastfm_userxuser", "bipartite"),
    ("lastfm_artistxtag", "bipartite"),
    ("cora_word", "bipartite"),
    ("cora_link", "undirected"),
    ("polblogs", "directed"),
    *((f"enron156_2001{month}", "directed") for month in ("06", "08", "10", "12")),
    *((name, "directed") for name in ("gc_1000", "roles_1000", "gc_5000", "roles_5000")),
]
DRAWS = 3  # of held-out cells
SHARE = 0.1  # of the cells held out,
MOST_HELD = 50_000  # or a weighted sample of so many
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
    """Compare predictions of cells that were held out: log probability, average precision."""
    yield (
        "| relation | log probability: plain | auto | auto - plain, each draw | average precision: "
        "plain | auto | auto - plain, each draw | auto takes | CPU seconds: plain | auto |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, kind in HELD_OUT:
        relation, numbers, taken = Relation.build(load(name), kind=kind), [], []
        for draw_number in range(DRAWS):
            rng = np.random.default_rng(draw_number)
            held = sample_held_out(relation, SHARE, rng, largest=MOST_HELD)
            left, row = without_cells(relation, held), []
            for asked in (False, "auto"):
                began = process_time()
                model = IRM(kind, random_state=draw_number, degree_corrected=asked).fit(left)
                seconds, found = process_time() - began, score(model, held)
                row.append((found.log_likelihood, found.average_precision, seconds))
            taken.append("plain" if model.degrees_.model is None else "corrected")
            numbers.append(row)
        mean, each = np.mean(numbers, axis=0), np.array(numbers)
        change = each[:, 1] - each[:, 0]
        cells = [
            *(f"{x:.5f}" for x in mean[:, 0]),
            ", ".join(f"{x:+.5f}" for x in change[:, 0]),
            *(f"{x:.3f}" for x in mean[:, 1]),
            ", ".join(f"{x:+.3f}" for x in change[:, 1]),
            ", ".join(taken),
            *(f"{x:.1f}" for x in mean[:, 2]),
        ]
        yield f"| {name}, {kind} | {' | '.join(cells)} |"


def without_degrees_graphs() -> Iterator[str]:
    """Compare fits of graphs whose objects do not differ in degree."""
    return compared(
        (f"N {size:,}, seed {seed}", *without_degrees(size, seed))
        for size in (600, 2000, 5000)
        for seed in range(3)
    )


def two_level_graphs() -> Iterator[str]:
    """Compare fits of graphs with degree levels."""
    return compared(
        (f"{links} links, seed {seed}", *two_levels(seed, links))
        for links in (20, 40)
        for seed in range(2)
    )


PARTS = {
    "planted": ("Planted degrees", planted),
    "even": ("Blocks without different degrees", without_degrees_graphs),
    "levels": ("6 patterns with 2 levels of out-degrees", two_level_graphs),
    "real": ("Real relations", real),
    "heldout": ("Held-out cells", held_out),
}


def compile_kernels() -> None:
    """Fit small relations, so that no compilation is measured."""
    warm = sparse.csr_array(np.kron(np.eye(2), np.ones((30, 30))) - np.eye(60))
    sparse_warm = draw(np.full((300, 300), 0.05), np.random.default_rng(0))
    for kind in ("bipartite", "directed", "undirected"):
        for X in (warm, sparse_warm):
            for asked in (True, "auto"):
                fit(X, kind, asked)
    fit(draw(np.full((1500, 1500), 0.02), np.random.default_rng(0)), "directed", "auto")


def main() -> None:
    """Measure the parts asked for and write the page from all that were measured."""
    compile_kernels()
    for part in sys.argv[2:] or PARTS:
        lines = []
        for line in PARTS[part][1]():
            print(line, flush=True)
            lines.append(line)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(results | {part: lines}, indent=1) + "\n")
    text, results = HEAD, json.loads(RESULTS.read_text())
    for part, (title, _) in PARTS.items():
        if part in results:
            text += f"\n## {title}\n\n" + "\n".join(results[part]) + "\n"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
