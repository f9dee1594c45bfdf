"""Numba kernels: arrays in, arrays out, nothing of ours imported.

The only place where compile options are set. Numba's disk cache does not look at decorator
options, nor at changes in functions imported from another file, so options never vary and the
tests give every version of this folder its own cache.

Vocabulary shared by all kernels:

* A *domain* is a set of objects that are clustered together; ``q`` (objects, clusters) are its
  memberships, ``m`` their column sums. Memberships below 1e-10 are 0, so that a decided object
  has exactly one, which is 1: ``sure`` names it, and a neighbour needs to read nothing else.
* A *place* is a position in the relation at which an object stands. The rows of a bipartite
  relation have one, an object of a directed relation has two (sender and receiver).
* What an object *brings* to the blocks given its cluster: ``n_plus[p, l]`` expected links and
  ``N_plus[p, l]`` expected observed non-links with cluster ``l`` of the other objects.
* A block table as a domain sees it has this domain's clusters first. The columns of a
  bipartite relation are served by the same kernels through transposed views.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int32]
Offsets: TypeAlias = NDArray[np.int64]

BIPARTITE, DIRECTED, UNDIRECTED = 0, 1, 2

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function, *, inline: bool = False) -> Function:
    """Compile ``function`` with the options that all kernels share.

    The default error model checks every division, which keeps loops from vectorising, and
    "reassoc" would undo rounding tricks.
    """
    compiled = numba.njit(
        function,
        cache=True,
        nogil=True,
        error_model="numpy",
        fastmath={"contract", "nsz"},
        forceinline=inline,
    )
    return cast("Function", compiled)


def inlined(function: Function) -> Function:
    """Compile a small function into its callers, so that their loops over it vectorise."""
    return kernel(function, inline=True)


class Place(NamedTuple):
    """Links and unseen cells of each object at one place, compressed by object."""

    link_start: Offsets  # (objects + 1,)
    link: Indices  # other ends of the links, ascending within an object
    unseen_start: Offsets  # (objects + 1,)
    unseen: Indices


class Domain(NamedTuple):
    """One domain of the relation and its current memberships."""

    places: tuple[Place, ...]
    self_link: Floats  # x_ii where the diagonal is seen; only read for directed relations
    self_seen: Floats  # 1 where the diagonal is seen
    order: Indices  # in which the objects are visited
    q: Floats  # (objects, K)
    sure: Indices  # (objects,) the cluster of a decided object, -1 for the others
    m: Floats  # (K,)
    alpha: float


class Blocks(NamedTuple):
    """Expected counts of all blocks and their Beta prior, each (K, clusters of the others)."""

    n: Floats
    N: Floats
    a: Floats
    b: Floats
