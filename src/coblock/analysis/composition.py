"""Compare clusters with known classes: composition, purity and adjusted Rand index."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from coblock.io import refuse
from coblock.io.export import object_names
from coblock.model.result import Result


@dataclass(frozen=True, slots=True)
class Composition:
    """How the objects of known class fall into the clusters of one domain."""

    domain: int
    classes: list[str]  # the most frequent first
    counts: NDArray[np.int64]  # (clusters, classes)
    objects: int  # with a class
    purity: float  # fraction whose class is the most frequent one of their cluster
    rand_index: float  # adjusted: 1 is agreement, 0 what chance gives

    def line(self, k: int) -> str:
        """Return the classes in cluster ``k`` in words, the most frequent first."""
        order = np.argsort(-self.counts[k], kind="stable")
        parts = [f"{self.counts[k, c]:,} {self.classes[c]}" for c in order if self.counts[k, c]]
        return ", ".join(parts) or "no object of known class"


def compose(result: Result, classes: Mapping[str, str]) -> Composition:
    """Compare the clusters with the class of each object by name.

    The classes are those of the domain with most of the names. Objects without a class are left
    out.
    """
    found = []
    for d, size in enumerate(result.relation.sizes):
        names = object_names(result.relation, d) or [str(i) for i in range(size)]
        found.append([classes.get(name) for name in names])
    matched = [sum(each is not None for each in some) for some in found]
    d = int(np.argmax(matched))
    if not matched[d]:
        first, ours = next(iter(classes), ""), object_names(result.relation, 0) or ["0"]
        refuse(
            f"None of the {len(classes):,} names with a class is in the model; the first is "
            f"{first!r}, and the model's first is {ours[0]!r}. The first column "
            "of the labels must be the names of rows or columns."
        )
    known = np.array([each is not None for each in found[d]])
    kinds, code = np.unique([each for each in found[d] if each is not None], return_inverse=True)
    frequent = np.argsort(-np.bincount(code), kind="stable")
    counts = np.zeros((result.n_clusters[-1 if d else 0], kinds.size), dtype=np.int64)
    label = result.labels[d][known]
    np.add.at(counts, (label, np.argsort(frequent)[code]), 1)
    return Composition(
        d,
        [str(kinds[c]) for c in frequent],
        counts,
        int(known.sum()),
        float(counts.max(axis=1).sum() / known.sum()),
        float(adjusted_rand_score(code, label)),
    )
