"""Writes docs/paper.md: every number on it comes out of the finished runs."""

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from data import load

import coblock
from paper import published
from paper.evidence import Evidence
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
    described,
    is_here,
    plan,
)
from paper.figures import draw_all, picture_clusters
from paper.protocol import GRACE
from paper.store import Store, commit, write_whole
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
    worse_cells,
)


@dataclass(frozen=True)
class Request:
    """What the command was asked for."""

    runs: int
    minutes: float
    limit: float
    sweeps: int | None
    workers: int


def write_page(path: Path, images: Path, store: Store, request: Request) -> None:
    """Draw the pictures and write the page, whole or not at all."""
    evidence = Evidence(store, request.runs)
    drawn = draw_all(evidence, images)
    links = {
        name: None if picture is None else os.path.relpath(picture, path.parent)
        for name, picture in drawn.items()
    }
    lines = [
        *_head(evidence, request),
        *_agreements(evidence),
        *_scores(evidence),
        *_times(evidence),
        *_figures(evidence, links),
        *_linear(evidence, links),
        *_unknown_to_the_paper(evidence),
        *_settings(),
    ]
    write_whole(path, ("\n".join(lines) + "\n").encode())


def _head(evidence: Evidence, request: Request) -> Iterator[str]:
    jobs = plan(request.runs)
    finished = [record for job in jobs if (record := evidence.store.get(job)) is not None]
    commits = ", ".join(sorted({record["commit"] for record in finished})) or "none"
    fewer = "" if request.sweeps is None else f", at most {request.sweeps} sweeps (a trial)"
    yield from (
        "# The paper's experiments",
        "",
        "Ishiguro, Sato and Ueda, *Averaged Collapsed Variational Bayes Inference*; tables and "
        "equations by the labels of arXiv:1409.4757. `make paper DATA=folder` writes this page "
        "and its pictures; nothing on it is typed by hand.",
        "",
        f"Commit {commit()}, version {coblock.__version__}, state of the code "
        f"`{evidence.store.state}`, runs made at commit {commits}. {len(finished)} of {len(jobs)} "
        "runs are finished; what is not says *not run* and how to run it. "
        f"Seeds 0 to {request.runs - 1}, budget of the last call {request.minutes:g} minutes, "
        f"{request.limit:g} CPU seconds per fit{fewer}, {request.workers} processes with one "
        f"thread each. Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{platform.machine()}, {os.cpu_count()} cores.",
        "",
        "What to know before comparing:",
        "",
        "- Lastfm UserXUser and ArtistXTag have exactly the paper's counts: compare these.",
        f"- {_enron_sentence()} The synthetic relations are other draws of the same sizes, a new "
        "one for every seed. Compare methods there, not figures.",
        "- A tenth of all cells is unseen in training, drawn anew for every seed, the same for "
        "all methods.",
        "- The paper tries several starting hyperparameters and reports the best; we run one. It "
        "does not say how long its burn-in is; ours lasts until memberships change little. "
        "Gibbs has the shared prior here.",
        "- Bold is the best of the paper's four methods, `*` one that it beats significantly "
        "(t-test on two samples, p < 0.05, from two runs on). coblock's default has no K; it is "
        "bold if it is at least as good, `+` if it beats the best of the four significantly, "
        "`-` if that beats it. In brackets the standard deviation over runs.",
        "- † some runs were cut off by the limit; Gibbs then has fewer sweeps than "
        f"{GIBBS_SWEEPS:,}, of which the second half is kept. coblock's default gets "
        f"{GRACE[DEFAULT]:g} times the limit: half a search is worth little.",
        "- Where methods have different numbers of runs, bold and marks go by the seeds they "
        "share: other seeds are other cells, and other draws.",
        "",
        f"Relations (the paper: `{published.SIZES}`):",
        "",
        *size_table(),
    )


def _enron_sentence() -> str:
    """Say how our Enron differs from the paper's."""
    theirs = published.size(ENRON[0])
    assert theirs is not None
    if not is_here(ENRON[0]):
        return f"Enron is not in the folder of the data; the paper's has {theirs[0]} people."
    people = load(ENRON[0]).shape[0]
    return f"Our Enron has {people} people, the paper's {theirs[0]}: another extract of the mails."


def _agreements(evidence: Evidence) -> Iterator[str]:
    yield from ("", "## Agreements and disagreements", "")
    rows = [(one.statement, one.measured, one.conclusion) for one in all_verdicts(evidence)]
    yield from markdown(["the paper says", "measured here", "verdict"], rows)
    yield ""
    worse, below = worse_cells(evidence), default_below_plain(evidence)
    yield (
        "Where we do worse than the paper on the same counts: "
        f"{'; '.join(worse) if worse else 'nowhere among the runs so far'}."
    )
    yield ""
    yield (
        "Where coblock's default predicts worse than the best plain method: "
        f"{'; '.join(below) if below else 'nowhere among the runs so far'}."
    )


def _scores(evidence: Evidence) -> Iterator[str]:
    yield from ("", "## Held-out log likelihood per cell")
    for K in CLUSTERS:
        source = published.LOG_LIKELIHOOD.format(K)
        yield from ("", f"### Likelihood, K = {K}", "", f"The paper: `{source}`.", "")
        yield from score_table(evidence, K)
    yield from ("", "### Distance to the truth", "", *_oracle(evidence))


def _oracle(evidence: Evidence) -> Iterator[str]:
    """Held-out likelihood less that of the true blocks, on drawn relations, K = 20."""
    rows = []
    for relation in SMALL:
        cells = []
        for method in METHOD_TITLES:
            gaps = [r["score"] - r["oracle"] for r in evidence.records(relation, method, 20)]
            cells.append(f"{np.mean(gaps):+.4f}" if gaps else "not run")
        rows.append([TITLES[relation], *cells])
    yield from ("Mean of our score less that of the true blocks, K = 20.", "")
    yield from markdown(["relation", *METHOD_TITLES.values()], rows)


def _times(evidence: Evidence) -> Iterator[str]:
    yield from (
        "",
        "## CPU time",
        "",
        "CPU seconds until the change fell below the threshold; compilation is not in it, the "
        "monitored quantities are (the paper leaves them out). `>`: some runs never came so far, "
        "by the limit or by the number of sweeps "
        f"({MOST_SWEEPS:,}); their whole time is counted. Gibbs: all its sweeps. coblock: search "
        "and all. The paper's machine is another one.",
    )
    for threshold in sorted(THRESHOLDS):
        for K in CLUSTERS:
            yield from ("", f"### CPU time to {threshold:.0e}, K = {K}", "")
            if threshold == min(THRESHOLDS):
                yield from (f"The paper: `{published.CPU_TIME.format(K)}`.", "")
            yield from time_table(evidence, K, threshold)


def _figures(evidence: Evidence, links: dict[str, str | None]) -> Iterator[str]:
    yield from ("", "## Figures", "", "### The two quantities over sweeps", "")
    yield (
        "Naive VB bound (solid) and pseudo leave-one-out log likelihood (dashed), means and "
        "deviations over the runs, K = 20, the paper's settings."
    )
    for method in CONVERGENCE:
        call = command(evidence.runs, SMALL, methods=[method])
        yield from _picture(links[f"convergence-{method}"], f"{method.upper()} over sweeps", call)
    yield from ("", "### Held-out likelihood against CPU time", "")
    yield (
        "One line per run, the same seeds for all, a dot at its end; Gibbs shows its samples, not "
        "their average."
    )
    for relation, K in CURVES:
        title = f"{TITLES[relation]}, K = {K}"
        call = command(evidence.runs, [relation], methods=METHOD_TITLES, clusters=[K])
        yield from _picture(links[f"curve-{relation}-K{K}"], title, call)
    yield from ("", "### Most probable blocks", "")
    yield "Rows and columns sorted by their most probable clusters, seed 0."
    for relation in PICTURES:
        shown = picture_clusters(evidence, relation)
        title = TITLES[relation] + ("" if shown is None else f", K = {shown} (the paper: 60)")
        call = command(evidence.runs, [relation], methods=METHOD_TITLES, clusters=[60])
        yield from _picture(links[f"blocks-{relation}"], title, call)


def _picture(link: str | None, title: str, call: str) -> Iterator[str]:
    yield ""
    yield f"{title}: not run. {call}" if link is None else f"![{title}]({link})"


def _linear(evidence: Evidence, links: dict[str, str | None]) -> Iterator[str]:
    yield from ("", "## Linear against naive time", "")
    yield (
        "CPU seconds of one sweep of CVB0 with fixed hyperparameters. The naive form looks at "
        "every cell for every pair of clusters; it exists in the benchmark only. The paper's "
        "ratio is that of its times until convergence."
    )
    yield from ("", *naive_table(evidence))
    call = command(evidence.runs, (job.relation for job in plan(1) if job.part == "growth"))
    yield from _picture(links["growth"], "Seconds per sweep against size", call)
    yield from (
        "",
        "## Large relations",
        "",
        f"CPU seconds until 1e-5, in brackets per sweep, nothing unseen (`{published.LARGE}`). "
        "ACVB0 with the paper's settings but in batches, coblock with none. `>`: had not converged "
        "when it was cut off. Generated relations have planted blocks and the shape named.",
        "",
        *large_table(evidence),
    )


def _unknown_to_the_paper(evidence: Evidence) -> Iterator[str]:
    yield from ("", "## What the paper did not know", "")
    yield "Held-out log likelihood; clusters found; CPU seconds. K = 20, random start but for one."
    for name, comparison in COMPARISONS.items():
        yield from ("", f"### {comparison.title}", "", *comparison_table(evidence, name))
        yield from ("", interpretation(evidence, name))
        if name == "missing":
            yield from ("", "### Unseen cells in linear time", "", *unseen_table(evidence))


def _settings() -> Iterator[str]:
    yield from ("", "## Settings", "", "Shown with K = 20; `seed` runs from 0.", "")
    variants = [name for one in COMPARISONS.values() for name in one.variants]
    for method in dict.fromkeys((*METHOD_TITLES, *CONVERGENCE, *variants, IN_BATCHES)):
        title = "coblock" if method == DEFAULT else method
        note = ", held-out cells taken for zeros" if method == "acvb0-zeros" else ""
        yield f"- {title}: `{described(method, 20)}`{note}"
