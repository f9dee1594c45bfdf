"""Fits of several relations beside published ones; writes docs/relations.md.

Usage: python benchmarks/relations.py DATA [--parts heldout draws evidence planted triples]
    [--seeds 5] [--only nations alyawarra] [--jobs 2]
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.metrics import average_precision_score

from coblock import MultiIRM
from coblock.io.tables import Relation
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import log_predictive, predict_mean

PAGE = Path(__file__).resolve().parents[1] / "docs" / "relations.md"
RESULTS = Path(__file__).resolve().parent / "results" / "relations.json"
PLACES = {
    "animals": {"animal": "animal", "feature": "feature"},
    "nations": {"from": "country", "to": "country", "predicate": "predicate"},
    "alyawarra": {"ego": "person", "alter": "person", "term": "term"},
    "umls": {"from": "type", "to": "type", "predicate": "predicate"},
}
MUST = {  # held-out log probability per cell and average precision
    "animals": (-0.374, 0.845),
    "nations": (-0.275, 0.775),
    "alyawarra": (-0.0514, 0.795),
    "umls": (-0.0050, 0.945),
}
FEATURES = "nations and features"
PARTS = ["heldout", "draws", "evidence", "planted", "triples"]
EVIDENCE = {"animals": -1994.0, FEATURES: -4067.5, "alyawarra": -18664.0, "umls": -7031.0}
SECONDS = {"alyawarra": 20.0, "umls": 40.0}
HIDDEN = 0.1  # share of the cells
FIRST_DRAW = 100  # seed of the first of the further draws of the hidden cells of animals
DRAWS = {"each cell with probability 0.1": 100, "a tenth of the cells": 100}  # numbers of draws
GIBBS_DRAWS, GIBBS_SWEEPS = 5, 3000  # of each, chains of so many sweeps
DIAGONAL = {"nations": "unseen"}  # no country relates to itself; that of the others is data


def read_array(data: Path, name: str) -> np.ndarray:
    """Return a relation as an array of 0 and 1."""
    if name == "animals":
        return sparse.load_npz(data / "animals_features.npz").toarray().astype(float)
    return np.load(data / f"{name}.npy").astype(float)


def fit(
    array: np.ndarray, name: str, seed: int, settings: dict | None = None
) -> tuple[MultiIRM, float]:
    """Fit all observed cells; return the model and its CPU seconds."""
    relation = Relation(array, PLACES[name], diagonal=DIAGONAL.get(name, "seen"))
    began = time.process_time()
    model = MultiIRM(random_state=seed, **settings or {}).fit({name: relation})
    return model, time.process_time() - began


def fit_features(data: Path, seed: int) -> tuple[MultiIRM, float]:
    """Fit the relations of countries together with their features."""
    features = np.load(data / "nations_features.npy").astype(float)
    features[features > 1.0] = np.nan  # unknown
    relations = {
        "nations": Relation(
            read_array(data, "nations"), PLACES["nations"], diagonal=DIAGONAL["nations"]
        ),
        "features": Relation(features, ["country", "feature"]),
    }
    began = time.process_time()
    model = MultiIRM(random_state=seed).fit(relations)
    return model, time.process_time() - began


def draw_hidden(shape: tuple[int, ...], seed: int, *, exactly: bool = False) -> np.ndarray:
    """Return which cells are hidden: each with the same probability, or exactly the share."""
    if not exactly:
        return np.random.default_rng(seed).random(shape) < HIDDEN
    size = int(np.prod(shape))
    hidden = np.zeros(size, bool)
    hidden[np.random.RandomState(seed).permutation(size)[: round(HIDDEN * size)]] = True
    return hidden.reshape(shape)


def score_hidden(
    data: Path, name: str, seed: int, settings: dict | None = None, *, exactly: bool = False
) -> dict[str, float]:
    """Hide a tenth of all cells, fit the others, and score the hidden ones."""
    array = read_array(data, name)
    hidden = draw_hidden(array.shape, seed, exactly=exactly)
    if name in DIAGONAL:
        hidden[np.arange(len(array)), np.arange(len(array))] = False
    seen = array.copy()
    seen[hidden] = np.nan
    found, seconds = fit(seen, name, seed, settings)
    result, cells = found.result_, np.argwhere(hidden).astype(np.int32)
    values = array[hidden]
    mean = predict_mean(result, 0, cells)
    loss = log_predictive(result, 0, cells, values)
    return {
        "log_probability": float(loss.mean()),
        "average_precision": float(average_precision_score(values, mean)),
        "seconds": seconds,
        "samples": len(result.samples),
        "moved": result.moved,
    }


def score_draws(data: Path) -> dict[str, list[dict[str, float]]]:
    """Score further draws of the hidden cells of animals: the default, and long Gibbs chains."""
    chains = {"inference": "gibbs", "max_iter": GIBBS_SWEEPS}
    found: dict[str, list[dict[str, float]]] = {}
    for (how, draws), first in zip(DRAWS.items(), (FIRST_DRAW, 0), strict=True):
        found[how] = []
        for number in range(draws):
            asked = {"seed": first + number, "exactly": first == 0}
            run = score_hidden(data, "animals", **asked)
            if number < GIBBS_DRAWS:
                run["gibbs"] = score_hidden(data, "animals", settings=chains, **asked)
            found[how].append(run)
    return found


def planted_numbers(name: str, seed: int) -> tuple[bool, float]:
    """Fit 4 x 3 planted clusters, a fifth of the cells unseen.

    Returns whether the numbers are exact, and by how many nats the clusters found are more
    probable than the planted ones.
    """
    rng = np.random.default_rng(seed)
    z, w = rng.permutation(np.arange(80) % 4), rng.permutation(np.arange(60) % 3)
    if name == "poisson":
        X = rng.poisson(rng.gamma(1.0, 3.0, (4, 3))[z][:, w])
    elif name == "normal":
        X = rng.normal(rng.normal(0.0, 2.0, (4, 3))[z][:, w], 1.0)
    else:
        p = rng.dirichlet([0.5] * 4, (4, 3))
        X = np.array([[rng.choice(4, p=p[a, b]) for b in w] for a in z])
    kept = np.argwhere(rng.random(X.shape) > 0.2)
    cells = [(int(i), int(j), X[i, j].item()) for i, j in kept]
    relation = Relation(cells, ["row", "column"], value=2, likelihood=name, absent="unseen")
    model = MultiIRM(random_state=seed).fit({"r": relation})
    data = model.result_.data
    order = [[int(o) for o in domain.names] for domain in data.domains]
    truth = [label[at].astype(np.int32) for label, at in zip((z, w), order, strict=True)]
    found = tuple(model.domains_[each].n_clusters for each in ("row", "column"))
    planted = MultiPartition.from_labels(data, truth).log_joint()
    return found == (4, 3), model.log_evidence_ - planted


def score_triples(data: Path, seed: int, jobs: int, corrupted: int = 50) -> dict[str, float]:
    """Fit the training triples of fb15k237; rank the others among corrupted ones."""
    import resource

    import polars as pl

    frame = pl.read_parquet(data / "fb15k237.parquet")
    train = frame.filter(pl.col("split") == "train")
    relation = Relation(
        train, {"head": "entity", "tail": "entity", "relation": "predicate"}, diagonal="seen"
    )
    began, at = time.process_time(), time.perf_counter()
    model = MultiIRM(random_state=seed, n_jobs=jobs).fit({"facts": relation})
    seconds, elapsed = time.process_time() - began, time.perf_counter() - at
    result, rng = model.result_, np.random.default_rng(seed)
    index = [{name: o for o, name in enumerate(d.names)} for d in result.data.domains]
    others = frame.filter(pl.col("split") != "train")
    rows = [
        (index[0][h], index[0][t], index[1][r])
        for h, t, r in others.select("head", "tail", "relation").iter_rows()
        if h in index[0] and t in index[0]
    ]
    truth = np.array(rows, np.int32)
    ranks = []
    for place in (0, 1):
        wrong = np.repeat(truth, corrupted, axis=0)
        wrong[:, place] = rng.integers(0, len(index[0]), len(wrong))
        right = predict_mean(result, 0, truth)
        score = predict_mean(result, 0, wrong).reshape(len(truth), corrupted)
        above = (score > right[:, None]).sum(axis=1) + 0.5 * (score == right[:, None]).sum(axis=1)
        ranks.append(1.0 / (1.0 + above))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    clusters = " x ".join(str(each.n_clusters) for each in model.domains_.values())
    return {
        "mrr": float(np.mean(ranks)),
        "seconds": seconds,
        "elapsed": elapsed,
        "jobs": jobs,
        "gigabytes": peak,
        "log_evidence": result.log_evidence,
        "clusters": clusters,
        "sweeps": len(model.trace_),
    }


def measure_fits(part: str, data: Path, name: str, seeds: int) -> list[dict[str, float]]:
    """Return the figures of held-out cells, or of the evidence, for each seed."""
    if part == "heldout":
        return [score_hidden(data, name, seed) for seed in range(seeds)]
    runs = []
    for seed in range(min(seeds, 3)):
        if name == FEATURES:
            found, seconds = fit_features(data, seed)
        else:
            found, seconds = fit(read_array(data, name), name, seed)
        runs.append({"log_evidence": found.log_evidence_, "seconds": seconds})
    return runs


def measure(data: Path, parts: list[str], names: list[str], seeds: int, jobs: int) -> dict:
    """Run the parts; keep the results of each in a file."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in parts:
        if part == "draws":
            results[part] = score_draws(data)
        elif part == "planted":
            kinds = ("poisson", "categorical", "normal")
            results[part] = {n: [planted_numbers(n, seed) for seed in range(20)] for n in kinds}
        elif part == "triples":
            results[part] = score_triples(data, 0, jobs)
        else:
            for name in names:
                if part == "evidence" or name != FEATURES:
                    runs = measure_fits(part, data, name, seeds)
                    results.setdefault(part, {})[name] = runs
                    print(part, name, runs, flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return results


def mean_of(runs: list[dict[str, float]], name: str) -> float:
    """Return the mean of a figure over seeds."""
    return float(np.mean([run[name] for run in runs]))


def standard_error(runs: list[dict[str, float]], name: str) -> float:
    """Return the standard error of the mean of a figure over seeds."""
    return float(np.std([run[name] for run in runs], ddof=1) / np.sqrt(len(runs)))


def describe_draws(how: str, runs: list[dict]) -> list[str]:
    """Say where what is asked for lies among draws of the hidden cells of animals."""
    lines = []
    for asked, name in zip(MUST["animals"], ("log_probability", "average_precision"), strict=True):
        values = np.array([run[name] for run in runs])
        several = [run for run in runs if "gibbs" in run]
        chains = np.mean([run["gibbs"][name] for run in several])
        same = np.mean([run[name] for run in several])
        deviation = values.std(ddof=1)
        lines.append(
            f"| {how} | {len(runs)} | {name.replace('_', ' ')} | {asked} | {values.mean():.3f} "
            f"| {deviation:.3f} | {deviation / np.sqrt(5):.3f} | {same:.4f} | {chains:.4f} |"
        )
    return lines


def write_page(results: dict) -> None:
    """Write the page from the results."""
    lines = [
        "# Several relations: measurements",
        "",
        "Written by `benchmarks/relations.py` from `benchmarks/results/relations.json`. CPU s",
        "of one thread, without compilation. The data are not part of the project.",
        "",
        "## Held-out cells",
        "",
        "A tenth of all cells is unseen in the fit. Mean log probability per hidden cell, and",
        "average precision, with the standard error of the mean over draws of the hidden cells.",
        "Predictions average over so many partitions: samples of chains, or an ensemble where a",
        "sweep of the chains moves less than 1 % of the labels.",
        "",
        "| data | seeds | log probability | asked for | precision | asked for | partitions "
        "| moved by a sweep | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in results.get("heldout", {}).items():
        p, ap = (mean_of(runs, each) for each in ("log_probability", "average_precision"))
        error_p, error_ap = (
            standard_error(runs, each) for each in ("log_probability", "average_precision")
        )
        moved = "" if runs[0]["moved"] is None else f"{100 * mean_of(runs, 'moved'):.1f} %"
        lines.append(
            f"| {name} | {len(runs)} | {p:.4f} ± {error_p:.4f} | {MUST[name][0]} "
            f"| {ap:.3f} ± {error_ap:.3f} | {MUST[name][1]} "
            f"| {mean_of(runs, 'samples'):.0f} | {moved} | {mean_of(runs, 'seconds'):.1f} |"
        )
    if "draws" in results:
        lines += [
            "",
            "### How much the draw of the hidden cells matters",
            "",
            "animals, other draws, in two ways: mean, standard deviation of one draw, and standard",
            "error of a mean of 5. Then the means of the default, and of Gibbs sampling with",
            f"{GIBBS_SWEEPS:,} sweeps, on the first {GIBBS_DRAWS} draws. Where these two agree,",
            "better inference under the same model would not change the figure.",
            "",
            "| hidden | draws | figure | asked for | mean | of one draw | of 5 | default | Gibbs |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for how, runs in results["draws"].items():
            lines += describe_draws(how, runs)
    lines += [
        "",
        "## Evidence of all cells",
        "",
        "| data | best | worst | known | CPU s | asked for |",
    ]
    lines.append("|---|---|---|---|---|---|")
    for name, runs in results.get("evidence", {}).items():
        values = [run["log_evidence"] for run in runs]
        known, asked = (table.get(name, "") for table in (EVIDENCE, SECONDS))
        lines.append(
            f"| {name} | {max(values):,.1f} | {min(values):,.1f} | {known} "
            f"| {mean_of(runs, 'seconds'):.1f} | {asked} |"
        )
    lines += ["", "## Planted clusters", "", "4 x 3 clusters, a fifth of the cells unseen."]
    lines += ["", "| likelihood | exact numbers | others, more probable than the planted | of |"]
    lines.append("|---|---|---|---|")
    for name, found in results.get("planted", {}).items():
        exact = sum(same for same, _ in found)
        better = sum(not same and gain > 0.0 for same, gain in found)
        lines.append(f"| {name} | {exact} | {better} | {len(found)} |")
    if "triples" in results:
        found = results["triples"]
        lines += [
            "",
            "## A knowledge graph",
            "",
            f"FB15k-237, 272,115 training triples: {found['clusters']} clusters after",
            f"{found['sweeps']} sweeps, log evidence {found['log_evidence']:,.0f},",
            f"{found['seconds']:.0f} CPU s, {found['elapsed']:.0f} s on {found['jobs']} threads,",
            f"{found['gigabytes']:.1f} GB. Mean reciprocal rank of",
            f"other triples among 50 with a random head or tail: {found['mrr']:.3f}.",
        ]
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Measure the parts that are asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--parts", nargs="*", default=PARTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[*PLACES, FEATURES])
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    write_page(measure(asked.data, asked.parts, asked.only, asked.seeds, asked.jobs))


if __name__ == "__main__":
    main()
