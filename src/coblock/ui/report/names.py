"""The names that can be searched, packed small enough to travel with the page."""

import base64
import json
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Indices
from coblock.model.result import Result
from coblock.ui.report.clusters import certainty, names_of
from coblock.ui.report.words import shown_name

MOST_BYTES = 1_200_000  # of all names, packed
BEST_RATIO = 16  # names are hardly ever packed better than this

Order = NDArray[np.int32 | np.int64]


@dataclass(frozen=True, slots=True)
class Names:
    """Packed names and how many there are of each domain."""

    packed: str  # base64 of deflated JSON
    kept: list[int]
    most: int  # members kept of each cluster

    def complete(self, result: Result) -> bool:
        """Whether every name can be found."""
        return sum(self.kept) == sum(label.size for label in result.labels)


def pack(result: Result, most_bytes: int = MOST_BYTES) -> Names:
    """Pack all names, or as many of the surest members of every cluster as there is room for."""
    orders = [_by_cluster(result, d) for d in range(len(result.labels))]
    most = max(int(np.bincount(label).max()) for label in result.labels)
    while True:
        kept = [
            order[_rank_in_cluster(result.labels[d][order]) < most]
            for d, order in enumerate(orders)
        ]
        packed = _packed([_domain(result, d, order) for d, order in enumerate(kept)], most_bytes)
        if packed is not None or most == 0:
            return Names(packed or "", [order.size for order in kept], most)
        most //= 2


def _by_cluster(result: Result, d: int) -> Order:
    """Return the objects by cluster, the surest (to one per cent) first."""
    label = result.labels[d]
    return np.lexsort((-_per_cent(result, d), label))


def _per_cent(result: Result, d: int) -> Indices:
    sure = certainty(result.memberships[d], result.labels[d])
    return np.rint(100.0 * sure).astype(np.int32)


def _rank_in_cluster(label: Indices) -> Order:
    """Return each object's place within its cluster; labels ascend."""
    sizes = np.bincount(label)
    return np.arange(label.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _domain(result: Result, d: int, order: Order) -> dict[str, object]:
    """Return names in order, how many each cluster has, and certainty as runs of equal values."""
    names, sure = names_of(result, d), _per_cent(result, d)[order]
    begins = np.flatnonzero(np.diff(sure, prepend=-1))
    runs = np.diff(np.append(begins, sure.size))
    return {
        "names": [shown_name(names, int(i)) for i in order],
        "counts": np.bincount(result.labels[d][order]).tolist(),
        "certainty": [[int(sure[at]), int(run)] for at, run in zip(begins, runs, strict=True)],
    }


def _packed(domains: list[dict[str, object]], most_bytes: int) -> str | None:
    """Return the names as text, or None where they take too much room."""
    plain = json.dumps(domains, ensure_ascii=False, separators=(",", ":"))
    data = plain.encode("utf-8", "replace")  # a name may hold half of a surrogate pair
    if len(data) > BEST_RATIO * most_bytes:
        return None
    packed = base64.b64encode(zlib.compress(data, 9)).decode("ascii")
    return packed if len(packed) <= most_bytes else None
