"""Compiled loops: arrays in, arrays out.

A module belongs here if Numba compiles it. It imports nothing of coblock outside of this folder,
cites the equations it computes, and has a slow reference implementation in the tests. Compile
options are set in this file only: Numba's disk cache looks neither at decorator options nor at
functions imported from another file, so options never vary, and the tests use one cache
directory for each version of this folder.

Terms shared by all kernels:

* A *domain* is a set of objects that are clustered together. ``q`` (objects, clusters) are soft
  memberships and ``m`` their column sums. Memberships below 1e-10 are set to 0, so a hard
  assignment is exactly 1; ``hard`` holds its cluster, and -1 for a soft assignment.
* A *place* is a position in the relation. The rows of a bipartite relation fill one place, an
  object of a directed relation fills two (sender and receiver), and the two places of an
  undirected relation are one.
* ``n_plus[p, l]`` and ``N_plus[p, l]`` are the expected links and observed non-links that one
  object has at place ``p`` with cluster ``l`` at the other end.
* *Repeated* places are filled by one domain. An object then stands at both ends of its cells,
  and the block of a cluster with itself gains the cells of all its places together
  (RELATIONS 6 and 7).
* A block table seen from a domain has the clusters of this domain first. The columns of a
  bipartite relation use the same kernels with transposed tables.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int32]
Offsets: TypeAlias = NDArray[np.int64]

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(
    function: Function, *, inline: bool = False, inner: bool = False, argument: bool = False
) -> Function:
    """Compile ``function`` with the options that all kernels share.

    Wrappers take a third of the time of compilation. Only functions that Python calls have one
    for Python, so Python must not call an ``inner`` function: the process would end. Only functions
    that kernels take as an ``argument`` have one for C. The default error model checks every
    division, which prevents vectorisation. Of the fast-math flags, "reassoc" would undo rounding
    tricks. With "contract" the bits would depend on what a function is inlined into, and so on
    whether a kernel is compiled or comes from the cache; ``fma`` is explicit instead.
    """
    njit: Any = numba.njit  # its types leave some of the options out
    compiled = njit(
        function,
        cache=True,
        nogil=True,
        error_model="numpy",
        fastmath={"nsz"},
        forceinline=inline,
        no_cpython_wrapper=inner,
        no_cfunc_wrapper=not argument,
    )
    if compiled is not function:  # as it is without compilation
        compiled.get_call_template = partial(_find_template, compiled.get_call_template)
    return cast("Function", compiled)


def _find_template(find: Callable[..., Any], args: Iterable[Any], kws: dict[str, Any]) -> Any:
    """Find the compiled version of a function for a call from another kernel.

    Constants and 32-bit integers are passed as their common type. Without this, Numba compiles a
    function again for every combination of them.
    """
    return find(tuple(map(_common_type, args)), {name: _common_type(kws[name]) for name in kws})


def _common_type(given: Any) -> Any:
    unliteral: Any = numba.types.unliteral  # it has no types
    plain = unliteral(given)
    return numba.int64 if plain == numba.int32 else plain


def inner(function: Function) -> Function:
    """Compile a function that only kernels call."""
    return kernel(function, inner=True)


def inlined(function: Function) -> Function:
    """Compile a small function into the kernels that call it, so that their loops vectorise."""
    return kernel(function, inline=True, inner=True)


def inlined_kernel(function: Function) -> Function:
    """Compile a small function in the same way that Python calls, too."""
    return kernel(function, inline=True)


def _fma_instruction(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
    """Return the types of x y + z with one rounding, and the function that generates it."""
    del typing_context, x, y, z

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.fma(*arguments)

    number = numba.float64
    return number(number, number, number), generate


def _two_roundings(x: float, y: float, z: float) -> float:
    """Return x y + z; used where nothing is compiled."""
    return x * y + z


_compiles = not cast("Any", numba.config).DISABLE_JIT
fma: Any = intrinsic(_fma_instruction) if _compiles else _two_roundings  # x y + z, for kernels

Gain: TypeAlias = Callable[[Floats, Floats, Floats], float]  # see gain_function
Gains: TypeAlias = Any  # a list of them that kernels can index, see gain_list


def gain_function(function: Function) -> Function:
    """Compile the gain of a likelihood, which kernels take as an argument (RELATIONS 4).

    ``function(statistics, plus, prior)`` returns the log marginal of a block with the statistics
    of both less that of the first alone. ``plus`` may be negative: a link replaces an observed
    zero. It returns 0 for statistics that no cells can have: kernels subtract such terms again.
    All gains have one signature, so that the kernels that call them are compiled once.
    :func:`gain_list` compiles a gain when it is used.
    """
    return kernel(function, argument=True)


def gain_list(functions: Iterable[Gain]) -> Gains:
    """Return compiled gains as a list that kernels can index."""
    array = numba.float64[::1]
    signature = numba.float64(array, array, array)
    gains = numba.typed.List.empty_list(numba.types.FunctionType(signature))
    for function in functions:
        cast("Any", function).compile(signature)
        gains.append(function)
    return gains


class Incidence(NamedTuple):
    """Links and unseen cells of each object at one place, compressed by object."""

    link_start: Offsets  # (objects + 1,)
    link: Indices  # objects at the other end of the links, ascending for each object
    unseen_start: Offsets  # (objects + 1,)
    unseen: Indices


class DomainView(NamedTuple):
    """One domain of a relation with its current clusters, as kernels read it."""

    incidence: tuple[Incidence, ...]  # one for each place of the domain
    repeated: bool  # whether the other end of a cell is in the same domain
    own_link: Floats  # x_ii where the diagonal is seen; used by directed relations only
    own_seen: Floats  # 1 where the diagonal is seen
    q: Floats  # (objects, K); empty for hard labels
    hard: Indices  # (objects,) cluster of a hard assignment, -1 for a soft one
    m: Floats  # (K,)
    alpha: float


class BlockTables(NamedTuple):
    """Counts and Beta prior of all blocks, each (K, clusters at the other end)."""

    n: Floats
    N: Floats
    a: Floats
    b: Floats
