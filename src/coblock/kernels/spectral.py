"""Products with the normalised links, whose values are made on the way (MODEL 14)."""

from typing import NamedTuple

from coblock.kernels import Floats, Place, inlined, kernel


class Ends(NamedTuple):
    """What the value of a cell takes from its end in one domain, for all objects there."""

    scale: Floats  # by which cells are multiplied
    rate: Floats  # links per seen cell


@inlined
def expected(rate: float, rate_other: float, density: float) -> float:
    """Return what the rates of its two ends lead to expect of an unseen cell."""
    return min(rate * rate_other / density, 1.0)


@kernel
def add_degrees(
    place: Place, rate: Floats, rate_other: Floats, density: float, degree: Floats
) -> None:
    """Add up the links of every object and what is expected of its unseen cells."""
    for i in range(degree.size):
        total = 0.0
        for at in range(place.unseen_start[i], place.unseen_start[i + 1]):
            total += expected(rate[i], rate_other[place.unseen[at]], density)
        degree[i] += place.link_start[i + 1] - place.link_start[i] + total


@kernel
def multiply(
    place: Place, ends: Ends, others: Ends, density: float, block: Floats, out: Floats
) -> None:
    """Write the product of the normalised links and a dense ``block``, object by object."""
    for i in range(out.shape[0]):
        out[i] = 0.0
        for at in range(place.link_start[i], place.link_start[i + 1]):
            j = place.link[at]
            weight = others.scale[j]
            for l in range(out.shape[1]):
                out[i, l] += weight * block[j, l]
        for at in range(place.unseen_start[i], place.unseen_start[i + 1]):
            j = place.unseen[at]
            weight = others.scale[j] * expected(ends.rate[i], others.rate[j], density)
            for l in range(out.shape[1]):
                out[i, l] += weight * block[j, l]
        for l in range(out.shape[1]):
            out[i, l] *= ends.scale[i]
