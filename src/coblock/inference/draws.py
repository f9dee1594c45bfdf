"""Random numbers of all objects, which are drawn where they are used."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from coblock.kernels import Floats


@dataclass(frozen=True, slots=True)
class UniformDraws:
    """The numbers that ``Generator.random(size)`` returns; any part of them can be drawn alone.

    A number takes one step of the generator, so a part begins after as many steps.
    """

    state: dict[str, Any]  # of PCG64, before the first number
    size: int

    @classmethod
    def take(cls, rng: np.random.Generator, size: int) -> "UniformDraws":
        """Return the next numbers of a generator, which goes on after them."""
        generator: Any = rng.bit_generator
        before = deepcopy(generator.state)
        generator.advance(size)
        kept = ("has_uint32", "uinteger")  # half a step, which is not used by these numbers
        generator.state = generator.state | {name: before[name] for name in kept}
        return cls(before, size)

    def draw(self, start: int = 0, stop: int | None = None) -> Floats:
        """Return the numbers from ``start`` to ``stop``, all of them by default."""
        rng = np.random.default_rng(0)  # PCG64; its state is replaced
        generator: Any = rng.bit_generator
        generator.state = self.state
        generator.advance(start)
        return rng.random((self.size if stop is None else stop) - start)
