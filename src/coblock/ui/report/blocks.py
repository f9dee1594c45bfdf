"""The blocks as the page's script reads them, and where their borders are in the picture."""

from dataclasses import dataclass

import numpy as np

from coblock.kernels import Floats
from coblock.model.result import Result

MOST_CLUSTERS = 120  # along a side of the block map
NARROWEST = 0.9  # per cent of the picture between two borders
ROOM_FOR_LABEL = 4.5  # per cent
UNEVEN = 20.0  # largest probability over the median from which colours are logarithmic


@dataclass(frozen=True, slots=True)
class Axis:
    """Borders between clusters and the numbers of the large ones, in per cent of the side."""

    borders: list[float]
    labels: list[tuple[float, int]]
    all_drawn: bool


def axis(sizes: Floats) -> Axis:
    """Return where clusters of these sizes meet; borders that nearly touch are left out."""
    ends = 100.0 * np.cumsum(sizes) / sizes.sum()
    borders: list[float] = []
    last = 0.0
    for end in ends[:-1]:
        if end - last >= NARROWEST and 100.0 - end >= NARROWEST / 2:
            borders.append(round(float(end), 3))
            last = end
    begins = np.append(0.0, ends[:-1])
    labels = [
        (round(float(begin + end) / 2, 3), k)
        for k, (begin, end) in enumerate(zip(begins, ends, strict=True))
        if end - begin >= ROOM_FOR_LABEL
    ]
    return Axis(borders, labels, len(borders) == sizes.size - 1)


def cluster_sizes(result: Result) -> list[Floats]:
    """Return the number of members of row clusters and of column clusters."""
    K = result.block_probability.shape
    return [
        np.bincount(label, minlength=k).astype(float)
        for label, k in zip((result.labels[0], result.labels[-1]), K, strict=True)
    ]


def block_data(result: Result) -> dict[str, object]:
    """Return the blocks of the largest clusters, row by row, with the digits that matter."""
    shown = tuple(min(k, MOST_CLUSTERS) for k in result.block_probability.shape)
    corner = np.s_[: shown[0], : shown[1]]
    probability = result.block_probability[corner]
    links, cells = result.n[corner], (result.n + result.N)[corner]
    return {
        "shape": shown,
        "probability": [float(f"{p:.4g}") for p in probability.ravel()],
        "links": [_count(x) for x in links.ravel()],
        "cells": [_count(x) for x in cells.ravel()],
        "logarithmic": bool(probability.max() > UNEVEN * np.median(probability)),
        "oneDomain": result.relation.one_domain,
        "sizes": [sizes.astype(int).tolist() for sizes in cluster_sizes(result)],
    }


def _count(expected: float) -> float | int:
    """Return an expected count: whole where it is, or is large, else to a tenth."""
    near = round(float(expected), 1)
    return int(near) if near == int(near) else round(near) if near >= 1000 else near
