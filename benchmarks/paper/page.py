"""Write docs/paper.md; every number on it comes from a finished run."""

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from data import load

import coblock
from paper import published
from paper.experiments import (
    CLUSTERS,
    COMPARISONS,
    CONVERGENCE,
    CURVES,
    DEFAULT,
    ENRON,
    GIBBS_SWEEPS,
    IN_BATCHES,
    METHOD_TITLES,
    MOST_SWEEPS,
    PICTURES,
    SMALL,
    THRESHOLDS,
    TITLES,
    describe_call,
    is_available,
    plan,
    runs_of,
)
from paper.figures import draw_all, picture_clusters
from paper.protocol import GRACE
from paper.results import Results
from paper.store import Store, current_commit, write_atomically
from paper.tables import (
    command,
    comparison_table,
    large_table,
    markdown,
    naive_table,
    score_table,
    size_table,
    time_table,
    unseen_table,
)
from paper.verdicts import (
    all_verdicts,
    default_below_plain,
    interpretation,
    worse_experiments,
)


@dataclass(frozen=True)
class Request:
    """The options of the command."""

    runs: int
    minutes: float
    limit: float
    sweeps: int | None
    workers: int


def write_page(path: Path, images: Path, store: Store, request: Request) -> None:
    """Draw the figures and write the page, completely or not at all."""
    results = Results(store, request.runs)
    drawn = draw_all(results, images)
    links = {
        name: None if picture is None else os.path.relpath(picture, path.parent)
        for name, picture in drawn.items()
    }
    lines = [
        *_head(results, request),
        *_agreements(results),
        *_scores(results),
        *_times(results),
        *_figures(results, links),
        *_linear(results, links),
        *_additional(results),
        *_settings(),
    ]
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def _head(results: Results, request: Request) -> Iterator[str]:
    jobs = plan(request.runs)
    finished = [record for job in jobs if (record := results.store.get(job)) is not None]
    commits = ", ".join(sorted({record["commit"] for record in finished})) or "none"
    fewer = "" if request.sweeps is None else f", at most {request.sweeps} sweeps (a trial)"
    yield from (
        "# The paper's experiments",
        "",
        "Ishiguro, Sato and Ueda, *Averaged Collapsed Variational Bayes Inference*; tables and "
        "equations are cited by the labels of arXiv:1409.4757. `make paper DATA=folder` writes "
        "this page and its figures from measurements.",
        "",
        f"Commit {current_commit()}, version {coblock.__version__}; measured at commit {commits}. "
        f"{len(finished)} of {len(jobs)} runs are finished; for the others, the page "
        "says *not run* and how to run them. "
        f"{_seeds_sentence(request.runs)}, budget of the last call {request.minutes:g} minutes, "
        f"{request.limit:g} CPU seconds per fit{fewer}, {request.workers} processes with one "
        f"thread each. Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{platform.machine()}, {os.cpu_count()} cores.",
        "",
        "Notes on the comparison:",
        "",
        "- Lastfm UserXUser and ArtistXTag have the same sizes and numbers of links as in the "
        "paper. Their values can be compared directly.",
        f"- {_enron_sentence()} The synthetic relations have the same sizes and are drawn anew for "
        "every seed. On these, compare the order of the methods, not the values.",
        "- A tenth of all cells is unseen in training. The cells depend on the seed and are the "
        "same for all methods.",
        "- The paper reports the best of several initial hyperparameters; here there is one, "
        "but for a table at the end. It does not state the length of its burn-in; here it lasts "
        "until memberships change little. Gibbs uses the shared prior here.",
        "- The paper learns a prior for each block by a fixed point without a finite limit (MODEL "
        "8): memberships move for thousands of sweeps, with second order for ever. Here the priors "
        "of the blocks have Gamma(2, 1) hyperpriors, so that every method converges.",
        "- The best of the paper's four methods is bold; `*` marks those that are significantly "
        "worse (t-test of two samples, p < 0.05, at least two runs). coblock's default has no K. "
        "It is bold if it is at least as good as the best of the four; `+` marks significantly "
        "better, `-` significantly worse. The standard deviation over runs is in parentheses.",
        "- † marks values with runs that were stopped at the limit; Gibbs then has fewer than "
        f"{GIBBS_SWEEPS:,} sweeps, of which the second half is kept. coblock's default gets "
        f"{GRACE[DEFAULT]:g} times the limit, because an incomplete search is not meaningful.",
        "- If methods have different numbers of runs, bold print and marks compare common seeds, "
        "because the held-out cells depend on the seed.",
        "",
        f"Relations (`{published.SIZES}` of the paper):",
        "",
        *size_table(),
    )


def _seeds_sentence(runs: int) -> str:
    """Return the seeds of the plan."""
    most = runs_of(ENRON[0], runs)
    more = "" if most == runs else f" (0 to {most - 1} for synthetic relations and Enron)"
    return f"Seeds 0 to {runs - 1}{more}"


def _enron_sentence() -> str:
    """Return how the Enron relation differs from that of the paper."""
    theirs = published.size(ENRON[0])
    assert theirs is not None
    if not is_available(ENRON[0]):
        return f"Enron is not in the data folder; that of the paper has {theirs[0]} people."
    people = load(ENRON[0]).shape[0]
    return f"Enron has {people} people here and {theirs[0]} in the paper: another set of e-mails."


def _agreements(results: Results) -> Iterator[str]:
    yield from ("", "## Agreements and disagreements", "")
    rows = [(one.statement, one.measured, one.conclusion) for one in all_verdicts(results)]
    yield from markdown(["statement of the paper", "measured", "verdict"], rows)
    yield ""
    worse, below = worse_experiments(results), default_below_plain(results)
    yield (
        "Lower means than in the paper, on relations with the same counts: "
        f"{'; '.join(worse) if worse else 'none in the finished runs'}."
    )
    yield ""
    yield (
        "Experiments in which coblock's default predicts worse than the best plain method: "
        f"{'; '.join(below) if below else 'none in the finished runs'}."
    )


def _scores(results: Results) -> Iterator[str]:
    yield from ("", "## Held-out log likelihood per cell")
    for K in CLUSTERS:
        source = published.LOG_LIKELIHOOD.format(K)
        yield from ("", f"### Likelihood, K = {K}", "", f"`{source}` of the paper.", "")
        yield from score_table(results, K)
    yield from ("", "### Difference from the true blocks", "", *_oracle(results))


def _oracle(results: Results) -> Iterator[str]:
    """Yield the difference from the likelihood of the true blocks on generated relations."""
    rows = []
    for relation in SMALL:
        cells = []
        for method in METHOD_TITLES:
            gaps = [r["score"] - r["oracle"] for r in results.records(relation, method, 20)]
            cells.append(f"{np.mean(gaps):+.4f}" if gaps else "not run")
        rows.append([TITLES[relation], *cells])
    yield from (
        "Mean difference of the held-out score from that of the true blocks, K = 20.",
        "",
    )
    yield from markdown(["relation", *METHOD_TITLES.values()], rows)


def _times(results: Results) -> Iterator[str]:
    yield from (
        "",
        "## CPU time",
        "",
        "CPU seconds until the change fell below the threshold, without compilation. The change is "
        "that of the bound for VB and that of memberships for ACVB and ACVB0, which are different "
        "criteria; the first table compares all methods by each of them. The bound and the "
        "leave-one-out likelihood are included; the paper excludes them. `>` marks values with "
        f"runs that reached the limit or {MOST_SWEEPS:,} sweeps before; all their time is counted. "
        "The time of Gibbs is that of all sweeps, the time of coblock includes the search. The "
        "paper used another machine.",
    )
    for threshold in sorted(THRESHOLDS):
        for K in CLUSTERS:
            yield from ("", f"### CPU time to {threshold:.0e}, K = {K}", "")
            if threshold == min(THRESHOLDS):
                yield from (f"`{published.CPU_TIME.format(K)}` of the paper.", "")
            yield from time_table(results, K, threshold)


def _figures(results: Results, links: dict[str, str | None]) -> Iterator[str]:
    yield from ("", "## Figures", "", "### Bound and leave-one-out likelihood over sweeps", "")
    yield (
        "Naive VB bound (solid) and pseudo leave-one-out log likelihood (dashed): means and "
        "standard deviations over the runs, K = 20, settings of the paper."
    )
    for method in CONVERGENCE:
        call = command(results.runs, SMALL, methods=[method])
        yield from _picture(links[f"convergence-{method}"], f"{method.upper()} over sweeps", call)
    yield from ("", "### Held-out likelihood over CPU time", "")
    yield (
        "One line per run with a dot at its end, the same seeds for all methods. For Gibbs, the "
        "likelihood is that of single samples, not of their average."
    )
    for relation, K in CURVES:
        title = f"{TITLES[relation]}, K = {K}"
        call = command(results.runs, [relation], methods=METHOD_TITLES, clusters=[K])
        yield from _picture(links[f"curve-{relation}-K{K}"], title, call)
    yield from ("", "### Most probable blocks", "")
    yield "Rows and columns are sorted by their most probable clusters; seed 0."
    for relation in PICTURES:
        shown = picture_clusters(results, relation)
        title = TITLES[relation] + ("" if shown is None else f", K = {shown} (the paper: 60)")
        call = command(results.runs, [relation], methods=METHOD_TITLES, clusters=[60])
        yield from _picture(links[f"blocks-{relation}"], title, call)


def _picture(link: str | None, title: str, call: str) -> Iterator[str]:
    yield ""
    yield f"{title}: not run. {call}" if link is None else f"![{title}]({link})"


def _linear(results: Results, links: dict[str, str | None]) -> Iterator[str]:
    yield from ("", "## Linear against naive time", "")
    yield (
        "CPU seconds of one sweep of CVB0 with fixed hyperparameters. The naive sweep reads every "
        "cell for every pair of clusters; it exists in the benchmark only. The ratio of the paper "
        "is that of the times until convergence."
    )
    yield from ("", *naive_table(results))
    call = command(results.runs, (job.relation for job in plan(1) if job.part == "growth"))
    yield from _picture(links["growth"], "Seconds per sweep against size", call)
    yield from (
        "",
        "## Large relations",
        "",
        f"CPU seconds until 1e-5, per sweep in parentheses, nothing unseen (`{published.LARGE}`). "
        "ACVB0 has the settings of the paper, but updates in batches; coblock has default "
        "settings. `>` marks fits that had not converged at the limit. Generated relations have "
        "planted blocks and the size and number of links of the relation in their name.",
        "",
        *large_table(results),
    )


def _additional(results: Results) -> Iterator[str]:
    yield from ("", "## Experiments that are not in the paper", "")
    yield "Held-out log likelihood; clusters found; CPU seconds. K = 20."
    for name, comparison in COMPARISONS.items():
        yield from ("", f"### {comparison.title}", "", *comparison_table(results, name))
        yield from ("", interpretation(results, name))
        if name == "missing":
            yield from ("", "### Unseen cells in linear time", "", *unseen_table(results))


def _settings() -> Iterator[str]:
    yield from ("", "## Settings", "", "With K = 20 as an example; `seed` starts at 0.", "")
    variants = [name for one in COMPARISONS.values() for name in one.variants]
    for method in dict.fromkeys((*METHOD_TITLES, *CONVERGENCE, *variants, IN_BATCHES)):
        title = "coblock" if method == DEFAULT else method
        note = ", held-out cells counted as zeros" if method == "acvb0-zeros" else ""
        yield f"- {title}: `{describe_call(method, 20)}`{note}"
