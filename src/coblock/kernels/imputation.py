"""Counts of links and of unseen cells in the bounds of DEGREES D3 and D4 (RELATIONS 3).

The log rate of a cell is the entry of its block plus a term of each of its two objects.
"""

import math

from coblock.kernels import Floats, Incidence, Indices, kernel

LARGEST_RATE = 8.0  # of a link; it has the probability 0.9997
SMALLEST_RATE = 1e-12  # a link of a smaller rate acts as the count 1, to the last digit


@kernel
def impute_links(
    place: Incidence,
    label: Indices,
    label_other: Indices,
    log_rate: Floats,
    own: Floats,
    other: Floats,
    counts: Floats,
) -> float:
    """Write the count that each link acts as; return the sum of the constants (DEGREES D4)."""
    constant = 0.0
    for i in range(label.size):
        for t in range(place.link_start[i], place.link_start[i + 1]):
            j = place.link[t]
            log_mu = log_rate[label_other[j], label[i]] + (own[i] + other[j])
            counts[t], part = link_count(log_mu)
            constant += part
    return constant


@kernel
def link_count(log_mu: float) -> tuple[float, float]:
    """Return x = mu / (1 - exp(-mu)) and the constant ln(exp(mu) - 1) - x ln(mu).

    The bound holds for any mu. Rates above ``LARGEST_RATE`` are cut, or the counts of a clique,
    whose probability only rises with the rate, grow without end.
    """
    log_mu = min(log_mu, math.log(LARGEST_RATE))
    mu = math.exp(log_mu)
    if mu < SMALLEST_RATE:
        return 1.0, 0.0
    missing = -math.expm1(-mu)
    return mu / missing, mu + math.log(missing) - mu / missing * log_mu


@kernel
def impute_unseen(
    place: Incidence,
    label: Indices,
    label_other: Indices,
    log_rate: Floats,
    own: Floats,
    other: Floats,
    degree: Floats,
    n: Floats,
) -> float:
    """Add the rates of the unseen cells to degrees and blocks; return the sum of the constants.

    An unseen cell of rate mu acts as the count mu, with the constant mu - mu ln(mu) (DEGREES D3).
    """
    constant = 0.0
    for i in range(label.size):
        for t in range(place.unseen_start[i], place.unseen_start[i + 1]):
            j = place.unseen[t]
            log_mu = log_rate[label_other[j], label[i]] + (own[i] + other[j])
            mu = math.exp(log_mu)
            degree[i] += mu
            n[label_other[j], label[i]] += mu
            constant += mu - mu * log_mu
    return constant


@kernel
def link_counts(log_mu: Floats, counts: Floats) -> float:
    """Write the count that each link of a log rate acts as; return the sum of the constants."""
    constant = 0.0
    for t in range(log_mu.size):
        counts[t], part = link_count(log_mu[t])
        constant += part
    return constant
