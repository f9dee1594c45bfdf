"""Products with the normalised links, whose values are computed on the fly (MODEL 14)."""

from typing import NamedTuple

from coblock.kernels import Floats, Incidence, inlined, kernel


class LinkScales(NamedTuple):
    """Factors of the normalised cells that depend on the object in one domain."""

    scale: Floats  # factor of the object's cells
    rate: Floats  # links per observed cell


@inlined
def expected(rate: float, rate_other: float, density: float) -> float:
    """Return the expected value of an unseen cell, given the rates of its two objects."""
    return min(rate * rate_other / density, 1.0)


@kernel
def add_degrees(
    incidence: Incidence, rate: Floats, rate_other: Floats, density: float, degree: Floats
) -> None:
    """Add the number of links and the expected value of the unseen cells of each object."""
    for i in range(degree.size):
        total = 0.0
        for at in range(incidence.unseen_start[i], incidence.unseen_start[i + 1]):
            total += expected(rate[i], rate_other[incidence.unseen[at]], density)
        degree[i] += incidence.link_start[i + 1] - incidence.link_start[i] + total


@kernel
def multiply(
    incidence: Incidence,
    own: LinkScales,
    others: LinkScales,
    density: float,
    block: Floats,
    out: Floats,
) -> None:
    """Write the product of the normalised links and a dense ``block``, object by object."""
    for i in range(out.shape[0]):
        out[i] = 0.0
        for at in range(incidence.link_start[i], incidence.link_start[i + 1]):
            j = incidence.link[at]
            weight = others.scale[j]
            for l in range(out.shape[1]):
                out[i, l] += weight * block[j, l]
        for at in range(incidence.unseen_start[i], incidence.unseen_start[i + 1]):
            j = incidence.unseen[at]
            weight = others.scale[j] * expected(own.rate[i], others.rate[j], density)
            for l in range(out.shape[1]):
                out[i, l] += weight * block[j, l]
        for l in range(out.shape[1]):
            out[i, l] *= own.scale[i]
