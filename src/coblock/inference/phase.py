"""The protocol of the phases of a fit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from coblock.kernels import Floats, Indices
from coblock.model.degrees import DegreeChoice, DegreePartition
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.partition import Partition
from coblock.model.result import Sample
from coblock.model.trace import SweepRecord

Clock: TypeAlias = Callable[[], float]  # seconds since the fit began


@dataclass(slots=True)
class Outcome:
    """What a phase has found, for the next phase or for the result."""

    hyper: Hyperparameters
    memberships: list[Floats] | None = None  # None: those of the partition's labels
    partition: Partition | None = None
    samples: list[Sample] = field(default_factory=list)
    modes: list[list[Indices]] = field(default_factory=list)  # labels of other local optima
    degrees: DegreeChoice | None = None  # where degree correction was asked for
    corrected: DegreePartition | None = None  # where the corrected model was taken
    sticks: bool = False  # whether the prior is stick-breaking, in the order of the memberships


class Phase(Protocol):
    """A part of a fit: a stream of sweep records, a state that can be saved, an outcome.

    The fields of a phase hold its complete state between any two sweeps.
    """

    number: int  # sweeps of this phase so far

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each sweep; go on from the present state."""

    @property
    def finished(self) -> bool:
        """Whether the phase has come to its own end."""

    @property
    def may_stop(self) -> bool:
        """Whether a small change in the last record ends the fit."""

    @property
    def converged(self) -> bool:
        """Whether the phase is finished and its result is within its own tolerance."""

    def outcome(self) -> Outcome:
        """Return what has been found so far."""


def label_record(
    partition: Partition,
    number: int,
    moved: float,
    leave_one_out: float,
    clock: Clock,
    change: float | None = None,
) -> SweepRecord:
    """Return the record of a sweep over hard labels; ``change`` is that of averages, if any."""
    clusters, evidence = partition.blocks.in_use, partition.log_joint()
    change = 2.0 * moved if change is None else change
    return SweepRecord(number, change, leave_one_out, evidence, *clusters, clock(), moved)
