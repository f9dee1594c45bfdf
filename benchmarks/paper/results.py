"""Finished runs of one experiment: means, standard deviations, tests of differences."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from paper.experiments import Job, held_out, runs_of
from paper.internals import OWN
from paper.store import Store

LEVEL = 0.05  # significance level of the t-tests


@dataclass(frozen=True)
class Summary:
    """One value of the runs of a method on a relation; each seed has its own held-out cells."""

    values: NDArray[np.float64]
    seeds: tuple[int, ...]
    truncated: int = 0  # runs that were stopped at their limit

    @property
    def mean(self) -> float:
        """Mean over the runs."""
        return float(self.values.mean())

    @property
    def deviation(self) -> float:
        """Standard deviation of the sample, as in the paper; 0 for one run."""
        return float(self.values.std(ddof=1)) if self.values.size > 1 else 0.0

    def at_seeds(self, seeds: set[int]) -> NDArray[np.float64]:
        """Return the values of these seeds."""
        return np.array(
            [value for value, seed in zip(self.values, self.seeds, strict=True) if seed in seeds]
        )


@dataclass(frozen=True)
class Results:
    """The finished runs of at most ``runs`` seeds."""

    store: Store
    runs: int

    def records(self, relation: str, method: str, K: int) -> list[dict[str, Any]]:
        """Return the finished held-out runs, by seed."""
        seeds = range(runs_of(relation, self.runs))
        jobs = (held_out(relation, method, K, seed) for seed in seeds)
        return [record for job in jobs if (record := self.store.get(job)) is not None]

    def one(self, part: str, relation: str, method: str, K: int) -> dict[str, Any] | None:
        """Return the run of another part, or None if it is not finished."""
        return self.store.get(Job(part, relation, method, K))

    def scores(self, relation: str, method: str, K: int) -> Summary | None:
        """Return held-out log likelihoods per cell."""
        return summarize(self.records(relation, method, K), lambda record: record["score"])

    def seconds(
        self, relation: str, method: str, K: int, threshold: float, criterion: str = OWN
    ) -> Summary | None:
        """Return CPU seconds until the change by a criterion fell below a threshold.

        A run in which it never did contributes all its time and is counted as truncated. Gibbs has
        no threshold: its time is that of all sweeps.
        """
        name = f"{criterion} {threshold:g}".strip()
        records = self.records(relation, method, K)
        if not records:
            return None
        times = [record["passed"].get(name, {"cpu": record["cpu"]})["cpu"] for record in records]
        if method == "gibbs":
            late = sum(record["truncated"] for record in records)
        else:
            late = sum(name not in record["passed"] for record in records)
        return Summary(np.array(times), seeds_of(records), late)


def summarize(
    records: list[dict[str, Any]], value: Callable[[dict[str, Any]], float]
) -> Summary | None:
    """Return the summary of one value of some runs; None without runs."""
    if not records:
        return None
    values = np.array([value(record) for record in records], dtype=float)
    truncated = sum(bool(record["truncated"]) for record in records)
    return Summary(values, seeds_of(records), truncated)


def seeds_of(records: list[dict[str, Any]]) -> tuple[int, ...]:
    """Return the seeds of some runs."""
    return tuple(record["job"]["seed"] for record in records)


def common_seeds(summaries: Iterable[Summary]) -> set[int]:
    """Return the seeds of all summaries: other seeds have other held-out cells."""
    return set.intersection(*(set(one.seeds) for one in summaries))


def find_best(summaries: dict[str, Summary]) -> str | None:
    """Return the name with the largest mean over the common seeds; None without common seeds."""
    seeds = common_seeds(summaries.values()) if summaries else set()
    if not seeds:
        return None
    return max(summaries, key=lambda name: float(summaries[name].at_seeds(seeds).mean()))


def mean_difference(one: Summary | None, other: Summary | None) -> float | None:
    """Return the mean difference over the common seeds; None without common seeds."""
    if one is None or other is None or not (seeds := common_seeds([one, other])):
        return None
    return float((one.at_seeds(seeds) - other.at_seeds(seeds)).mean())


def is_better(one: Summary, other: Summary) -> bool | None:
    """Return whether the first is significantly larger; None with fewer than two common seeds.

    Two-sided t-test of two samples with unequal variances.
    """
    seeds = common_seeds([one, other])
    if len(seeds) < 2:
        return None
    first, second = one.at_seeds(seeds), other.at_seeds(seeds)
    if np.ptp(first) == np.ptp(second) == 0.0:
        return bool(first[0] > second[0])
    p = stats.ttest_ind(first, second, equal_var=False).pvalue
    return bool(p < LEVEL and first.mean() > second.mean())
