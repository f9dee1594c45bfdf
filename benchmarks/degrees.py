"""Measure degree correction and write docs/degrees.md.

Run with ``python benchmarks/degrees.py DATA [PART[:NAME] ...]``. DATA is the folder of the
relations; their truth is in NAME.truth.npy. The parts are those of ``PARTS``, whole or the rows of
one graph or relation; without any, all are measured. The rows are kept in
benchmarks/results/degrees.json, from which the page is written. One thread is used.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is imported
if len(sys.argv) > 1:
    os.environ["DATA"] = sys.argv[1]

import numpy as np
from data import FOLDER, load
from scipy import sparse
from sklearn.metrics import adjusted_rand_score, homogeneity_score

from coblock import IRM
from coblock.analysis.evaluation import score
from coblock.analysis.held_out import sample_held_out, without_cells
from coblock.inference.engine import LocalEngine, Schedule
from coblock.model.partition import Partition
from coblock.model.relation import BinaryRelation

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
KINDS = dict(REAL) | dict(HELD_OUT)
EVEN = {f"N {size:,}, seed {seed}": (size, seed) for size in (600, 2000, 5000) for seed in range(3)}
LEVELS = {f"{links} links, seed {seed}": (links, seed) for links in (20, 40) for seed in range(2)}
MOST_SWEEPS = 20  # of the true labels
DRAWS = 3  # of held-out cells
SHARE = 0.1  # of the cells held out,
MOST_HELD = 50_000  # or a weighted sample of so many
HEAD = """# Degree correction, measured

`python benchmarks/degrees.py DATA` writes this page: CPU seconds of one thread of a shared machine,
without compilation, seed 0. "Plain" is `degree_corrected=False`, "corrected" is `True`, "auto"
takes the model with more evidence. [Degrees](mathematics/degrees.md) is the mathematics. ARI is the
adjusted Rand index with the planted clusters.
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


def planted(name: str) -> Iterator[str]:
    """Compare fits of a graph with planted degrees: clusters, agreement and time."""
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


def compared(name: str, X: sparse.csr_array, truth: np.ndarray) -> Iterator[str]:
    """Compare a plain fit and "auto" with the truth; clusters and agreement of each."""
    plain, auto = (fit(X, "directed", asked)[0] for asked in (False, "auto"))
    found = [
        f"{m.labels_.max() + 1}, {adjusted_rand_score(truth, m.labels_):.4f}" for m in (plain, auto)
    ]
    choice = auto.degrees_
    swept = swept_evidence(X, truth)
    values = f"{swept} | {choice.plain_evidence:,.1f} | {choice.corrected_evidence:,.1f}"
    taken = "plain" if choice.model is None else f"corrected, {shapes(auto)}"
    yield f"| {name} | {np.unique(truth).size} | {found[0]} | {found[1]} | {values} | {taken} |"


def swept_evidence(X: sparse.csr_array, truth: np.ndarray) -> str:
    """Return clusters and plain evidence of the true labels after sweeps of best labels."""
    relation = BinaryRelation.build(X, kind="directed")
    partition = Partition.from_labels(relation, [truth.astype(np.int32)])
    for _ in range(MOST_SWEEPS):
        before = partition.labels[0].copy()
        LocalEngine(Schedule(1)).sweep_labels(partition)
        partition.learn()
        if np.array_equal(before, partition.labels[0]):
            break
    return f"{np.unique(partition.labels[0]).size}, {partition.log_joint():,.1f}"


def even(name: str) -> Iterator[str]:
    """Compare fits of a graph whose objects do not differ in degree."""
    size, seed = EVEN[name]
    return compared(name, *without_degrees(size, seed))


def levels(name: str) -> Iterator[str]:
    """Compare fits of a graph with levels of degrees."""
    links, seed = LEVELS[name]
    return compared(name, *two_levels(seed, links))


def real(name: str) -> Iterator[str]:
    """Compare the evidence of both models on a real relation."""
    X, kind = load(name), KINDS[name]
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


def parties(kind: str) -> Iterator[str]:
    """Compare the clusters of the political blogs with the two parties, whole and cut at two."""
    X = load("polblogs")
    X = X if kind == "directed" else sparse.csr_array(((X + X.T) > 0).astype(np.float64))
    party = json.loads((FOLDER / "polblogs.labels.json").read_text())["row_class"]
    for asked, label in ((False, "plain"), (True, "corrected")):
        model, _ = fit(X, kind, asked)
        cut = model.tree().cut(2).labels[0][model.labels_]
        numbers = [
            f"{measure(party, found):.3f}"
            for found in (model.labels_, cut)
            for measure in (homogeneity_score, adjusted_rand_score)
        ]
        clusters, evidence = model.labels_.max() + 1, f"{model.log_evidence_:,.1f}"
        yield f"| {kind} | {label} | {clusters} | {evidence} | {' | '.join(numbers)} |"


def held_out(name: str) -> Iterator[str]:
    """Compare predictions of cells that were held out: log probability, average precision."""
    kind = KINDS[name]
    relation, numbers, taken = BinaryRelation.build(load(name), kind=kind), [], []
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


COMPARED = [
    "graph",
    "clusters",
    "plain: found, ARI",
    "auto: found, ARI",
    "true labels, swept",
    "plain",
    "corrected",
    "taken",
]
SCORED = ["log probability: plain", "auto", "auto - plain, each draw"]
SCORED += ["average precision: plain", "auto", "auto - plain, each draw"]
REAL_COLUMNS = ["relation", "plain: clusters, log evidence", "corrected: clusters, log evidence"]
REAL_COLUMNS += ["shapes", "auto takes", "same labels as plain", "CPU seconds of plain, auto"]
PARTY_COLUMNS = ["kind", "fit", "clusters", "log evidence", "homogeneity", "ARI"]
PARTY_COLUMNS += ["homogeneity of two", "ARI of two"]
PARTS: dict[str, tuple[str, list[str], list[str], Callable[[str], Iterator[str]]]] = {
    "planted": (
        "Planted degrees",
        ["graph", "clusters", "fit", "found", "ARI", "CPU seconds", "log evidence", "shapes"],
        list(PLANTED),
        planted,
    ),
    "even": ("Blocks without different degrees", COMPARED, list(EVEN), even),
    "levels": ("6 patterns with 2 levels of out-degrees", COMPARED, list(LEVELS), levels),
    "real": (
        "Real relations",
        REAL_COLUMNS,
        [name for name, _ in REAL],
        real,
    ),
    "parties": (
        "Political blogs and the two parties",
        PARTY_COLUMNS,
        ["directed", "undirected"],
        parties,
    ),
    "heldout": (
        "Held-out cells",
        ["relation", *SCORED, "auto takes", "CPU seconds: plain", "auto"],
        [name for name, _ in HELD_OUT],
        held_out,
    ),
}
NOTES = {
    "levels": "The evidence decides on the number of clusters: where the two levels of a pattern "
    "with few links differ too little, the true clusters, after sweeps of best labels, have less.",
    "parties": "Two: the tree of blocks, which merges the clusters by the evidence of the "
    "model that they were found with, cut at two clusters.",
    "heldout": f"A tenth of the cells, or a weighted sample of {MOST_HELD:,}, is unseen in the "
    f"fit; means of {DRAWS} draws. Positive differences mean that auto is better. Auto takes "
    "the model with more evidence, which does not always predict better: it is not the default.",
}


def compile_kernels(parts: list[str]) -> None:
    """Fit small relations, so that no compilation is measured."""
    warm = sparse.csr_array(np.kron(np.eye(2), np.ones((30, 30))) - np.eye(60))
    sparse_warm = draw(np.full((300, 300), 0.05), np.random.default_rng(0))
    for kind in ("bipartite", "directed", "undirected") if parts else ():
        for X in (warm, sparse_warm):
            for asked in (True, "auto"):
                fit(X, kind, asked)
    if parts:
        fit(draw(np.full((1500, 1500), 0.02), np.random.default_rng(0)), "directed", "auto")


def measure(part: str, names: list[str]) -> None:
    """Measure rows of a part and keep each as soon as it is known."""
    for name in names:
        lines = list(PARTS[part][3](name))
        print("\n".join(lines), flush=True)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results.setdefault(part, {})[name] = lines
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def write_page() -> None:
    """Write the page from all rows that were measured."""
    text, results = HEAD, json.loads(RESULTS.read_text())
    for part, (title, columns, names, _) in PARTS.items():
        rows = [line for name in names for line in results.get(part, {}).get(name, [])]
        if not rows:
            continue
        table = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *rows]
        note = f"{NOTES[part]}\n\n" if part in NOTES else ""
        text += f"\n## {title}\n\n{note}" + "\n".join(table) + "\n"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Measure what is asked for and write the page; "page" measures nothing."""
    asked = [each for each in sys.argv[2:] or PARTS if each != "page"]
    compile_kernels(asked)
    for each in asked:
        part, _, name = each.partition(":")
        measure(part, [name] if name else PARTS[part][2])
    write_page()


if __name__ == "__main__":
    main()
