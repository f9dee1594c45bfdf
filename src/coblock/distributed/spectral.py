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
from coblock.start import POWER_ITERATIONS

OVERSAMPLES = 10  # scikit-learn's


class NormalisedLinks:
    """The matrix of :func:`coblock.start.normalised_links`, as far as an SVD needs it."""

    dtype = np.dtype(np.float64)
    __array_ufunc__ = None  # NumPy leaves products from the left to us

    def __init__(
        self, crew: Crew, parts: tuple[list[Any], list[Any]], flipped: bool = False
    ) -> None:
        self.crew, self.parts, self.flipped = crew, parts, flipped
        shape = tuple(layout.size for layout in crew.layouts)
        self.shape = shape[::-1] if flipped else shape

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
    crew = relation.at_work()
    degrees = [_by_object(crew, d) for d in (0, 1)]
    rates = tuple(
        links / np.maximum(relation.shape[1 - d] - unseen, 1.0)
        for d, (links, unseen) in enumerate(degrees)
    )
    scales, filled = [], []
    for d in (0, 1):
        futures = crew.tell(
            "expect", tasks.expect_unseen, d, crew.everywhere(d, rates, relation.density)
        )
        filled.append(futures)
        sums = crew.whole(d, crew.ask("degree", tasks.sums_of, d, crew.everywhere(d), futures))
        scales.append(1.0 / np.sqrt(np.maximum(sums + sums.mean(), 1e-12)))
    there = carried(crew.client, tuple(scales), crew.key("scales", 0))
    parts = []
    for d in (0, 1):
        messages = [(s, (shard, there)) for s, shard in enumerate(crew.shards[d])]
        parts.append(crew.tell("normalise", tasks.normalise, d, messages, filled[d]))
    return NormalisedLinks(crew, (parts[0], parts[1]))


def _by_object(crew: Crew, d: int) -> tuple[Floats, Floats]:
    """Return how many links and unseen cells every object has."""
    answers = crew.ask("describe", tasks.describe, d, crew.everywhere(d))
    links, unseen = (crew.whole(d, list(part)) for part in zip(*answers, strict=True))
    return links.astype(np.float64), unseen.astype(np.float64)


def singular_vectors(relation: ClusterRelation, k: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Return the first ``k`` singular vectors and values of the normalised links.

    The steps of scikit-learn's ``randomized_svd``, which takes no matrix that is elsewhere.
    """
    matrix = normalised_links(relation)
    flip = matrix.shape[0] < matrix.shape[1]
    M = matrix.T if flip else matrix
    Q: Any = check_random_state(seed).normal(size=(M.shape[1], k + OVERSAMPLES))
    for _ in range(POWER_ITERATIONS):
        for side in (M, M.T):
            Q = linalg.lu(side @ Q, permute_l=True, check_finite=False)[0]
    Q = linalg.qr(M @ Q, mode="economic", check_finite=False)[0]
    inner, S, Vt = linalg.svd(Q.T @ M, full_matrices=False)
    U, Vt = svd_flip(Q @ inner, Vt, u_based_decision=not flip)
    U, S, Vt = U[:, :k], S[:k], Vt[:k]
    return (Vt.T, S, U.T) if flip else (U, S, Vt)
