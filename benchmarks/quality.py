"""Measure the quality of the blocks of the default `IRM()` and write docs/quality.md.

    python benchmarks/quality.py [--runs 5] [--draws 20] [--data synth1 ...]
                                 [--parts planted noise weak pairs chains cells evidence known
                                          order heldout folds]

Parts that are not measured stay on the page unchanged. Held-out scores are means over seeds; a
tenth of all cells is unseen in training. The evidence is that of MODEL 10 with the best
hyperparameters and nothing held out.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from calibration import CELLS, cells, chains, pairs
from data import FOLDER, SYNTHETIC, Trial, load, whole_relation
from log_evidence import log_evidence
from regimes import noise, weak
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from speed.__main__ import source_version
from speed.peer_runs import measure_peer

from coblock import IRM

PAGE = Path(__file__).parents[1] / "docs" / "quality.md"
HELD_OUT = {  # score of the paper's best method with K = 20, for relations with the same counts
    "synth1": None,
    "synth2": None,
    "enron156_200110": None,
    "lastfm_userxuser": -0.0267,
    "lastfm_artistxtag": -0.0158,
}
MORE_SEEDS = {"enron156_200110": 4}  # factor; with few cells the score depends on which are drawn
FOLDS = 10  # parts of all cells
CHAIN = 600  # sweeps of a long Gibbs chain
EVIDENCE = ("lastfm_userxuser", "lastfm_artistxtag")
KNOWN = {"polblogs": "directed", "football": "undirected", "karate": "undirected"}
INTRODUCTION = """# How good the blocks are

Written by `benchmarks/quality.py`: means over the seeds for `IRM()` with no parameter but the seed.
The machine was shared with other programs, so seconds are approximate. *In sample* is the score of
the same cells by a model that was fitted to all cells. It is an upper limit for held-out scores."""


def planted(draws: int, names: list[str]) -> Iterator[str]:
    """Count the draws in which the planted numbers of clusters are found."""
    yield "| relation | exact | fewer, with the truth's evidence or more | of | seconds |"
    yield "|---|---|---|---|---|"
    for name in [name for name in SYNTHETIC if name in names]:
        exact, better, began = 0, 0, perf_counter()
        for seed in range(draws):
            drawn = SYNTHETIC[name](seed)
            model = IRM(random_state=seed).fit(drawn.X)
            truth = log_evidence(drawn.X, drawn.row_labels, drawn.column_labels)
            if model.block_probability_.shape == drawn.probability.shape:
                exact += 1
            elif model.log_evidence_ >= truth:
                better += 1
        seconds = (perf_counter() - began) / draws
        yield f"| {name} | {exact} | {better} | {draws} | {seconds:.1f} |"


def held_out(runs: int, names: list[str]) -> Iterator[str]:
    """Score held-out cells of fits with and without a truncation."""
    yield (
        "| relation | seeds | held-out | ± | minus oracle | the paper | in sample | K <= 20 | "
        "K <= 60 | clusters | sweeps | converged | seconds |"
    )
    yield "|" + "---|" * 13
    for name in [name for name in HELD_OUT if name in names]:
        rows = []
        for seed in range(runs * MORE_SEEDS.get(name, 1)):
            trial = Trial.draw(name, seed)
            scores, began = [], perf_counter()
            for limit in (None, 20, 60):
                model = IRM(max_clusters=limit, random_state=seed)
                model.fit(trial.X, unseen=trial.unseen)
                scores.append(model.score_links(*trial.cells))
                if limit is None:
                    default, seconds = model, perf_counter() - began
            whole = whole_relation(name, seed)
            in_sample = IRM(random_state=seed).fit(whole).score_links(*trial.cells)
            K = default.block_probability_.shape
            ends = (default.n_iter_, seconds, default.converged_)
            rows.append((*scores, scores[0] - trial.oracle, in_sample, *K, *ends))
            sys.stderr.write(f"{name} {seed} {rows[-1]}\n")
        table = np.array(rows, dtype=float)
        free, few, many, gap, in_sample, K1, K2, sweeps, seconds, converged = table.mean(axis=0)
        yield (
            f"| {name} | {len(rows)} | {free:.4f} | {table[:, 0].std():.4f} | "
            f"{'' if np.isnan(gap) else f'{gap:.4f}'} | {HELD_OUT[name] or ''} | "
            f"{in_sample:.4f} | {few:.4f} | {many:.4f} | {K1:.0f} x {K2:.0f} | {sweeps:.0f} | "
            f"{converged:.0%} | {seconds:.0f} |"
        )


def order(runs: int, names: list[str]) -> Iterator[str]:
    """Score held-out cells of fits with different methods after the search."""
    yield "| relation | around the partition (default) | second-order sweeps | VB sweeps |"
    yield "|---|---|---|---|"
    for name in [name for name in (*SYNTHETIC, "enron156_200110") if name in names]:
        scores = []
        for seed in range(runs * MORE_SEEDS.get(name, 1)):
            trial = Trial.draw(name, seed)
            models = [
                IRM(inference=method, random_state=seed) for method in ("acvb0", "acvb", "vb")
            ]
            fits = [model.fit(trial.X, unseen=trial.unseen) for model in models]
            scores.append([model.score_links(*trial.cells) for model in fits])
        yield f"| {name} | " + " | ".join(f"{x:.4f}" for x in np.mean(scores, axis=0)) + " |"


def evidence(runs: int, names: list[str]) -> Iterator[str]:
    """Compare the log evidence with that of graph-tool."""
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
        peer = measure_peer("graph-tool nested", name, seeds=(1, 2, 3)).get("evidence")
        peer_cell = "not installed" if peer is None else f"{peer:,.0f}"
        yield (
            f"| {name} | {np.mean(values):,.0f} | {max(values):,.0f} | {peer_cell} | "
            f"{K[0]:.0f} x {K[1]:.0f} | {seconds:.0f} |"
        )


def known(runs: int, names: list[str]) -> Iterator[str]:
    """Compare clusters with known classes."""
    yield "| relation | kind | ARI with the known groups | log evidence | clusters |"
    yield "|---|---|---|---|---|"
    for name in [name for name in KNOWN if name in names]:
        kind = KNOWN[name]
        classes = json.loads((FOLDER / f"{name}.labels.json").read_text())["row_class"]
        rows = []
        for seed in range(runs):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                model = IRM(kind, random_state=seed).fit(load(name))
            agreement = adjusted_rand_score(classes, model.labels_)
            rows.append((agreement, model.log_evidence_, model.block_probability_.shape[0]))
        ari, value, K = np.mean(rows, axis=0)
        yield f"| {name} | {kind} | {ari:.3f} | {value:,.1f} | {K:.1f} |"


def folds(runs: int, names: list[str]) -> Iterator[str]:
    """Hold out every cell once; compare with random draws of cells and with averages of fits."""
    yield (
        "| relation | drawn cells: least, mean, most | links among them and score, correlation | "
        f"ten folds | mean of {runs} fits | mean of {runs} long Gibbs chains |"
    )
    yield "|" + "---|" * 6
    for name in [name for name in MORE_SEEDS if name in names]:
        scores, rates = [], []
        for seed in range(runs * MORE_SEEDS[name]):
            trial = Trial.draw(name, seed)
            model = IRM(random_state=seed).fit(trial.X, unseen=trial.unseen)
            scores.append(model.score_links(*trial.cells))
            rates.append(trial.values.mean())
        correlation = np.corrcoef(rates, scores)[0, 1]
        alone, together, chains = np.mean(list(fold_scores(load(name), runs)), axis=0)
        yield (
            f"| {name} | {min(scores):.4f}, {np.mean(scores):.4f}, {max(scores):.4f} | "
            f"{correlation:.2f} | {alone:.4f} | {together:.4f} | {chains:.4f} |"
        )


def fold_scores(X: sparse.csr_array, fits: int) -> Iterator[tuple[float, ...]]:
    """Yield for each fold the scores of one fit, of averaged fits, and of averaged chains."""
    cells = np.random.default_rng(0).permutation(X.shape[0] * X.shape[1])
    for fold in np.array_split(cells, FOLDS):
        rows, columns = np.divmod(fold, X.shape[1])
        unseen = sparse.csr_array((np.ones(fold.size), (rows, columns)), shape=X.shape)
        values = np.asarray(X[rows, columns]).ravel() > 0
        trial = Trial(sparse.csr_array(X - X * unseen), unseen, rows, columns, values)
        default = link_probabilities(trial, fits)
        chains = link_probabilities(trial, fits, inference="gibbs", max_iter=CHAIN, max_clusters=40)
        averages = (default[0], default.mean(axis=0), chains.mean(axis=0))
        yield tuple(
            float(np.log(np.where(values, average, 1.0 - average)).mean()) for average in averages
        )


def link_probabilities(trial: Trial, fits: int, **settings: object) -> np.ndarray:
    """Return the link probabilities of the held-out cells, one row per fit."""
    models = [IRM(random_state=seed, **settings) for seed in range(fits)]
    fitted = [model.fit(trial.X, unseen=trial.unseen) for model in models]
    return np.array([model.link_probability(trial.rows, trial.columns) for model in fitted])


@dataclass(frozen=True)
class Part:
    """A section of the page."""

    heading: str
    measure: Callable[[int, list[str]], Iterator[str]]
    more_seeds: bool = False  # whether some relations get more seeds


PARTS = {
    "planted": Part("How often the planted numbers of clusters are found", planted),
    "noise": Part("How often noise is one block", noise),
    "weak": Part("Weak structure: evidence of fits and of the truth", weak),
    "pairs": Part("Calibration of pairs: are these two together?", pairs),
    "chains": Part("Held-out log likelihood of default fits and of long Gibbs chains", chains),
    "cells": Part("Calibration of predicted cells", cells),
    "evidence": Part("Log evidence with nothing held out", evidence),
    "known": Part("Agreement with classes that are known", known),
    "order": Part("Held-out log likelihood per cell by what follows the search", order, True),
    "heldout": Part(
        "Held-out log likelihood per cell, and what a truncation does to it", held_out, True
    ),
    "folds": Part(
        "Every cell held out once: what a draw of cells does, and averages over many fits",
        folds,
        True,
    ),
}


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--data", nargs="+", default=[*HELD_OUT, *CELLS, *KNOWN])
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    sections = read_sections(options.out) if options.out.exists() else {}
    source = source_version()  # of the imported code: files may change while this runs
    more = " and ".join(f"{times} times as many for {name}" for name, times in MORE_SEEDS.items())
    for name in options.parts:
        drawn = name in {"planted", "pairs", "chains", "cells"}
        part, count = PARTS[name], options.draws if drawn else options.runs
        seeds = f"{'draws' if drawn else 'seeds'} 0 to {count - 1}"
        seeds += f", {more}" if part.more_seeds else ""
        table = "\n".join(part.measure(count, options.data))
        sections[part.heading] = f"Source {source}, {seeds}.\n\n{table}"
        write_page(options.out, sections)


def read_sections(page: Path) -> dict[str, str]:
    """Return the sections of a page by their headings."""
    texts = page.read_text().split("\n## ")[1:]
    return {title: body.strip() for title, _, body in (text.partition("\n") for text in texts)}


def write_page(page: Path, sections: dict[str, str]) -> None:
    """Write the page with its sections in the order of ``PARTS``."""
    text = [INTRODUCTION]
    for part in PARTS.values():
        if part.heading in sections:
            text += [f"## {part.heading}", sections[part.heading]]
    page.write_text("\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
