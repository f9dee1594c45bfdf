"""How good the blocks of the default `IRM()` are; writes docs/quality.md.

    python benchmarks/quality.py [--runs 5] [--draws 20] [--data synth1 ...]
                                 [--parts planted evidence known order heldout folds]

Parts that are not measured stay on the page as they were. Held-out figures are means over seeds, a
tenth of all cells unseen in training. The evidence is that of MODEL 10 with a, b and the
concentrations at their best, nothing held out.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from data import FOLDER, SYNTHETIC, Trial, load
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from speed.__main__ import source_version
from speed.bounded import peer

from coblock import IRM
from coblock.analysis.evaluation import HeldOut
from coblock.analysis.prediction import mean_log_probability
from coblock.model.partition import Partition
from coblock.model.relation import Relation

PAGE = Path(__file__).parents[1] / "docs" / "quality.md"
HELD_OUT = {  # the paper's best method at K = 20, where its relation is the same
    "synth1": None,
    "synth2": None,
    "enron156_200110": None,
    "lastfm_userxuser": -0.0267,
    "lastfm_artistxtag": -0.0158,
}
MORE_SEEDS = {"enron156_200110": 4}  # times: of so few cells it matters which are drawn
FOLDS, CHAIN = 10, 600  # parts of all cells; sweeps of a long chain
EVIDENCE = ("lastfm_userxuser", "lastfm_artistxtag")
INTRODUCTION = """# How good the blocks are

Written by `benchmarks/quality.py`: `IRM()` with no parameter but the seed, means over the seeds.
Seconds are of a busy machine. *In sample* is the score of the same cells by a model that was fitted
to all cells, these included: nothing honest can be better."""
KNOWN = {"polblogs": "directed", "football": "undirected", "karate": "undirected"}


def planted(draws: int, names: list[str]) -> Iterator[str]:
    """How often the planted numbers of clusters are found."""
    yield "| relation | exact | fewer, with the truth's evidence or more | of | seconds |"
    yield "|---|---|---|---|---|"
    for name in [name for name in SYNTHETIC if name in names]:
        exact, better, began = 0, 0, perf_counter()
        for seed in range(draws):
            drawn = SYNTHETIC[name](seed)
            model = IRM(random_state=seed).fit(drawn.X)
            labels = [drawn.row_labels, drawn.column_labels]
            truth = Partition.start(Relation.build(drawn.X), labels).log_joint()
            if model.block_probability_.shape == drawn.probability.shape:
                exact += 1
            elif model.log_evidence_ >= truth:
                better += 1
        seconds = (perf_counter() - began) / draws
        yield f"| {name} | {exact} | {better} | {draws} | {seconds:.1f} |"


def heldout(runs: int, names: list[str]) -> Iterator[str]:
    """Held-out log likelihood per cell, and what a truncation does to it."""
    yield (
        "| relation | seeds | held-out | ± | minus oracle | the paper | in sample | K <= 20 | "
        "K <= 60 | clusters | sweeps | converged | seconds |"
    )
    yield "|" + "---|" * 13
    for name in [name for name in HELD_OUT if name in names]:
        rows = []
        for seed in range(runs * MORE_SEEDS.get(name, 1)):
            trial = Trial.draw(name, seed)
            cells = (trial.held.rows, trial.held.columns, trial.held.values)
            scores, began = [], perf_counter()
            for limit in (None, 20, 60):
                model = IRM(max_clusters=limit, random_state=seed)
                model.fit(trial.held.X, unseen=trial.held.unseen)
                scores.append(model.score_links(*cells))
                if limit is None:
                    default, seconds = model, perf_counter() - began
            whole = Trial.whole(name, seed)
            seen = IRM(random_state=seed).fit(whole).score_links(*cells)
            K = default.block_probability_.shape
            ends = (default.n_iter_, seconds, default.converged_)
            rows.append((*scores, scores[0] - trial.oracle, seen, *K, *ends))
            sys.stderr.write(f"{name} {seed} {rows[-1]}\n")
        figures = np.array(rows, dtype=float)
        free, few, many, gap, seen, K1, K2, sweeps, seconds, converged = figures.mean(axis=0)
        yield (
            f"| {name} | {len(rows)} | {free:.4f} | {figures[:, 0].std():.4f} | "
            f"{'' if np.isnan(gap) else f'{gap:.4f}'} | {HELD_OUT[name] or ''} | "
            f"{seen:.4f} | {few:.4f} | {many:.4f} | {K1:.0f} x {K2:.0f} | {sweeps:.0f} | "
            f"{converged:.0%} | {seconds:.0f} |"
        )


def order(runs: int, names: list[str]) -> Iterator[str]:
    """Held-out log likelihood per cell by what follows the search."""
    yield "| relation | around the partition (default) | second-order sweeps | VB sweeps |"
    yield "|---|---|---|---|"
    for name in [name for name in (*SYNTHETIC, "enron156_200110") if name in names]:
        scores = []
        for seed in range(runs * MORE_SEEDS.get(name, 1)):
            held = Trial.draw(name, seed).held
            models = [
                IRM(inference=method, random_state=seed) for method in ("acvb0", "acvb", "vb")
            ]
            cells = (held.rows, held.columns, held.values)
            fits = [model.fit(held.X, unseen=held.unseen) for model in models]
            scores.append([model.score_links(*cells) for model in fits])
        yield f"| {name} | " + " | ".join(f"{x:.4f}" for x in np.mean(scores, axis=0)) + " |"


def evidence(runs: int, names: list[str]) -> Iterator[str]:
    """Log evidence with nothing held out."""
    yield "| relation | mean | best | graph-tool nested, best of 3 | clusters | seconds |"
    yield "|---|---|---|---|---|---|"
    for name in [name for name in EVIDENCE if name in names]:
        values, shapes, began = [], [], perf_counter()
        for seed in range(runs):
            model = IRM(random_state=seed).fit(load(name))
            values.append(model.log_evidence_)
            shapes.append(model.block_probability_.shape)
            sys.stderr.write(f"{name} {seed} {values[-1]:.0f} {shapes[-1]}\n")
        K = np.mean(shapes, axis=0)
        seconds = (perf_counter() - began) / runs
        theirs = peer("graph-tool nested", name, seeds=(1, 2, 3)).get("evidence")
        beside = "not installed" if theirs is None else f"{theirs:,.0f}"
        yield (
            f"| {name} | {np.mean(values):,.0f} | {max(values):,.0f} | {beside} | "
            f"{K[0]:.0f} x {K[1]:.0f} | {seconds:.0f} |"
        )


def known(runs: int, names: list[str]) -> Iterator[str]:
    """Agreement with classes that are known."""
    yield "| relation | kind | ARI with the known groups | log evidence | clusters |"
    yield "|---|---|---|---|---|"
    for name in [name for name in KNOWN if name in names]:
        kind = KNOWN[name]
        classes = json.loads((FOLDER / f"{name}.labels.json").read_text())["row_class"]
        figures = []
        for seed in range(runs):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                model = IRM(kind, random_state=seed).fit(load(name))
            agreement = adjusted_rand_score(classes, model.labels_)
            figures.append((agreement, model.log_evidence_, model.block_probability_.shape[0]))
        ari, value, K = np.mean(figures, axis=0)
        yield f"| {name} | {kind} | {ari:.3f} | {value:,.1f} | {K:.1f} |"


def folds(runs: int, names: list[str]) -> Iterator[str]:
    """Every cell held out once: what a draw of cells does, and averages over many fits."""
    yield (
        "| relation | drawn cells: least, mean, most | links among them and score, correlation | "
        f"ten folds | mean of {runs} fits | mean of {runs} long Gibbs chains |"
    )
    yield "|" + "---|" * 6
    for name in [name for name in MORE_SEEDS if name in names]:
        scores, rates = [], []
        for seed in range(runs * MORE_SEEDS[name]):
            held = Trial.draw(name, seed).held
            model = IRM(random_state=seed).fit(held.X, unseen=held.unseen)
            scores.append(model.score_links(held.rows, held.columns, held.values))
            rates.append(held.values.mean())
        correlation = np.corrcoef(rates, scores)[0, 1]
        alone, together, chains = np.mean(list(fold_scores(load(name), runs)), axis=0)
        yield (
            f"| {name} | {min(scores):.4f}, {np.mean(scores):.4f}, {max(scores):.4f} | "
            f"{correlation:.2f} | {alone:.4f} | {together:.4f} | {chains:.4f} |"
        )


def fold_scores(X: sparse.csr_array, fits: int) -> Iterator[tuple[float, ...]]:
    """Yield for each tenth of all cells the scores of one fit, of many, and of many chains."""
    cells = np.random.default_rng(0).permutation(X.shape[0] * X.shape[1])
    for fold in np.array_split(cells, FOLDS):
        rows, columns = np.divmod(fold, X.shape[1])
        unseen = sparse.csr_array((np.ones(fold.size), (rows, columns)), shape=X.shape)
        values = np.asarray(X[rows, columns]).ravel() > 0
        held = HeldOut(sparse.csr_array(X - X * unseen), unseen, rows, columns, values)
        default = probabilities(held, fits)
        chains = probabilities(held, fits, inference="gibbs", max_iter=CHAIN, max_clusters=40)
        averages = (default[0], default.mean(axis=0), chains.mean(axis=0))
        yield tuple(mean_log_probability(average, values) for average in averages)


def probabilities(held: HeldOut, fits: int, **settings: object) -> np.ndarray:
    """Return what some fits say of the cells held out."""
    models = [IRM(random_state=seed, **settings) for seed in range(fits)]
    fitted = [model.fit(held.X, unseen=held.unseen) for model in models]
    return np.array([model.link_probability(held.rows, held.columns) for model in fitted])


PARTS = {
    "planted": planted,
    "evidence": evidence,
    "known": known,
    "order": order,
    "heldout": heldout,
    "folds": folds,
}


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--data", nargs="+", default=[*HELD_OUT, *KNOWN])
    parser.add_argument("--out", type=Path, default=PAGE)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    sections = sections_of(chosen.out) if chosen.out.exists() else {}
    source = source_version()  # of what is imported: it may change while this runs
    more = " and ".join(f"{times} times as many for {name}" for name, times in MORE_SEEDS.items())
    for part in chosen.parts:
        count = chosen.draws if part == "planted" else chosen.runs
        seeds = f"{'draws' if part == 'planted' else 'seeds'} 0 to {count - 1}"
        seeds += f", {more}" if part in {"heldout", "order", "folds"} else ""
        table = "\n".join(PARTS[part](count, chosen.data))
        sections[heading(part)] = f"Source {source}, {seeds}.\n\n{table}"
        write_page(chosen.out, sections)


def heading(part: str) -> str:
    """Return what a part of the page is called."""
    return str(PARTS[part].__doc__).rstrip(".")


def sections_of(page: Path) -> dict[str, str]:
    """Return the parts of a page by their headings."""
    texts = page.read_text().split("\n## ")[1:]
    return {title: body.strip() for title, _, body in (text.partition("\n") for text in texts)}


def write_page(page: Path, sections: dict[str, str]) -> None:
    """Write the page, its parts in their order."""
    text = [INTRODUCTION]
    for part in PARTS:
        if heading(part) in sections:
            text += [f"## {heading(part)}", sections[heading(part)]]
    page.write_text("\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
