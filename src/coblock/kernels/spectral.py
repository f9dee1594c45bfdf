"""Products with the normalised links, whose values are computed on the fly (MODEL 14)."""

from typing import NamedTuple

from coblock.kernels import Floats, Incidence, inlined, kernel
from coblock.kernels.gather import links_of, unseen_of

NEAR_OBJECTS = 1 << 14  # objects whose vectors are used together; 2 MB at 128 bytes each


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
        for j in unseen_of(incidence, i):
            total += expected(rate[i], rate_other[j], density)
        degree[i] += links_of(incidence, i).size + total


@kernel
def multiply(
    incidence: Incidence,
    own: LinkScales,
    others: LinkScales,
    density: float,
    block: Floats,
    out: Floats,
) -> None:
    """Write the product of the normalised links and a dense ``block``.

    The links of all objects with some others come first, then those with the next ones, so that
    the vectors in use stay in the cache. Each sum has the order of the object's links.
    """
    at = incidence.link_start[:-1].copy()  # the next link of each object
    out[:] = 0.0
    for first in range(0, block.shape[0], NEAR_OBJECTS):
        for i in range(out.shape[0]):
            t, end, total = at[i], incidence.link_start[i + 1], out[i]
            while t < end and incidence.link[t] < first + NEAR_OBJECTS:
                scale, vectors = others.scale[incidence.link[t]], block[incidence.link[t]]
                for l in range(total.size):
                    total[l] += scale * vectors[l]
                t += 1
            at[i] = t
    for i in range(out.shape[0]):
        for j in unseen_of(incidence, i):
            weight = others.scale[j] * expected(own.rate[i], others.rate[j], density)
            for l in range(out.shape[1]):
                out[i, l] += weight * block[j, l]
        for l in range(out.shape[1]):
            out[i, l] *= own.scale[i]
