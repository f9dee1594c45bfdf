"""CVB0 and VB for several relations: starts, sweeps, result (RELATIONS 8, 11)."""

import math
from dataclasses import dataclass

import numpy as np

from coblock.inference.engine import LocalEngine, Schedule, SoftSweep, largest_change
from coblock.inference.multi_start import spectral_points, start_labels
from coblock.inference.settings import SEARCH, Settings
from coblock.inference.start import most_probable, random_memberships, soft_labels
from coblock.inference.variational import (
    FIRST_UPDATE,
    LONGEST_FIRST_ORDER,
    SECOND_ORDER_FROM,
    Variational,
)
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import MultiRecord, MultiResult
from coblock.model.multi_state import MultiState
from coblock.model.state import by_size

MOST_BLOCKS = 2**18  # of a relation at the start: each object takes time for each
Limits = tuple[int | None, ...]


@dataclass(slots=True)
class MultiVariational(Variational):
    """A run of CVB0, ACVB0 or VB; averaging and burn-in are those of one relation.

    Objects are updated one after another, those of the domains in turns.
    """

    state: MultiState  # type: ignore[assignment]  # with the methods of SoftState that are used

    def _sweep(self) -> SoftSweep:
        """Update all memberships by the method."""
        state = self.state
        old = [q.copy() for q in state.q]
        if self.method == "vb":
            parts = []
            for d in range(len(old)):
                parts.append(state.sweep_vb(d))
                state.recount()
            totals = (sum(part[0] for part in parts), sum(part[1] for part in parts))
        else:
            totals = state.sweep(*interleave(state.relation.sizes))
            state.recount()
        return SoftSweep(*totals, largest_change(old, state.q))


def interleave(sizes: tuple[int, ...]) -> tuple[Indices, Indices]:
    """Return domains and objects of a sweep: all domains begin and end together."""
    domains = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    objects = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    order = np.argsort((objects + 0.5) / np.array(sizes)[domains], kind="stable")
    return domains[order], objects[order]


def make_variational(
    state: MultiState, settings: Settings, *, random: bool = False, number: int = 0
) -> MultiVariational:
    """Return the sweeps of a method from memberships: random ones, or after so many sweeps."""
    return MultiVariational(
        state,
        LocalEngine(Schedule(1)),
        settings.inference,
        burn_in=settings.burn_in,
        tol=settings.tol,
        hyper_delay=FIRST_UPDATE if random else 1,
        number=number,
    )


def start_memberships(
    data: Dataset, limits: Limits, init: str, rng: np.random.Generator
) -> list[Floats]:
    """Return the memberships that plain methods start from: spectral or random."""
    if init == "random":
        clusters = start_clusters(data, limits, SEARCH.truncation)
        return random_memberships(data, clusters, rng)
    clusters = start_clusters(data, limits, SEARCH.start_clusters)
    seed = int(rng.integers(2**31))
    labels = []
    for d, K in enumerate(clusters):
        points = spectral_points(data, d, SEARCH.start_clusters, seed)
        labels += start_labels([points], K, seed % 2**30)
    return soft_labels(labels)


def start_clusters(data: Dataset, limits: Limits, default: int) -> tuple[int, ...]:
    """Return the numbers of clusters of a start; without a limit, tables stay small."""
    pairs = zip(limits, data.sizes, strict=True)
    clusters = [min(default if limit is None else limit, size) for limit, size in pairs]
    for table in data.tables:
        free = [d for d in set(table.domains) if limits[d] is None]
        while math.prod(clusters[d] for d in table.domains) > MOST_BLOCKS and free:
            largest = max(free, key=lambda d: clusters[d])
            if clusters[largest] == 1:
                break
            clusters[largest] -= 1
    return tuple(clusters)


def random_labels(data: Dataset, limits: Limits, rng: np.random.Generator) -> list[Indices]:
    """Return the most probable labels after CVB0 sweeps from random memberships."""
    state = MultiState.initial(data, start_memberships(data, limits, "random", rng))
    sweeps = make_variational(state, Settings("cvb0"), random=True)
    for _ in range(LONGEST_FIRST_ORDER):
        if sweeps.advance()[1] < SECOND_ORDER_FROM:
            break
    return most_probable(sweeps.state.q)


def soft_result(sweeps: MultiVariational, trace: list[MultiRecord], *, done: bool) -> MultiResult:
    """Return the averaged memberships, or the last ones, with clusters by number of members.

    The log evidence is that of the most probable labels, hyperparameters at their best.
    """
    state, memberships, labels = sweeps.state, [], []
    for q in state.q if sweeps.mean is None else sweeps.mean:
        label = q.argmax(axis=1)
        order = by_size(np.bincount(label, minlength=q.shape[1]))
        memberships.append(np.ascontiguousarray(q[:, order]))
        labels.append(np.argsort(order)[label].astype(np.int32))
    return MultiResult(
        data=state.relation,
        labels=labels,
        priors=list(state.priors),
        alpha=list(state.alpha),
        log_evidence=MultiPartition.from_labels(state.relation, labels).log_joint(),
        samples=[],
        trace=trace,
        converged=done,
        soft=memberships,
    )
