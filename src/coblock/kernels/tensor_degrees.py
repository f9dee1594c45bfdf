"""Terms of degrees in the scores of objects of several relations (DEGREES D2, D5)."""

from coblock.kernels import Floats, inner
from coblock.kernels.degrees import degree_gain
from coblock.kernels.tensors import Flags, Layout, State


@inner
def add_degree_gains(
    layout: Layout, state: State, d: int, i: int, allowed: Flags, score: Floats
) -> None:
    """Add to the score of each cluster what the degree terms gain by object ``i`` in it.

    The object is taken out of its own cluster first.
    """
    c = state.label[layout.first_object[d] + i]
    for r in range(layout.filled.size):
        begin = layout.first_place[r]
        for q in range(begin, layout.first_place[r + 1]):
            at = layout.first_degree[q]
            if layout.domain[q] != d or at < 0:
                continue
            degree, eta = layout.degree[at + i], state.prior[r, 2 + q - begin]
            for k in range(state.n_clusters[d]):
                if allowed[k]:
                    own = 1.0 if k == c else 0.0
                    m, total = state.m[d, k] - own, state.degree[q, k] - own * degree
                    score[k] += degree_gain(m, max(total, 0.0) if m > 0.0 else 0.0, degree, eta)


@inner
def move_degrees(layout: Layout, state: State, d: int, i: int, c: int, k: int) -> None:
    """Move the degrees of object ``i`` from cluster ``c`` to ``k``."""
    for q in range(layout.domain.size):
        at = layout.first_degree[q]
        if layout.domain[q] == d and at >= 0:
            state.degree[q, c] -= layout.degree[at + i]
            state.degree[q, k] += layout.degree[at + i]
