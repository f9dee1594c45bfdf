"""Distributions of the cells of a block, with a conjugate prior integrated out (RELATIONS 3, 4).

One module for each likelihood, with the same methods. A likelihood knows the sufficient
statistics of a cell and of a block, and the hyperparameters of its prior; it knows nothing of
clusters, relations or methods of inference. Compiled loops that serve one likelihood alone are in
:mod:`coblock.kernels`, in the module of the same name.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from scipy.optimize import minimize

from coblock.kernels import Floats, Gain

Statistics: TypeAlias = tuple[Floats, ...]  # one array for each statistic, an entry per block
Rule = Literal["newton", "fixed-point", "vb-fixed-point", "fixed"]  # how priors are learnt
LONGEST_TEXT = 60  # characters of a value in a message
LARGEST_COUNT = 2**53  # up to which 64-bit floats hold all whole numbers


class Likelihood(Protocol):
    """What inference, prediction and files need of a likelihood.

    ``prior`` has one row for each hyperparameter; its other axes broadcast against the blocks.
    """

    @property
    def gain(self) -> Gain:
        """The gain of a block in log marginal, see :func:`coblock.kernels.gain_function`."""

    @property
    def n_real(self) -> int:
        """How many of the first hyperparameters may be negative; the others are positive."""

    @property
    def name(self) -> str:
        """Name of the likelihood in settings and files."""

    def for_values(self, values: Any) -> "Likelihood":
        """Return the likelihood with what it has to know of all values: categories, scale."""

    def encode(self, values: Any) -> Floats:
        """Return the values of cells as numbers; refuse those that do not fit."""

    def cell_statistics(self, values: Floats) -> Floats:
        """Return the sufficient statistics of cells, (cells, statistics)."""

    def constant(self, values: Floats) -> float:
        """Return the part of the log probability of cells that depends on no parameter."""

    def initial_prior(self, mean: float) -> Floats:
        """Return weak hyperparameters that expect cells of this mean, of shape (rows, 1, 1)."""

    def log_marginal(
        self, statistics: Statistics, prior: Floats, count: Floats | None = None
    ) -> float:
        """Return the log marginal likelihood of all blocks, each counted ``count`` times."""

    def predictive_mean(self, statistics: Statistics, prior: Floats) -> Floats:
        """Return the posterior mean of a cell of each block."""

    def log_predictive(self, values: Floats, statistics: Statistics, prior: Floats) -> Floats:
        """Return the log probability of a further cell of each block."""

    def expected_log(self, statistics: Statistics, prior: Floats) -> Statistics:
        """Return the expected natural parameters of each block for variational Bayes."""

    def learn_prior(
        self, statistics: Statistics, prior: Floats, rule: Rule, count: Floats | None = None
    ) -> Floats:
        """Return hyperparameters under which the statistics are more probable, or the same.

        Each block counts ``count`` times; None: once.
        """


def maximise(
    value: Callable[..., float],
    slope: Callable[..., Sequence[float]],
    prior: Floats,
    bound: float,
    *,
    real: int = 0,
) -> Floats:
    """Return the hyperparameters with the largest value, from ``prior`` on (RELATIONS 13).

    The first ``real`` ones are real numbers, the others positive: their logarithms are within
    ``bound`` of 0.
    """

    def parameters(x: Floats) -> Floats:
        return np.concatenate((x[:real], np.exp(x[real:])))

    def loss(x: Floats) -> tuple[float, Floats]:
        p = parameters(x)
        gradient = np.array(slope(*p))
        gradient[real:] *= p[real:]
        return -value(*p), -gradient

    start = prior.ravel().astype(np.float64)
    start[real:] = np.clip(np.log(start[real:]), -bound, bound)
    limits = [(None, None)] * real + [(-bound, bound)] * (start.size - real)
    found = parameters(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits).x)
    return found if value(*found) >= value(*parameters(start)) else parameters(start)


def check_numbers(values: Any) -> Floats:
    """Return values as finite numbers, or refuse them."""
    if np.iscomplexobj(values):
        msg = f"The {len(values):,} values are complex. Choose one real number for each cell."
        raise ValueError(msg)
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        wrong = [value for value in values if not is_number(value)]
        msg = (
            f"{len(wrong):,} of {len(values):,} values are not numbers; the first is "
            f"{quoted(wrong[0])}. Correct them, or choose likelihood='categorical' for categories."
        )
        raise ValueError(msg) from None
    if not np.isfinite(numbers).all():
        msg = (
            f"{(~np.isfinite(numbers)).sum():,} of {numbers.size:,} values are not finite. Correct "
            "them, or leave them out: a cell without a value is unseen."
        )
        raise ValueError(msg)
    return numbers


def check_counts(values: Any) -> Floats:
    """Return values as counts, or refuse them."""
    numbers = check_numbers(values)
    wrong = (numbers < 0) | (numbers != np.floor(numbers))
    if wrong.any():
        msg = (
            f"{wrong.sum():,} of {numbers.size:,} values are not counts 0, 1, 2, ...; the first "
            f"is {numbers[wrong][0]:g}. Choose likelihood='normal' for other numbers."
        )
        raise ValueError(msg)
    if numbers.size and numbers.max() > LARGEST_COUNT:
        msg = (
            f"{(numbers > LARGEST_COUNT).sum():,} of {numbers.size:,} values are counts above "
            f"{LARGEST_COUNT:,}, which are not exact; the largest is {numbers.max():g}. Count in "
            "larger units, or choose likelihood='normal'."
        )
        raise ValueError(msg)
    return numbers


def first_wrong(likelihood: Likelihood, values: Any) -> int | None:
    """Return the position of the first value that does not fit by itself."""

    def is_refused(first: int, end: int) -> bool:
        part = values[first:end]
        try:
            likelihood.for_values(part).encode(part)
        except ValueError:
            return True
        return False

    first, end = 0, len(values)
    while end - first > 1:  # it is in the first half, if that is refused
        middle = (first + end) // 2
        first, end = (first, middle) if is_refused(first, middle) else (middle, end)
    return first if end and is_refused(first, end) else None


def quoted(value: object) -> str:
    """Return a value for a message."""
    text = repr(value) if not isinstance(value, str) else f"'{value}'"
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 3] + "..."


def is_number(value: object) -> bool:
    """Return whether a value is a number, or a text of one."""
    try:
        float(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        return False
    return True
