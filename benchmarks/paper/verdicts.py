"""Statements of the paper, the measurements that test them, and whether they agree."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from paper import published
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
from paper.internals import OWN
from paper.results import Results, Summary, find_best, is_better, mean_difference
from paper.tables import NOT_RUN, count_runs, format_number

AGREES, IN_PART, DISAGREES = "agrees", "agrees in part", "disagrees"
EXPENSIVE = 20.0  # ratio to a linear sweep; a sweep over all cells of sparse data exceeds it
FORMS = ("linear", "naive")
BETTER, EQUAL, WORSE = "better than the paper", "as in the paper", "**worse than the paper**"


@dataclass(frozen=True)
class Verdict:
    """A statement of the paper, the measurement that tests it, and the conclusion."""

    statement: str
    measured: str
    conclusion: str


def not_run(statement: str) -> Verdict:
    """Return the verdict on a statement without finished runs."""
    return Verdict(statement, NOT_RUN, NOT_RUN)


def all_verdicts(results: Results) -> list[Verdict]:
    """Return all verdicts, those on the requirements first."""
    return [verdict for check in CHECKS for verdict in check(results)]


def check_acvb0(results: Results) -> Iterator[Verdict]:
    """Compare ACVB0 with the paper on the relations that have the same counts."""
    for relation in LASTFM:
        for K in CLUSTERS:
            paper = published.value(published.LOG_LIKELIHOOD, relation, "acvb0", K)
            assert paper is not None
            statement = (
                f"ACVB0 on {TITLES[relation]}, K = {K}: {paper.mean:.4f} ({paper.deviation:.4f})"
            )
            ours = results.scores(relation, "acvb0", K)
            yield not_run(statement) if ours is None else compare_with_paper(statement, ours, paper)


def check_default(results: Results) -> Iterator[Verdict]:
    """Compare the default with the best method of the paper on relations with the same counts."""
    for relation in LASTFM:
        for K in CLUSTERS:
            found = published.best(relation, K)
            assert found is not None
            method, paper = found
            statement = (
                f"the paper's best on {TITLES[relation]}, K = {K}, is "
                f"{PAPER_METHODS[method]}: {paper.mean:.4f} ({paper.deviation:.4f}); "
                "compared with coblock's default"
            )
            ours = results.scores(relation, DEFAULT, K)
            yield not_run(statement) if ours is None else compare_with_paper(statement, ours, paper)


def compare_with_paper(statement: str, ours: Summary, paper: published.Value) -> Verdict:
    """Return better or worse if the difference exceeds the standard deviation of the paper."""
    ahead, deviation = ours.mean - paper.mean, paper.deviation or 0.0
    conclusion = EQUAL if abs(ahead) <= deviation else BETTER if ahead > 0 else WORSE
    spread = f" ({ours.deviation:.4f})" if ours.values.size > 1 else ""
    cut = ", some stopped at the limit" if ours.truncated else ""
    runs = f"in {count_runs(ours.values.size)}{cut}"
    return Verdict(statement, f"{ours.mean:.4f}{spread} {runs}: {ahead:+.4f}", conclusion)


def check_order(results: Results) -> Iterator[Verdict]:
    """Check which method predicts better."""
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
        yield _count_wins(results, statement, large, winner, loser)
    small = ("synth1", *ENRON)
    yield _count_wins(results, "VB is better than ACVB0 on Synth1", ("synth1",), "vb", "acvb0")
    yield _no_advantage(results, small)


def _comparisons(
    results: Results, relations: tuple[str, ...], one: str, other: str
) -> list[tuple[Summary, Summary]]:
    """Return pairs of summaries for all relations and K with common seeds."""
    pairs = []
    for relation in relations:
        for K in CLUSTERS:
            first = results.scores(relation, one, K)
            second = results.scores(relation, other, K)
            if mean_difference(first, second) is not None:
                pairs.append((first, second))
    return pairs


def _count_wins(
    results: Results, statement: str, relations: tuple[str, ...], winner: str, loser: str
) -> Verdict:
    """Count the relations and K on which one method is better than another."""
    pairs = _comparisons(results, relations, winner, loser)
    if not pairs:
        return not_run(statement)
    gaps = np.array([mean_difference(first, second) for first, second in pairs], dtype=float)
    ahead = int((gaps > 0).sum())
    significant = sum(is_better(first, second) is True for first, second in pairs)
    measured = (
        f"{METHOD_TITLES[winner]} better than {METHOD_TITLES[loser]} in {ahead} of {len(pairs)} "
        f"experiments, significantly in {significant}; mean difference {gaps.mean():+.4f}"
    )
    partly = IN_PART if 2 * ahead > len(pairs) else DISAGREES
    return Verdict(statement, measured, AGREES if ahead == len(pairs) else partly)


def _no_advantage(results: Results, relations: tuple[str, ...]) -> Verdict:
    statement = "ACVB0 has no significant advantage over VB on Synth1 and Enron"
    pairs = _comparisons(results, relations, "acvb0", "vb")
    tested = [verdict for one in pairs if (verdict := is_better(*one)) is not None]
    if not tested:
        return not_run(statement)
    measured = f"significantly better in {sum(tested)} of {len(tested)} experiments"
    return Verdict(statement, measured, DISAGREES if any(tested) else AGREES)


def check_truncation(results: Results) -> Iterator[Verdict]:
    """Check whether a larger K is worse because the data are simple."""
    relation = "lastfm_artistxtag"
    statement = (
        "on Lastfm ArtistXTag ACVB0 is worse at K = 60 than at K = 20, because the data are simple"
    )
    few, many = (results.scores(relation, "acvb0", K) for K in (20, 60))
    free = results.records(relation, DEFAULT, 60)
    if few is None or many is None or not free:
        yield not_run(statement)
        return
    K1, K2 = np.mean([record["clusters"] for record in free], axis=0)
    default = results.scores(relation, DEFAULT, 60)
    assert default is not None
    measured = (
        f"random start: K = 20 {few.mean:.4f}, K = 60 {many.mean:.4f}; but coblock's default finds "
        f"{K1:.0f} x {K2:.0f} clusters at {default.mean:.4f}"
    )
    simple = default.mean <= max(few.mean, many.mean)
    yield Verdict(statement, measured, AGREES if simple else f"{DISAGREES}: the start was too poor")


def count_fastest(results: Results, criterion: str) -> tuple[int, int]:
    """Return in how many experiments ACVB0 is the fastest to 1e-5 by a criterion, and of how many.

    An experiment counts if all three deterministic methods were run and the fastest got there.
    """
    fastest, experiments, methods = 0, 0, ("vb", "acvb", "acvb0")
    for relation in PROTOCOL:
        for K in CLUSTERS:
            found = [results.seconds(relation, m, K, min(THRESHOLDS), criterion) for m in methods]
            known = [one for one in found if one is not None]
            if len(known) < len(methods):
                continue
            winner = min(range(len(methods)), key=lambda at: known[at].mean)
            if not known[winner].truncated:
                experiments += 1
                fastest += methods[winner] == "acvb0"
    return fastest, experiments


def check_speed(results: Results) -> Iterator[Verdict]:
    """Check which deterministic method is fastest, and the effect of the threshold.

    VB is stopped by its bound and ACVB0 by its memberships, so all are also compared by either.
    """
    tight, loose = min(THRESHOLDS), max(THRESHOLDS)
    statement = "ACVB0 is the fastest of the deterministic methods on almost all relations"
    names = {OWN: "each by its own criterion", "memberships": "by memberships", "bound": "by bound"}
    for criterion, title in names.items():
        fastest, experiments = count_fastest(results, criterion)
        if experiments:
            measured = f"{title}: fastest to 1e-5 in {fastest} of {experiments} experiments"
            yield Verdict(statement, measured, AGREES if fastest > 0.8 * experiments else DISAGREES)
        else:
            yield not_run(f"{statement} ({title})")
    ratios = []
    for relation in PROTOCOL:
        for K in CLUSTERS:
            before, after = (results.seconds(relation, "acvb0", K, t) for t in (loose, tight))
            if before is not None and after is not None and not before.truncated:
                ratios.append(after.mean / before.mean)
    statement = "a threshold of 1e-4 instead of 1e-5 is ten times faster or more"
    if ratios:
        median = float(np.median(ratios))
        measured = f"ACVB0: {median:.1f} times (median of {len(ratios)} experiments)"
        yield Verdict(statement, measured, AGREES if median >= 10 else DISAGREES)
    else:
        yield not_run(statement)


def check_cpu_time(results: Results) -> Iterator[Verdict]:
    """Compare CPU time with that of the paper, measured on another machine."""
    for method in PAPER_METHODS:
        ratios = []
        for relation in LASTFM:
            for K in CLUSTERS:
                paper = published.value(published.CPU_TIME, relation, method, K)
                ours = results.seconds(relation, method, K, min(THRESHOLDS))
                if ours is not None and paper is not None and not ours.truncated:
                    ratios.append(paper.mean / ours.mean)
        statement = f"CPU time of {PAPER_METHODS[method]} to 1e-5 on Lastfm (another machine)"
        if not ratios:
            yield not_run(f"{statement}, runs not stopped at the limit")
            continue
        median = float(np.median(ratios))
        measured = (
            f"{format_number(median)} times faster here (median of {len(ratios)} experiments)"
        )
        yield Verdict(statement, measured, BETTER if median > 1 else WORSE)


def check_convergence(results: Results) -> Iterator[Verdict]:
    """Check whether bound and leave-one-out likelihood converge quickly and the bound rises."""
    for method in CONVERGENCE:
        records = [one for name in SMALL for one in results.records(name, method, 20)]
        title = method.upper()
        statement = f"{title}: both quantities converge within a few sweeps and the bound rises"
        if not records:
            yield not_run(statement)
            continue
        settled = [
            convergence_sweep(record[quantity])
            for record in records
            for quantity in ("bound", "leave_one_out")
        ]
        steps = np.concatenate([np.diff(record["bound"]) for record in records])
        rising = float((steps >= 0).mean())
        middle = float(np.median(settled))
        measured = (
            f"within 1 % of the rise after {middle:.0f} sweeps (median); the bound rose in "
            f"{rising:.0%} of the stored sweeps"
        )
        yield Verdict(statement, measured, AGREES if middle <= 30 and rising > 0.5 else DISAGREES)


def convergence_sweep(values: list[float]) -> int:
    """Return the sweep from which a quantity stays near its last value: 1 % of its range."""
    series = np.array(values)
    near = np.abs(series - series[-1]) <= 0.01 * max(np.ptp(series), 1e-12)
    away = np.flatnonzero(~near)
    return 1 if away.size == 0 else int(away[-1]) + 2


def check_linear_time(results: Results) -> Iterator[Verdict]:
    """Check the linear sweep: exactness, growth, unseen cells, second order."""
    sizes = [(size, results.one("growth", f"growth{size}", "both", 20)) for size in GROWTH]
    known = [(size, one) for size, one in sizes if one is not None]
    statement = "one sweep of CVB0 is linear in the objects; the naive sweep is quadratic"
    if len(known) > 1:
        x = np.log([size for size, _ in known])
        slopes = {f: np.polyfit(x, np.log([o[f] for _, o in known]), 1)[0] for f in FORMS}
        largest = max(one["difference"] or 0.0 for _, one in known)
        measured = (
            f"time grows like N^{slopes['linear']:.2f}, naive like N^{slopes['naive']:.2f}; "
            f"memberships differ by {largest:.0e} at most"
        )
        fine = slopes["linear"] < 1.3 < slopes["naive"] and largest < 1e-6
        yield Verdict(statement, measured, AGREES if fine else DISAGREES)
    else:
        yield not_run(statement)
    yield _unseen_cost(results)
    yield _second_order_cost(results)


def _unseen_cost(results: Results) -> Verdict:
    statement = "linear time does not allow missing entries"
    none, tenth = (
        results.one("missing", "lastfm_userxuser", f"unseen{share:g}", 20) for share in (0.0, 0.1)
    )
    naive = results.one("naive", "lastfm_userxuser", "both", 20)
    if none is None or tenth is None or naive is None:
        return not_run(statement)
    measured = (
        "a tenth of the cells of Lastfm UserXUser unseen: "
        f"{format_number(tenth['linear'])} s per sweep, "
        f"{tenth['linear'] / none['linear']:.1f} times that with none unseen, and "
        f"{naive['naive'] / tenth['linear']:,.0f} times faster than the naive sweep"
    )
    cheap = tenth["linear"] < 0.5 * naive["naive"]
    return Verdict(statement, measured, DISAGREES if cheap else AGREES)


def _second_order_cost(results: Results) -> Verdict:
    statement = "linear time is not applicable to second order"
    ratios = []
    for relation in PROTOCOL:
        second = results.records(relation, "acvb-shared-exact", 20)
        first = results.records(relation, "acvb0-newton", 20)
        if first and second:
            times = [np.mean([r["cpu"] / r["sweeps"] for r in some]) for some in (second, first)]
            ratios.append(times[0] / times[1])
    if not ratios:
        return not_run(statement)
    measured = (
        f"a sweep of second order with the exact variance takes {np.median(ratios):.1f} times as "
        f"long as one of order zero (median of {len(ratios)} relations)"
    )
    return Verdict(statement, measured, DISAGREES if np.median(ratios) < EXPENSIVE else AGREES)


def check_bold_print(results: Results) -> Iterator[Verdict]:
    """Find bold values of the paper that are not the largest of their row."""
    del results  # concerns the paper alone
    wrong = [f"{TITLES[relation]}, K = {K}" for relation, K in published.misprinted_bold()]
    if wrong:
        statement = "bold marks the best method of a row"
        yield Verdict(statement, f"not the largest mean: {'; '.join(wrong)}", "misprint")


CHECKS: tuple[Callable[[Results], Iterator[Verdict]], ...] = (
    check_acvb0,
    check_default,
    check_order,
    check_truncation,
    check_speed,
    check_cpu_time,
    check_convergence,
    check_linear_time,
    check_bold_print,
)


def worse_experiments(results: Results) -> list[str]:
    """Return the experiments with a lower mean than in the paper, where the counts are the same."""
    found = []
    for relation in LASTFM:
        for K in CLUSTERS:
            for method in PAPER_METHODS:
                paper = published.value(published.LOG_LIKELIHOOD, relation, method, K)
                ours = results.scores(relation, method, K)
                if ours is not None and paper is not None and ours.mean < paper.mean:
                    found.append(
                        f"{PAPER_METHODS[method]} on {TITLES[relation]}, K = {K}: "
                        f"{ours.mean:.4f} against {paper.mean:.4f}"
                    )
    return found


def default_below_plain(results: Results) -> list[str]:
    """Return the experiments in which coblock's default is below the best plain method."""
    found = []
    for relation in PROTOCOL:
        for K in CLUSTERS:
            default = results.scores(relation, DEFAULT, K)
            plain = {m: s for m in PAPER_METHODS if (s := results.scores(relation, m, K))}
            if default is None or not plain:
                continue
            best = find_best(plain)
            behind = None if best is None else mean_difference(plain[best], default)
            if best is not None and behind is not None and behind > 0:
                sure = "significantly" if is_better(plain[best], default) else "not significantly"
                found.append(
                    f"{TITLES[relation]}, K = {K}: by {behind:.4f}, {sure}, against "
                    f"{PAPER_METHODS[best]}"
                )
    return found


def interpretation(results: Results, name: str) -> str:
    """Return one sentence for each variant that compares it with the choice of the paper."""
    comparison = COMPARISONS[name]
    base, *others = comparison.variants
    sentences = []
    for variant in others:
        gaps = []
        for relation in comparison.relations:
            one = results.scores(relation, variant, 20)
            other = results.scores(relation, base, 20)
            difference = mean_difference(one, other)
            if difference is not None:
                gaps.append((difference, TITLES[relation]))
        if not gaps:
            continue
        ahead = sum(gap > 0 for gap, _ in gaps)
        most, least = max(gaps), min(gaps)
        sentences.append(
            f"*{comparison.variants[variant]}* predicts better than "
            f"*{comparison.variants[base]}* on {ahead} of {len(gaps)} relations: from "
            f"{least[0]:+.4f} ({least[1]}) to {most[0]:+.4f} ({most[1]}), common seeds."
        )
    return " ".join(sentences) if sentences else "Not run."
