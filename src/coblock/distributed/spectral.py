"""The spectral start: products with the normalised links are made by the shards."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Future
from numpy.typing import NDArray

from coblock.distributed import tasks
from coblock.distributed.board import carried
from coblock.distributed.crew import Crew
from coblock.distributed.relation import ClusterRelation
from coblock.inference.spectral import LEAST_DENSITY, number_type, rates_of, scales_of
from coblock.kernels.spectral import Ends


@dataclass(frozen=True, slots=True)
class ClusterLinks:
    """The normalised links of a relation whose shards are on workers."""

    shape: tuple[int, int]
    crew: Crew
    ends: Future  # of both domains
    density: float

    @classmethod
    def of(cls, relation: ClusterRelation) -> "ClusterLinks":
        """Return the normalised links of a relation."""
        crew, density = relation.at_work(), max(relation.density, LEAST_DENSITY)
        kind = number_type(relation.shape)
        rates = [_rates(relation, d, kind) for d in (0, 1)]
        ends = []
        for d in (0, 1):
            messages = crew.everywhere(d, rates[d], rates[1 - d], density)
            degree = crew.whole(d, crew.ask("degree", tasks.degrees, d, messages))
            ends.append(Ends(scales_of(degree).astype(kind), rates[d]))
        there = carried(crew.client, tuple(ends), crew.key("ends", 0))
        return cls(relation.shape, crew, there, density)

    def product(self, d: int, block: NDArray[Any]) -> NDArray[Any]:
        """Return the product with ``block``, transposed where ``d`` is 1."""
        crew = self.crew
        there = carried(crew.client, block, crew.key("block", d))
        messages = [(s, (self.ends, self.density, there)) for s in range(crew.layouts[d].used)]
        return crew.whole(d, crew.ask("multiply", tasks.multiply, d, messages))


def _rates(relation: ClusterRelation, d: int, kind: type[np.floating[Any]]) -> NDArray[Any]:
    """Return the links of every object of a domain per cell that is seen."""
    crew = relation.at_work()
    answers = crew.ask("describe", tasks.describe, d, crew.everywhere(d))
    links, unseen = (crew.whole(d, list(part)) for part in zip(*answers, strict=True))
    return rates_of(links, unseen, relation.shape[1 - d], kind)
