"""Samples around the partitions that a search has found: chains or an ensemble (RELATIONS 10)."""

from dataclasses import dataclass, field

import numpy as np

from coblock.inference.multi_gibbs import draw_hyperparameters, take_sample
from coblock.inference.multi_search import Mode, sweep_all
from coblock.inference.settings import CHAINS, SEARCH
from coblock.model.dataset import Dataset
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import LEAST_MOVED, MultiSample, restore
from coblock.model.multi_threads import map_threads


@dataclass(slots=True)
class MultiChains:
    """Gibbs chains from the best local optima of a search; threads share them.

    Clusters open and close, and hyperparameters are sampled. Where labels are so certain that the
    chains do not move, they are not samples of the posterior: partitions with nearly as much
    evidence as the best one, through which the search has passed, are then an ensemble of equal
    weights, with hyperparameters drawn.
    """

    seed: int
    limits: tuple[int | None, ...]
    modes: list[Mode]  # partitions of the search, the best first
    chains: list[MultiPartition]
    moved: list[float] = field(default_factory=list)  # fraction of the labels, by sweep
    samples: list[MultiSample] = field(default_factory=list)

    @classmethod
    def from_modes(
        cls,
        best: MultiPartition,
        modes: list[Mode],
        seed: int,
        limits: tuple[int | None, ...],
    ) -> "MultiChains":
        """Return chains from the best local optima of the search, or from ``best`` alone.

        Partitions on the way can have more evidence than the local optima, which the last step of
        the search simplifies, and can push all of them out of the modes.
        """
        most = min(max(CHAINS.sweeps(best.data) // (2 * CHAINS.burn_in), 1), CHAINS.chains)
        starts = [mode.sample for mode in modes if mode.ended][:most] or [take_sample(best)]
        chains = [restore_sample(best.data, start) for start in starts]
        return cls(seed, limits, modes, chains)

    @property
    def finished(self) -> bool:
        """Whether all samples are drawn, or the chains do not move."""
        if len(self.moved) >= CHAINS.first_sweeps and np.mean(self.moved) < LEAST_MOVED:
            return True
        return len(self.moved) >= CHAINS.sweeps(self.chains[0].data) // len(self.chains)

    def sweep(self) -> float:
        """Sweep each chain once and keep samples; return the fraction of labels that changed."""
        number = len(self.moved)

        def advance(chain: int) -> float:
            partition, rng = self.chains[chain], np.random.default_rng([self.seed, chain, number])
            moved = sweep_all(partition, rng, self.limits, sampled=True, exact=True)
            draw_hyperparameters(partition, rng)
            return moved

        self.moved.append(float(np.mean(map_threads(advance, range(len(self.chains))))))
        kept = number + 1 - CHAINS.burn_in
        if kept > 0 and kept % SEARCH.sweeps_per_sample == 0:
            self.samples += [take_sample(partition) for partition in self.chains]
        if self.finished and np.mean(self.moved) < LEAST_MOVED:
            self.samples = self._ensemble()
        return self.moved[-1]

    def _ensemble(self) -> list[MultiSample]:
        """Return the partitions of the search, with hyperparameters drawn."""
        found = []
        for number, mode in enumerate(self.modes):
            partition = restore_sample(self.chains[0].data, mode.sample)
            draw_hyperparameters(partition, np.random.default_rng([self.seed, number]))
            found.append(take_sample(partition))
        return found


def restore_sample(data: Dataset, sample: MultiSample) -> MultiPartition:
    """Return the partition of a sample."""
    return restore(data, sample.labels, sample.priors, sample.alpha)
