"""Prepare the blocks for the page: data for its script, and borders for its picture."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coblock.model.result import Result
from coblock.ui.palette import STEPS

MAX_CLUSTERS = 120  # along a side of the block map
MIN_GAP = 0.9  # between two borders, in per cent of the side
MIN_LABEL = 4.5  # size of a cluster whose number is shown, in per cent of the side
LOG_SCALE_FROM = 20.0  # largest block probability over the median


@dataclass(frozen=True, slots=True)
class ClusterAxis:
    """Borders between clusters and numbers of large clusters, in per cent of the side."""

    borders: list[float]
    labels: list[tuple[float, int]]
    all_drawn: bool

    @classmethod
    def of(cls, sizes: NDArray[np.int64]) -> "ClusterAxis":
        """Return the axis of clusters of these sizes; borders that nearly touch are left out."""
        ends = 100.0 * np.cumsum(sizes) / sizes.sum()
        borders, last = [], 0.0
        for end in ends[:-1]:
            if end - last >= MIN_GAP and 100.0 - end >= MIN_GAP / 2:
                borders.append(round(float(end), 3))
                last = end
        starts = np.append(0.0, ends[:-1])
        labels = [
            (round(float(start + end) / 2, 3), k)
            for k, (start, end) in enumerate(zip(starts, ends, strict=True))
            if end - start >= MIN_LABEL
        ]
        return cls(borders, labels, len(borders) == sizes.size - 1)


def cluster_sizes(result: Result) -> list[NDArray[np.int64]]:
    """Return the number of members of row clusters and of column clusters; none is empty."""
    return [np.bincount(label) for label in (result.labels[0], result.labels[-1])]


def block_data(result: Result) -> dict[str, object]:
    """Return the blocks of the largest clusters in row-major order, rounded, for the script."""
    shape = tuple(min(k, MAX_CLUSTERS) for k in result.block_probability.shape)
    shown = np.s_[: shape[0], : shape[1]]
    probability = result.block_probability[shown]
    links, cells = result.n[shown], (result.n + result.N)[shown]
    return {
        "shape": shape,
        "steps": STEPS,
        "probability": [float(f"{p:.4g}") for p in probability.ravel()],
        "links": [_rounded(x) for x in links.ravel()],
        "cells": [_rounded(x) for x in cells.ravel()],
        "logarithmic": bool(probability.max() > LOG_SCALE_FROM * np.median(probability)),
        "oneDomain": result.relation.repeated,
        "sizes": [sizes.tolist() for sizes in cluster_sizes(result)],
    }


def _rounded(expected: float) -> float | int:
    """Return an expected count to a tenth, or as a whole number from 1,000."""
    tenths = round(float(expected), 1)
    return int(tenths) if tenths.is_integer() else round(tenths) if tenths >= 1000 else tenths
