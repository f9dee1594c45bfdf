"""Pack the names for the search field of the page."""

import base64
import json
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coblock.io.export import object_names
from coblock.kernels import Indices
from coblock.model.result import Result
from coblock.ui.names import display_name
from coblock.ui.report.clusters import own_membership

MAX_BYTES = 1_200_000  # of all packed names, so that the page stays below 3 MB
MAX_RATIO = 16  # names are hardly ever compressed by more than this factor

Objects = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """Packed names and the number of names of each domain."""

    packed: str  # base64 of deflated JSON
    kept: list[int]
    per_cluster: int  # largest number of names of one cluster

    def is_complete(self, result: Result) -> bool:
        """Return whether every object can be found."""
        return sum(self.kept) == sum(label.size for label in result.labels)


def pack_names(result: Result, max_bytes: int = MAX_BYTES) -> SearchIndex:
    """Pack all names, or as many of the most certain members of each cluster as fit."""
    certainty, order, rank = [], [], []
    for d, label in enumerate(result.labels):
        certainty.append(np.rint(100.0 * own_membership(result, d)).astype(np.int32))
        order.append(np.lexsort((-certainty[d], label)))
        sizes = np.bincount(label)
        rank.append(np.arange(label.size) - np.repeat(np.cumsum(sizes) - sizes, sizes))
    per_cluster = 1 + max(int(ranks.max()) for ranks in rank)
    while True:
        kept = [objects[ranks < per_cluster] for objects, ranks in zip(order, rank, strict=True)]
        entries = [_entries(result, d, kept[d], certainty[d]) for d in range(len(kept))]
        packed = _compress(entries, max_bytes)
        if packed is not None or per_cluster == 0:
            return SearchIndex(packed or "", [objects.size for objects in kept], per_cluster)
        per_cluster //= 2


def _entries(result: Result, d: int, order: Objects, certainty: Indices) -> dict[str, object]:
    """Return names in order, the number of them per cluster, and runs of equal certainty."""
    names, ordered = object_names(result.relation, d), certainty[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(np.append(starts, ordered.size))
    return {
        "names": [display_name(names, int(i)) for i in order],
        "counts": np.bincount(result.labels[d][order]).tolist(),
        "certainty": np.column_stack((ordered[starts], lengths)).tolist(),
    }


def _compress(domains: list[dict[str, object]], max_bytes: int) -> str | None:
    """Return the entries as text, or None if they are too large."""
    plain = json.dumps(domains, ensure_ascii=False, separators=(",", ":"))
    data = plain.encode("utf-8", "replace")  # a name may contain half of a surrogate pair
    if len(data) > MAX_RATIO * max_bytes:
        return None
    packed = base64.b64encode(zlib.compress(data, 9)).decode("ascii")
    return packed if len(packed) <= max_bytes else None
