"""The spectral start: products with the normalised links are made by the shards."""

from typing import Any

import numpy as np
from scipy import linalg
from sklearn.utils import check_random_state
from sklearn.utils.extmath import svd_flip

from coblock.distributed import tasks
from coblock.distributed.board import carried
from coblock.distributed.crew import Crew
from coblock.distributed.relation import ClusterRelation
from coblock.kernels import Floats
from coblock.start import POWER_ITERATIONS, number_type, rates_of, scales_of

OVERSAMPLES = 10  # scikit-learn's


class NormalisedLinks:
    """The matrix of :func:`coblock.start.normalised_links`, as far as an SVD needs it."""

    __array_ufunc__ = None  # NumPy leaves products from the left to us

    def __init__(
        self, crew: Crew, parts: tuple[list[Any], list[Any]], flipped: bool = False
    ) -> None:
        self.crew, self.parts, self.flipped = crew, parts, flipped
        shape = tuple(layout.size for layout in crew.layouts)
        self.shape = shape[::-1] if flipped else shape
        self.dtype = np.dtype(number_type((shape[0], shape[1])))

    @property
    def T(self) -> "NormalisedLinks":  # noqa: N802 - as NumPy has it
        """The transpose; the shards by column are that already."""
        return NormalisedLinks(self.crew, self.parts, not self.flipped)

    def __matmul__(self, operand: Floats) -> Floats:
        d, crew = int(self.flipped), self.crew
        there = carried(crew.client, np.ascontiguousarray(operand), crew.key("operand", d))
        messages = crew.everywhere(d, there)
        answers = crew.ask("multiply", tasks.multiply, d, messages, self.parts[d])
        return crew.whole(d, answers)

    def __rmatmul__(self, operand: Floats) -> Floats:
        return (self.T @ operand.T).T


def normalised_links(relation: ClusterRelation) -> NormalisedLinks:
    """Return the links, and what is expected of unseen cells, divided by the ends' degrees."""
    crew, kind = relation.at_work(), np.dtype(number_type(relation.shape)).name
    rates = tuple(_rates(relation, d, kind) for d in (0, 1)) if relation.n_unseen else None
    scales, filled = [], []
    for d in (0, 1):
        messages = crew.everywhere(d, rates, relation.density, kind)
        futures = crew.tell("expect", tasks.expect_unseen, d, messages)
        filled.append(futures)
        sums = crew.whole(d, crew.ask("degree", tasks.sums_of, d, crew.everywhere(d), futures))
        scales.append(scales_of(sums))
    there = carried(crew.client, tuple(scales), crew.key("scales", 0))
    parts = []
    for d in (0, 1):
        messages = [(s, (shard, there)) for s, shard in enumerate(crew.shards[d])]
        parts.append(crew.tell("normalise", tasks.normalise, d, messages, filled[d]))
    return NormalisedLinks(crew, (parts[0], parts[1]))


def _rates(relation: ClusterRelation, d: int, kind: str) -> Floats:
    """Return the links of every object of a domain per cell that is seen."""
    crew = relation.at_work()
    answers = crew.ask("describe", tasks.describe, d, crew.everywhere(d))
    links, unseen = (crew.whole(d, list(part)) for part in zip(*answers, strict=True))
    return rates_of(links.astype(kind), unseen.astype(kind), relation.shape[1 - d])


def singular_vectors(relation: ClusterRelation, k: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Return the first ``k`` singular vectors and values of the normalised links.

    The steps of scikit-learn's ``randomized_svd``, which takes no matrix that is elsewhere.
    """
    matrix = normalised_links(relation)
    flip = matrix.shape[0] < matrix.shape[1]
    M = matrix.T if flip else matrix
    drawn = check_random_state(seed).normal(size=(M.shape[1], k + OVERSAMPLES))
    Q: Any = drawn.astype(M.dtype)
    for _ in range(POWER_ITERATIONS):
        for side in (M, M.T):
            Q = linalg.lu(side @ Q, permute_l=True, check_finite=False)[0]
    Q = linalg.qr(M @ Q, mode="economic", check_finite=False)[0]
    inner, S, Vt = linalg.svd(Q.T @ M, full_matrices=False)
    U, Vt = svd_flip(Q @ inner, Vt, u_based_decision=not flip)
    U, S, Vt = U[:, :k], S[:k], Vt[:k]
    return (Vt.T, S, U.T) if flip else (U, S, Vt)
