"""The finished runs put together: means, deviations, tests of difference."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from paper.experiments import Job, held_out
from paper.store import Store

LEVEL = 0.05  # of the t-tests


@dataclass(frozen=True)
class Summary:
    """Some runs of one method on one relation; every seed has cells of its own."""

    values: NDArray[np.float64]
    seeds: tuple[int, ...]
    truncated: int = 0

    @property
    def mean(self) -> float:
        """Mean over the runs."""
        return float(self.values.mean())

    @property
    def deviation(self) -> float:
        """Standard deviation over the runs, as the paper's (of the sample); 0 for one run."""
        return float(self.values.std(ddof=1)) if self.values.size > 1 else 0.0

    def of(self, seeds: set[int]) -> NDArray[np.float64]:
        """Return the values of these seeds."""
        return np.array(
            [value for value, seed in zip(self.values, self.seeds, strict=True) if seed in seeds]
        )


@dataclass(frozen=True)
class Evidence:
    """What has been measured so far, for at most ``runs`` seeds."""

    store: Store
    runs: int

    def records(self, relation: str, method: str, K: int) -> list[dict[str, Any]]:
        """Return the finished held-out runs, by seed."""
        jobs = (held_out(relation, method, K, seed) for seed in range(self.runs))
        return [record for job in jobs if (record := self.store.get(job)) is not None]

    def one(self, part: str, relation: str, method: str, K: int) -> dict[str, Any] | None:
        """Return a run of another part, if it is finished."""
        return self.store.get(Job(part, relation, method, K))

    def scores(self, relation: str, method: str, K: int) -> Summary | None:
        """Return held-out log likelihoods per cell."""
        return summarised(self.records(relation, method, K), lambda record: record["score"])

    def seconds(self, relation: str, method: str, K: int, threshold: float) -> Summary | None:
        """Return CPU seconds until a threshold was passed; a run that never did gives all it had.

        Those runs are counted as truncated. Gibbs passes nothing: its time is that of all sweeps.
        """
        name = f"{threshold:g}"
        records = self.records(relation, method, K)
        if not records:
            return None
        times = [record["passed"].get(name, {"cpu": record["cpu"]})["cpu"] for record in records]
        if method == "gibbs":
            late = sum(record["truncated"] for record in records)
        else:
            late = sum(name not in record["passed"] for record in records)
        return Summary(np.array(times), seeds_of(records), late)


def summarised(records: list[dict[str, Any]], value: Any) -> Summary | None:
    """Return the summary of one value of some runs, None if there are none."""
    if not records:
        return None
    values = np.array([value(record) for record in records], dtype=float)
    cut = sum(bool(record["truncated"]) for record in records)
    return Summary(values, seeds_of(records), cut)


def seeds_of(records: list[dict[str, Any]]) -> tuple[int, ...]:
    """Return the seeds of some runs."""
    return tuple(record["job"]["seed"] for record in records)


def common_seeds(summaries: Iterable[Summary]) -> set[int]:
    """Return the seeds that all have run: others are other cells, or other draws."""
    return set.intersection(*(set(one.seeds) for one in summaries))


def best_of(summaries: dict[str, Summary]) -> str | None:
    """Return the name with the largest mean over the common seeds; None if there are none."""
    seeds = common_seeds(summaries.values()) if summaries else set()
    if not seeds:
        return None
    return max(summaries, key=lambda name: float(summaries[name].of(seeds).mean()))


def gap(one: Summary | None, other: Summary | None) -> float | None:
    """Return the mean difference over common seeds; None if there are none."""
    if one is None or other is None or not (seeds := common_seeds([one, other])):
        return None
    return float((one.of(seeds) - other.of(seeds)).mean())


def better(one: Summary, other: Summary) -> bool | None:
    """Say whether the first is significantly larger (t-test, p < 0.05); None with too few runs.

    Two samples, two-sided, unequal variances, over the seeds that both have run.
    """
    seeds = common_seeds([one, other])
    if len(seeds) < 2:
        return None
    first, second = one.of(seeds), other.of(seeds)
    if np.ptp(first) == np.ptp(second) == 0.0:
        return bool(first[0] > second[0])
    p = stats.ttest_ind(first, second, equal_var=False).pvalue
    return bool(p < LEVEL and first.mean() > second.mean())
