"""Compare held-out log likelihood of the six methods with the paper; writes docs/inference.md.

    python benchmarks/inference.py [--runs 5] [--data synth1 synth2 lastfm_userxuser] [--out FILE]
                                   [--clusters 20 40 60] [--sweeps synth1 enron156_200106 ...]

Random start, K = 20, no search: the paper's settings, except for the hyperparameter updates.
"""

import argparse
import sys
import warnings
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from data import Trial
from paper.published import CPU_TIME, value
from sklearn.exceptions import ConvergenceWarning

from coblock import IRM

TITLE = "# The six methods with the paper's settings\n"
METHODS = ("acvb0", "acvb", "cvb0", "cvb", "vb", "gibbs")
MAX_ITER = {"acvb": 60, "cvb": 60, "gibbs": 150}  # sweeps of the slow methods
MOST_SWEEPS = 5000  # of CVB0 and ACVB0 to convergence
CONVERGING = ("synth1", *(f"enron156_2001{month}" for month in ("06", "08", "10", "12")), "synth2")
PAPER = {  # held-out log likelihood, tab:results_loglk_K20
    "synth1": {"gibbs": -0.3696, "vb": -0.3260, "acvb": -0.3337, "acvb0": -0.3372},
    "synth2": {"gibbs": -0.3721, "vb": -0.3737, "acvb": -0.3348, "acvb0": -0.3261},
    "lastfm_userxuser": {"gibbs": -0.0283, "vb": -0.0287, "acvb": -0.0271, "acvb0": -0.0267},
}


def run(name: str, inference: str, seed: int) -> tuple[float, float, int, float]:
    """Return held-out score, its difference from the oracle, sweeps and seconds of one fit."""
    trial = Trial.draw(name, seed)
    model = IRM(
        inference=inference,
        init="random",
        refine=False,
        max_clusters=20,
        max_iter=MAX_ITER.get(inference, 500),
        random_state=seed,
    )
    began = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(trial.X, unseen=trial.unseen)
    seconds = perf_counter() - began
    score = model.score_links(*trial.cells)
    return score, score - trial.oracle, model.n_iter_, seconds


def table(names: list[str], runs: int) -> str:
    """Return a table of all methods and relations in Markdown."""
    lines = [
        "| relation | method | held-out | ± | minus oracle | the paper | sweeps | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        for inference in METHODS:
            IRM(inference=inference, max_iter=12, tol=0).fit(np.eye(9))  # compiles
            values = np.array([run(name, inference, seed) for seed in range(runs)])
            score, gap, sweeps, seconds = values.mean(axis=0)
            paper = PAPER.get(name, {}).get(inference)
            cells = [
                name,
                inference,
                f"{score:.4f}",
                f"{values[:, 0].std():.4f}",
                "" if np.isnan(gap) else f"{gap:.4f}",
                "" if paper is None else f"{paper:.4f}",
                f"{sweeps:.0f}",
                f"{seconds:.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
            sys.stderr.write(lines[-1] + "\n")
    return "\n".join(lines)


def sweep_table(names: list[str], clusters: list[int], runs: int) -> str:
    """Return sweeps and CPU seconds of CVB0 and ACVB0 to convergence, in Markdown."""
    lines = [
        "| relation | K | prior | CVB0 sweeps | ACVB0 sweeps | ratio: mean, largest | "
        "ACVB0 CPU seconds | the paper | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        for K in clusters:
            for prior, rule in (("shared", "newton"), ("per-block", "fixed-point")):
                pairs = [sweeps_to_convergence(name, K, seed, prior, rule) for seed in range(runs)]
                (cvb0, _), (acvb0, seconds) = np.mean(pairs, axis=0)
                ratios = [other[0] / one[0] for one, other in pairs]
                paper = value(CPU_TIME, name, "acvb0", K)
                published = "|" if paper is None else f"{paper.mean:g} | {seconds / paper.mean:.2f}"
                lines.append(
                    f"| {name} | {K} | {prior} | {cvb0:.0f} | {acvb0:.0f} | {np.mean(ratios):.2f}, "
                    f"{max(ratios):.2f} | {seconds:.2f} | {published} |"
                )
                sys.stderr.write(lines[-1] + "\n")
    return "\n".join(lines)


def sweeps_to_convergence(
    name: str, K: int, seed: int, prior: str, rule: str
) -> list[tuple[float, float]]:
    """Return sweeps and CPU seconds of CVB0 and of ACVB0 from the same start."""
    trial, found = Trial.draw(name, seed), []
    for inference in ("cvb0", "acvb0"):
        model = IRM(
            inference=inference,
            init="random",
            refine=False,
            batch_size=1,
            prior=prior,
            hyperparameters=rule,
            max_clusters=K,
            max_iter=MOST_SWEEPS,
            random_state=seed,
        )
        began = process_time()
        model.fit(trial.X, unseen=trial.unseen)
        found.append((model.n_iter_ if model.converged_ else np.nan, process_time() - began))
    return found


def main() -> None:
    """Print the page, or write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", nargs="+", default=list(PAPER))
    parser.add_argument("--sweeps", nargs="+", default=list(CONVERGING))
    parser.add_argument("--clusters", nargs="+", type=int, default=[20, 40, 60])
    parser.add_argument("--parts", nargs="+", default=["sweeps", "methods"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    page = options.out.read_text() if options.out and options.out.exists() else TITLE
    sections = dict(part.split("\n\n", 1) for part in page.split("\n## ")[1:])
    began = f"Written by `benchmarks/inference.py --runs {options.runs}`. Random start, no search, "
    began += f"10 % of the cells held out, mean over seeds 0 to {options.runs - 1}. "
    if "sweeps" in options.parts:
        sections["Sweeps to convergence"] = (
            f"{began}tol = 1e-5, one object after another. Per block: the fixed points of the "
            f"paper, with a hyperprior.\n\n"
            f"{sweep_table(options.sweeps, options.clusters, options.runs)}\n"
        )
    if "methods" in options.parts:
        sections["Held-out log likelihood"] = (
            f"{began}K = 20. Second order ends after {MAX_ITER['acvb']} sweeps, Gibbs after "
            f"{MAX_ITER['gibbs']}. The synthetic relations of the paper are other draws: compare "
            "with the oracle. The machine was shared, so seconds are approximate.\n\n"
            f"{table(options.data, options.runs)}\n"
        )
    text = "".join((TITLE, *(f"\n## {name}\n\n{body}" for name, body in sections.items())))
    if options.out is None:
        sys.stdout.write(text)
    else:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
