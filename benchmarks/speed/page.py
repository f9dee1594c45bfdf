"""The page of the speed benchmarks: every number comes from a measurement."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from speed.bounded import BOUND
from speed.pictures import draw_growth, draw_peers

Answers = dict[str, dict]


def against_products(sweeps: dict) -> str:
    """Return the time of sweeps over that of the two products they cannot avoid."""
    parts = []
    for after in ("12", "100"):
        sweep = sweeps[after]
        due, everybody = (sweep[key] / sweep["products"] for key in ("sweep", "everybody"))
        parts.append(f"after {after} sweeps {due:.1f} (everybody visited: {everybody:.1f})")
    return "; ".join(parts)


def ratio(ours: dict, theirs: dict) -> str:
    """Return our time over theirs; a peer that did not end counts as its bound."""
    mark = "" if theirs["ended"] else f" at most (the peer was stopped after {BOUND} s)"
    return f"{ours['seconds'] / theirs['seconds']:.2f}{mark}"


def against_graph_tool(ours: dict, theirs: dict) -> str:
    """Compare a default fit with graph-tool's."""
    other = f"{theirs['evidence']:,.0f}" if "evidence" in theirs else "no result"
    return f"{ratio(ours, theirs)}; evidence {ours['evidence']:,.0f} against {other}"


def against_spectral(ours: dict, theirs: dict) -> str:
    """Compare a default fit with SpectralCoclustering, which is told the number of clusters."""
    clusters = f"{ours['clusters'][0]} x {ours['clusters'][1]} clusters"
    found = f"{clusters}, row ARI {ours['ari']:.3f} of {ours['best']:.3f}"
    return f"{ratio(ours, theirs)}; {found} (the peer: {theirs['ari']:.3f})"


def to_convergence(fit: dict) -> str:
    """Say how the largest fit went."""
    end = "converged" if fit["converged"] else "not converged"
    return f"{fit['seconds'] / 60:.1f} min, {fit['links'] / 1e6:.1f} M links, {end}"


def memory_growth(fit: dict) -> str:
    """Return by how much memory grew over what links and memberships take."""
    each = [f"{grown / fit['needed']:.2f}" for grown in fit["each grown"]]
    return " (first fit), ".join(each[:2]) + (" (second fit)" if len(each) > 1 else "")


def memory_growth_of_little(fit: dict) -> str:
    """Return the same where so little is needed that what every fit takes weighs more."""
    grown, needed = (f"{fit[key] / 1e6:.1f} MB" for key in ("grown", "needed"))
    return f"{memory_growth(fit)}: {grown} where {needed} are needed"


@dataclass(frozen=True)
class Line:
    """A line of the table: what is measured, what it must and should reach, and from what."""

    measure: str
    must: str
    aim: str
    tasks: tuple[str, ...]
    cell: Callable[..., str]

    def found(self, answers: Answers, source: str) -> str:
        """Return what was measured, or why nothing was."""
        for task in self.tasks:
            if task not in answers:
                return "not run"
            if "missing" in answers[task]:
                return f"{task}: not installed here ({answers[task]['missing']})"
        used = [answers[task] for task in self.tasks]
        return self.cell(*used) + marked(used, source)


def marked(used: list[dict], source: str) -> str:
    """Return a mark for figures that another state of the library gave."""
    other = sorted({answer["source"] for answer in used} - {source})
    return f" (measured at {', '.join(other)})" if other else ""


GROWTH = "growth of memory in a fit ÷ bytes of links by row and by column plus memberships"
LINES = [
    Line(
        "ml1m, K = 40, one thread: settled sweep ÷ (X @ R plus X.T @ Q by SciPy)",
        "5",
        "3",
        ("sweep ml1m",),
        against_products,
    ),
    Line("ArtistXTag, K = 80: the same", "40", "15", ("sweep artistxtag",), against_products),
    Line(
        "two threads ÷ one thread, sweep on imdb50k, K = 40",
        "0.6",
        "0.53",
        ("threads",),
        lambda threads: f"{threads['ratio']:.2f}",
    ),
    Line(
        "default fit, ArtistXTag: time ÷ graph-tool's nested fit",
        "0.5, better evidence",
        "0.2",
        ("fit artistxtag", "graph-tool artistxtag"),
        against_graph_tool,
    ),
    Line(
        "default fit, ml1m: time ÷ graph-tool's flat fit",
        "0.5, better evidence",
        "0.1",
        ("fit ml1m", "graph-tool ml1m"),
        against_graph_tool,
    ),
    Line(
        "default fit, generated 20,000 x 5,000, 12 x 10 blocks, 0.8 M links: time ÷ "
        "SpectralCoclustering with the true K",
        "4, ARI 0.95",
        "2",
        ("fit 20,000", "spectral 20,000"),
        against_spectral,
    ),
    Line(
        "the same, 200,000 x 20,000, 20 x 15 blocks, 5 M links",
        "8, ARI 0.93",
        "3",
        ("fit 200,000", "spectral 200,000"),
        against_spectral,
    ),
    Line(
        "rows and links doubled three times, K = 20: exponent of the sweep's time",
        "1.1",
        "1.0",
        ("growth",),
        lambda growth: f"{growth['exponent']:.2f}",
    ),
    Line(
        "480,189 x 17,770, heavy-tailed degrees, K = 60, to convergence",
        "30 min",
        "10 min",
        ("fit netflix",),
        to_convergence,
    ),
    Line(
        "its peak memory, Python, libraries and the links as given included",
        "2 GB",
        "1 GB",
        ("fit netflix",),
        lambda fit: f"{fit['peak'] / 1e9:.2f} GB",
    ),
    Line(GROWTH + ": 20,000 x 5,000", "2.5", "", ("fit 20,000",), memory_growth),
    Line("the same, 200,000 x 20,000", "2.5", "", ("fit 200,000",), memory_growth),
    Line("the same, 480,189 x 17,770", "2.5", "", ("fit netflix",), memory_growth),
    Line("the same, ml1m", "2.5", "", ("fit ml1m",), memory_growth),
    Line("the same, ArtistXTag", "2.5", "", ("fit artistxtag",), memory_growth_of_little),
    Line(
        "a second process, from its start to the end of a first sweep",
        "3 s",
        "",
        ("first use",),
        lambda use: f"{use['seconds']:.1f} s",
    ),
]

HEAD = """# Speed

Written by `make bench`; every figure is measured, at source {source}{others}, on {machine}. Every
measurement has a process of its own. Peers are seeded and each of their runs is stopped after
{bound} s; graph-tool runs with seeds 1 to 3, of which the median time, the most memory and the best
result count. Evidence is that of the labels under coblock's model, for all programs alike.

"Settled" sweeps are those of CVB0 from the spectral start after 12 sweeps, and after 100; objects
that have stopped moving rest in them. The growth of memory is the peak of resident memory during a
fit less what was resident before: Python, libraries, kernels (a small fit has loaded them) and the
links as given; what was freed before that has been given back to the system. Peak memory is all of
a process: the links as given and, of a peer, its libraries.

| measure | must | aim | found |
|---|---|---|---|
"""
FITS = """
## All fits

| fit | seconds | clusters | evidence | row ARI | peak memory |
|---|---|---|---|---|---|
"""


def write_page(answers: Answers, machine: str, docs: Path) -> None:
    """Write benchmarks.md and its pictures with everything that was measured."""
    counts = Counter(answer["source"] for answer in answers.values())
    source = counts.most_common(1)[0][0] if counts else "unknown"
    others = " where nothing else is said" if len(counts) > 1 else ""
    head = HEAD.format(source=source, others=others, machine=machine, bound=BOUND)
    lines = [
        f"| {line.measure} | {line.must} | {line.aim} | {line.found(answers, source)} |"
        for line in LINES
    ]
    fits = [fit_line(name, answers[name], source) for name in answers if is_fit(name)]
    pictures = []
    (docs / "images").mkdir(exist_ok=True)
    if any("evidence" in answer for answer in answers.values()):
        draw_peers(answers, docs / "images" / "peers.svg")
        pictures.append("![Time and evidence of coblock and its peers](images/peers.svg)")
    if "growth" in answers:
        draw_growth(answers["growth"], docs / "images" / "growth.svg")
        pictures.append("![Time of a sweep against the number of links](images/growth.svg)")
    text = head + "\n".join(lines) + "\n" + FITS + "\n".join(fits) + "\n"
    text += "".join(f"\n{picture}\n" for picture in pictures)
    (docs / "benchmarks.md").write_text(text, encoding="utf-8")


def is_fit(name: str) -> bool:
    """Say whether a measurement is a fit, of coblock or of a peer."""
    return name.partition(" ")[0] in {"fit", "graph-tool", "spectral", "leiden", "sparsebm"}


def fit_line(name: str, fit: dict, source: str) -> str:
    """Return the line of one fit."""
    if "missing" in fit:
        return f"| {name} | not installed here: {fit['missing']} | | | | |"
    seconds = f"{fit['seconds']:.1f}" + ("" if fit.get("ended", True) else " (stopped)")
    shape = "{} x {}".format(*fit["clusters"]) if "clusters" in fit else "none"
    evidence = f"{fit['evidence']:,.0f}" if "evidence" in fit else "none"
    ari = f"{fit['ari']:.3f}" if "ari" in fit else ""
    memory = f"{fit['peak'] / 1e9:.2f} GB"
    name += marked([fit], source)
    return f"| {name} | {seconds} | {shape} | {evidence} | {ari} | {memory} |"
