"""What the paper says, what was measured, and whether the two agree: sentences from numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from paper import published
from paper.evidence import Evidence, Summary, best_of, better, gap
from paper.experiments import (
    CLUSTERS,
    COMPARISONS,
    CONVERGENCE,
    DEFAULT,
    ENRON,
    GROWTH,
    LASTFM,
    METHOD_TITLES,
    PAPER_METHODS,
    PROTOCOL,
    SMALL,
    THRESHOLDS,
    TITLES,
)
from paper.tables import NOT_RUN, counted, number

AGREES, IN_PART, DISAGREES = "agrees", "agrees in part", "disagrees"
DEAR = 20.0  # times a linear sweep; a form that looks at every cell costs more on sparse data
BETTER, EQUAL, WORSE = "better than the paper", "as in the paper", "**worse than the paper**"


@dataclass(frozen=True)
class Verdict:
    """A statement of the paper, what we measured of it, and the conclusion."""

    statement: str
    measured: str
    conclusion: str


def unknown(statement: str) -> Verdict:
    """Return the verdict on a statement that nothing has been run for."""
    return Verdict(statement, NOT_RUN, NOT_RUN)


def all_verdicts(evidence: Evidence) -> list[Verdict]:
    """Return every verdict, those on what must be reached first."""
    return [verdict for judge in JUDGES for verdict in judge(evidence)]


def acvb0_matches(evidence: Evidence) -> Iterator[Verdict]:
    """ACVB0 with the paper's settings against the paper, where the counts are the same."""
    for relation in LASTFM:
        for K in CLUSTERS:
            paper = published.figure(published.LOG_LIKELIHOOD, relation, "acvb0", K)
            assert paper is not None
            statement = (
                f"ACVB0 on {TITLES[relation]}, K = {K}: {paper.mean:.4f} ({paper.deviation:.4f})"
            )
            ours = evidence.scores(relation, "acvb0", K)
            yield unknown(statement) if ours is None else _against(statement, ours, paper)


def default_beats_the_best(evidence: Evidence) -> Iterator[Verdict]:
    """Compare coblock's default with the paper's best method, where the counts are the same."""
    for relation in LASTFM:
        for K in CLUSTERS:
            found = published.best(relation, K)
            assert found is not None
            method, paper = found
            statement = (
                f"the paper's best on {TITLES[relation]}, K = {K}, is "
                f"{PAPER_METHODS[method]}: {paper.mean:.4f} ({paper.deviation:.4f}); "
                "here against coblock's default"
            )
            ours = evidence.scores(relation, DEFAULT, K)
            yield unknown(statement) if ours is None else _against(statement, ours, paper)


def _against(statement: str, ours: Summary, paper: published.Figure) -> Verdict:
    """Return better or worse if the difference exceeds the paper's deviation."""
    ahead, deviation = ours.mean - paper.mean, paper.deviation or 0.0
    conclusion = EQUAL if abs(ahead) <= deviation else BETTER if ahead > 0 else WORSE
    spread = f" ({ours.deviation:.4f})" if ours.values.size > 1 else ""
    cut = ", some cut off by the limit" if ours.truncated else ""
    runs = f"in {counted(ours.values.size)}{cut}"
    return Verdict(statement, f"{ours.mean:.4f}{spread} {runs}: {ahead:+.4f}", conclusion)


def order_of_methods(evidence: Evidence) -> Iterator[Verdict]:
    """Judge what the paper says about which method predicts better."""
    large = ("synth2", *LASTFM)
    pairs = (
        ("ACVB0 is always significantly better than VB on the larger relations", "acvb0", "vb"),
        ("ACVB is better than VB on the larger relations", "acvb", "vb"),
        (
            "3,000 sweeps of Gibbs predict worse than ACVB0 on the larger relations",
            "acvb0",
            "gibbs",
        ),
    )
    for statement, winner, loser in pairs:
        yield _how_often(evidence, statement, large, winner, loser)
    small = ("synth1", *ENRON)
    yield _how_often(evidence, "VB is better than ACVB0 on Synth1", ("synth1",), "vb", "acvb0")
    yield _no_advantage(evidence, small)


def _comparisons(
    evidence: Evidence, relations: tuple[str, ...], one: str, other: str
) -> list[tuple[Summary, Summary]]:
    """Return the pairs of summaries over relations and K for which both have run."""
    pairs = []
    for relation in relations:
        for K in CLUSTERS:
            first = evidence.scores(relation, one, K)
            second = evidence.scores(relation, other, K)
            if first is not None and second is not None and gap(first, second) is not None:
                pairs.append((first, second))
    return pairs


def _how_often(
    evidence: Evidence, statement: str, relations: tuple[str, ...], winner: str, loser: str
) -> Verdict:
    """Count how often one method is better than another."""
    pairs = _comparisons(evidence, relations, winner, loser)
    if not pairs:
        return unknown(statement)
    gaps = np.array([gap(first, second) for first, second in pairs], dtype=float)
    ahead = int((gaps > 0).sum())
    surely = sum(better(first, second) is True for first, second in pairs)
    measured = (
        f"{METHOD_TITLES[winner]} ahead of {METHOD_TITLES[loser]} in {ahead} of {len(pairs)} "
        f"cells, significantly in {surely}; mean difference {gaps.mean():+.4f}"
    )
    partly = IN_PART if 2 * ahead > len(pairs) else DISAGREES
    return Verdict(statement, measured, AGREES if ahead == len(pairs) else partly)


def _no_advantage(evidence: Evidence, relations: tuple[str, ...]) -> Verdict:
    statement = "ACVB0 has no significant advantage over VB on Synth1 and Enron"
    pairs = _comparisons(evidence, relations, "acvb0", "vb")
    tested = [verdict for one in pairs if (verdict := better(*one)) is not None]
    if not tested:
        return unknown(statement)
    measured = f"significantly better in {sum(tested)} of {len(tested)} cells"
    return Verdict(statement, measured, DISAGREES if any(tested) else AGREES)


def truncation(evidence: Evidence) -> Iterator[Verdict]:
    """Whether a larger K hurts, and whether the data are simple."""
    relation = "lastfm_artistxtag"
    statement = (
        "on Lastfm ArtistXTag ACVB0 is worse at K = 60 than at K = 20, because the data are simple"
    )
    few, many = (evidence.scores(relation, "acvb0", K) for K in (20, 60))
    free = evidence.records(relation, DEFAULT, 60)
    if few is None or many is None or not free:
        yield unknown(statement)
        return
    K1, K2 = np.mean([record["clusters"] for record in free], axis=0)
    default = evidence.scores(relation, DEFAULT, 60)
    assert default is not None
    measured = (
        f"random start: K = 20 {few.mean:.4f}, K = 60 {many.mean:.4f}; but coblock's default finds "
        f"{K1:.0f} x {K2:.0f} clusters at {default.mean:.4f}"
    )
    simple = default.mean <= max(few.mean, many.mean)
    yield Verdict(statement, measured, AGREES if simple else f"{DISAGREES}: the start was too poor")


def speed(evidence: Evidence) -> Iterator[Verdict]:
    """Which deterministic method is fastest, and what the threshold does."""
    tight, loose = min(THRESHOLDS), max(THRESHOLDS)
    fastest, cells, ratios = 0, 0, []
    for relation in PROTOCOL:
        for K in CLUSTERS:
            found = {m: evidence.seconds(relation, m, K, tight) for m in ("vb", "acvb", "acvb0")}
            known = {method: one for method, one in found.items() if one is not None}
            winner = min(known, key=lambda method: known[method].mean) if len(known) == 3 else ""
            if winner and not known[winner].truncated:
                cells += 1
                fastest += winner == "acvb0"
            before = evidence.seconds(relation, "acvb0", K, loose)
            after = found["acvb0"]
            if before is not None and after is not None and not before.truncated:
                ratios.append(after.mean / before.mean)
    statement = "ACVB0 is the fastest of the deterministic methods on almost all relations"
    if cells:
        measured = f"fastest to 1e-5 in {fastest} of {cells} cells"
        yield Verdict(statement, measured, AGREES if fastest > 0.8 * cells else DISAGREES)
    else:
        yield unknown(statement)
    statement = "a threshold of 1e-4 instead of 1e-5 is ten times faster or more"
    if ratios:
        median = float(np.median(ratios))
        measured = f"ACVB0: {median:.1f} times (median of {len(ratios)} cells)"
        yield Verdict(statement, measured, AGREES if median >= 10 else DISAGREES)
    else:
        yield unknown(statement)


def cpu_time(evidence: Evidence) -> Iterator[Verdict]:
    """Our CPU time against the paper's, on other machines."""
    for method in PAPER_METHODS:
        ratios = []
        for relation in LASTFM:
            for K in CLUSTERS:
                paper = published.figure(published.CPU_TIME, relation, method, K)
                ours = evidence.seconds(relation, method, K, min(THRESHOLDS))
                if ours is not None and paper is not None and not ours.truncated:
                    ratios.append(paper.mean / ours.mean)
        statement = f"CPU time of {PAPER_METHODS[method]} to 1e-5 on Lastfm (another machine)"
        if not ratios:
            yield unknown(f"{statement}, runs that ended by themselves")
            continue
        median = float(np.median(ratios))
        measured = f"{number(median)} times faster here (median of {len(ratios)} cells)"
        yield Verdict(statement, measured, BETTER if median > 1 else WORSE)


def quantities(evidence: Evidence) -> Iterator[Verdict]:
    """Whether the two monitored quantities settle quickly, and the bound rises."""
    for method in CONVERGENCE:
        records = [one for name in SMALL for one in evidence.records(name, method, 20)]
        title = method.upper()
        statement = f"{title}: both quantities converge within a few sweeps, the bound rising"
        if not records:
            yield unknown(statement)
            continue
        settled = [
            settling_sweep(record[quantity])
            for record in records
            for quantity in ("bound", "leave_one_out")
        ]
        steps = np.concatenate([np.diff(record["bound"]) for record in records])
        rising = float((steps >= 0).mean())
        middle = float(np.median(settled))
        measured = (
            f"within 1 % of the rise after {middle:.0f} sweeps (median); the bound rose in "
            f"{rising:.0%} of the sweeps kept"
        )
        yield Verdict(statement, measured, AGREES if middle <= 30 and rising > 0.5 else DISAGREES)


def settling_sweep(values: list[float]) -> int:
    """Return the first sweep from which a quantity stays within 1 % of its whole change."""
    series = np.array(values)
    near = np.abs(series - series[-1]) <= 0.01 * max(np.ptp(series), 1e-12)
    away = np.flatnonzero(~near)
    return 1 if away.size == 0 else int(away[-1]) + 2


def linear_time(evidence: Evidence) -> Iterator[Verdict]:
    """Judge the linear form: exact, faster, with unseen cells, for second order too."""
    sizes = [(size, evidence.one("growth", f"growth{size}", "both", 20)) for size in GROWTH]
    known = [(size, one) for size, one in sizes if one is not None]
    statement = "one sweep of CVB0 is linear in the objects, naively quadratic"
    if len(known) > 1:
        x = np.log([size for size, _ in known])
        slopes = {f: np.polyfit(x, np.log([o[f] for _, o in known]), 1)[0] for f in FORMS}
        largest = max(one["difference"] or 0.0 for _, one in known)
        measured = (
            f"time grows like N^{slopes['linear']:.2f}, naively like N^{slopes['naive']:.2f}; "
            f"memberships differ by {largest:.0e} at most"
        )
        fine = slopes["linear"] < 1.3 < slopes["naive"] and largest < 1e-6
        yield Verdict(statement, measured, AGREES if fine else DISAGREES)
    else:
        yield unknown(statement)
    yield _unseen_cost(evidence)
    yield _second_order_cost(evidence)


FORMS = ("linear", "naive")


def _unseen_cost(evidence: Evidence) -> Verdict:
    statement = "linear time does not allow missing entries"
    none, tenth = (
        evidence.one("missing", "lastfm_userxuser", f"unseen{share:g}", 20) for share in (0.0, 0.1)
    )
    naive = evidence.one("naive", "lastfm_userxuser", "both", 20)
    if none is None or tenth is None or naive is None:
        return unknown(statement)
    measured = (
        f"a tenth of the cells of Lastfm UserXUser unseen: {number(tenth['linear'])} s per sweep, "
        f"{tenth['linear'] / none['linear']:.1f} times that without, and "
        f"{naive['naive'] / tenth['linear']:,.0f} times faster than the naive form"
    )
    cheap = tenth["linear"] < 0.5 * naive["naive"]
    return Verdict(statement, measured, DISAGREES if cheap else AGREES)


def _second_order_cost(evidence: Evidence) -> Verdict:
    statement = "linear time is not applicable to second order"
    ratios = []
    for relation in PROTOCOL:
        second = evidence.records(relation, "acvb-shared-exact", 20)
        first = evidence.records(relation, "acvb0-newton", 20)
        if first and second:
            times = [np.mean([r["cpu"] / r["sweeps"] for r in some]) for some in (second, first)]
            ratios.append(times[0] / times[1])
    if not ratios:
        return unknown(statement)
    measured = (
        f"a sweep of second order with the exact variance takes {np.median(ratios):.1f} times as "
        f"long as one of order zero (median of {len(ratios)} relations)"
    )
    return Verdict(statement, measured, DISAGREES if np.median(ratios) < DEAR else AGREES)


def printing(evidence: Evidence) -> Iterator[Verdict]:
    """Bold figures of the paper that are not the largest of their row."""
    del evidence  # the paper alone
    wrong = [f"{TITLES[relation]}, K = {K}" for relation, K in published.misprinted_bold()]
    if wrong:
        statement = "bold marks the best method of a row"
        yield Verdict(statement, f"not the largest mean: {'; '.join(wrong)}", "misprint")


JUDGES: tuple[Callable[[Evidence], Iterator[Verdict]], ...] = (
    acvb0_matches,
    default_beats_the_best,
    order_of_methods,
    truncation,
    speed,
    cpu_time,
    quantities,
    linear_time,
    printing,
)


def worse_cells(evidence: Evidence) -> list[str]:
    """Return where a mean of ours is below the paper's, on relations with the same counts."""
    found = []
    for relation in LASTFM:
        for K in CLUSTERS:
            for method in PAPER_METHODS:
                paper = published.figure(published.LOG_LIKELIHOOD, relation, method, K)
                ours = evidence.scores(relation, method, K)
                if ours is not None and paper is not None and ours.mean < paper.mean:
                    found.append(
                        f"{PAPER_METHODS[method]} on {TITLES[relation]}, K = {K}: "
                        f"{ours.mean:.4f} against {paper.mean:.4f}"
                    )
    return found


def default_below_plain(evidence: Evidence) -> list[str]:
    """Return where coblock's default is below the best plain method that we ran."""
    found = []
    for relation in PROTOCOL:
        for K in CLUSTERS:
            default = evidence.scores(relation, DEFAULT, K)
            plain = {m: s for m in PAPER_METHODS if (s := evidence.scores(relation, m, K))}
            if default is None or not plain:
                continue
            best = best_of(plain)
            behind = None if best is None else gap(plain[best], default)
            if best is not None and behind is not None and behind > 0:
                sure = "significantly" if better(plain[best], default) else "not significantly"
                found.append(
                    f"{TITLES[relation]}, K = {K}: by {behind:.4f}, {sure}, against "
                    f"{PAPER_METHODS[best]}"
                )
    return found


def interpretation(evidence: Evidence, name: str) -> str:
    """Return a sentence on each variant of a comparison against the paper's choice."""
    comparison = COMPARISONS[name]
    base, *others = comparison.variants
    sentences = []
    for variant in others:
        gaps = []
        for relation in comparison.relations:
            one = evidence.scores(relation, variant, 20)
            other = evidence.scores(relation, base, 20)
            difference = gap(one, other)
            if difference is not None:
                gaps.append((difference, TITLES[relation]))
        if not gaps:
            continue
        ahead = sum(gap > 0 for gap, _ in gaps)
        most, least = max(gaps), min(gaps)
        sentences.append(
            f"*{comparison.variants[variant]}* predicts better than "
            f"*{comparison.variants[base]}* on {ahead} of {len(gaps)} relations: from "
            f"{least[0]:+.4f} ({least[1]}) to {most[0]:+.4f} ({most[1]}), same seeds."
        )
    return " ".join(sentences) if sentences else "Not run yet: there is nothing to interpret."
