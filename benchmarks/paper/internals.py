"""A fit whose sweeps are followed one by one.

The only module of the benchmarks that uses names of coblock that are not public. The public
callback receives a report of each sweep. The experiments of the paper also need the state of the
fit at that sweep.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from coblock import IRM
from coblock.inference.convergence import last_change
from coblock.inference.engine import LocalEngine, Schedule
from coblock.inference.fit import Start
from coblock.model.relation import BinaryRelation

Cells = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, columns and values of held-out cells


OWN = ""  # name of a method's own criterion of convergence
CRITERIA = (OWN, "memberships", "bound")


class StepwiseFit:
    """A fit of one relation that gives the result of ``IRM(**parameters, random_state=seed)``.

    ``start`` contains soft memberships of each domain, which the public ``init`` does not accept.
    """

    def __init__(
        self,
        relation: BinaryRelation,
        parameters: dict[str, Any],
        seed: int,
        start: list[np.ndarray] | None = None,
    ) -> None:
        self.model = IRM(**parameters)
        settings = self.model._settings()
        entropy = check_random_state(seed).randint(2**31)
        rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(0,)))
        engine = LocalEngine(Schedule(settings.batch_size))
        self._run = Start(relation, settings, rng, engine, start)

    @property
    def trace(self) -> list[Any]:
        """Records of the sweeps so far."""
        return self._run.trace

    def sweeps(self) -> Iterator[Any]:
        """Yield the record of each sweep."""
        for record in self._run.sweeps():
            self._run.trace.append(record)
            yield record

    def change_below(self, largest: float) -> float:
        """Return the change that the stopping rule compares with the tolerance.

        Infinite if it is not below ``largest``, or if the rule does not apply to the last sweep.
        """
        change = last_change(self._run.trace, self._run.settings)
        return change if change < largest and self._run.phase.may_stop else np.inf

    def changes(self, largest: float) -> dict[str, float]:
        """Return the last change by each criterion: the method's own, memberships, the bound.

        The own one of VB is mostly that of the bound, relative to it, that of the others is of the
        memberships. Infinite where a criterion does not apply.
        """
        found = dict.fromkeys(CRITERIA, np.inf) | {OWN: self.change_below(largest)}
        if self._run.phase.may_stop and len(self.trace) > 1:
            before, last = self.trace[-2:]
            found["memberships"] = last.change
            found["bound"] = abs(last.bound - before.bound) / max(abs(last.bound), 1.0)
        return found

    def score(self, cells: Cells) -> float:
        """Return the held-out score at the last sweep; for Gibbs, that of the last sample."""
        if self.model.inference == "gibbs":
            return self._score_last_sample(cells)
        model = IRM()
        model.result_ = self._copy().result(converged=False)
        return model.score_links(*cells)

    def _score_last_sample(self, cells: Cells) -> float:
        rows, columns, values = cells
        now = self._run.phase.partition
        statistics = (now.blocks.n, now.blocks.N)
        block = now.relation.likelihood.predictive_mean(statistics, now.hyper.prior)
        probability = block[now.labels[0][rows], now.labels[-1][columns]]
        return float(np.log(np.where(values, probability, 1.0 - probability)).mean())

    def conclude(self, *, converged: bool) -> IRM:
        """Return a model with the present ``result_``, which predicts links; sweeps may go on."""
        self.model.result_ = self._copy().result(converged=converged)
        return self.model

    def _copy(self) -> Start:
        """Return a copy of the fit: a result reorders the arrays that it takes over."""
        return deepcopy(self._run, {id(self._run.relation): self._run.relation})

    @property
    def memberships(self) -> list[np.ndarray]:
        """Current memberships of each domain."""
        return self._run.phase.outcome().memberships

    @property
    def hyperparameters(self) -> tuple[list[float], float, float]:
        """Current concentrations, and the a and b that all blocks share."""
        hyper = self._run.phase.outcome().hyper
        return list(hyper.alpha), hyper.prior[0].item(), hyper.prior[1].item()
