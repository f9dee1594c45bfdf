"""Collect what the script of the page needs, packed into little text."""

import json
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coblock.analysis.description import Description
from coblock.analysis.explain import Feature
from coblock.io.export import object_names
from coblock.kernels import Indices
from coblock.model.result import Result
from coblock.ui.style import display_name, truncate

MAX_CLUSTERS = 500  # along a side of the block map
LOGIT_STEPS = 256  # per unit of the log odds: probabilities keep three digits
LOG_SCALE_FROM = 20.0  # largest block probability over the median
MAX_BYTES = 1_200_000  # of packed clusters, and of packed names if the page has room
MAX_RATIO = 16  # names are hardly ever compressed by more than this factor
MAX_FEATURES = 12  # of a cluster; fewer if they do not fit
MAX_CLUSTER_NAME = 120  # characters


def cluster_sizes(result: Result) -> list[NDArray[np.int64]]:
    """Return the number of members of row clusters and of column clusters that have some."""
    return [np.bincount(label) for label in (result.labels[0], result.labels[-1])]


def pack(data: object) -> str:
    """Return JSON, deflated, as base64."""
    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return b64encode(zlib.compress(plain.encode("utf-8", "replace"), 9)).decode()


def pack_clusters(found: Description, max_bytes: int = MAX_BYTES) -> str:
    """Return blocks, tree and the profiles of all clusters; long lists are cut if they must be."""
    fixed = {"blocks": block_data(found.result), "tree": tree_data(found)}
    most = MAX_FEATURES
    while True:
        domains = [domain_data(found, d, most) for d in range(len(found.names))]
        packed = pack(fixed | {"domains": domains})
        if len(packed) <= max_bytes or most == 1:
            return packed
        most //= 2


def block_data(result: Result) -> dict[str, object]:
    """Return the blocks of the largest clusters in row-major order.

    Probabilities are log odds in steps, links are tenths.
    """
    shape = tuple(min(k, MAX_CLUSTERS) for k in result.n_clusters)
    shown = np.s_[: shape[0], : shape[1]]
    p = np.clip(result.block_probability[shown], 1e-12, 1.0 - 1e-12)
    cells = (result.n + result.N)[shown]
    a, b = (float(np.mean(part)) for part in result.hyper.prior)
    return {
        "shape": shape,
        "logit": np.rint(LOGIT_STEPS * np.log(p / (1.0 - p))).astype(int).ravel().tolist(),
        "links": np.rint(10.0 * result.n[shown]).astype(int).ravel().tolist(),
        "cells": np.rint(cells).astype(int).ravel().tolist(),
        "steps": LOGIT_STEPS,
        "prior": [a, b],
        "logarithmic": bool(p.max() > LOG_SCALE_FROM * np.median(p)),
    }


def tree_data(found: Description) -> dict[str, object]:
    """Return the merges, and level, numbers of clusters and evidence of some cuts."""
    merges = [[each.domain, each.first, each.second] for each in found.tree.merges]
    cuts = [[cut.level, list(cut.clusters), round(cut.log_evidence, 1)] for cut in found.cuts]
    return {"merges": merges, "cuts": cuts}


def domain_data(found: Description, d: int, most: int) -> dict[str, Any]:
    """Return names, sizes, order and profiles of the clusters of one domain."""
    result, e = found.result, found.domains.partner(d)
    names = [object_names(result.relation, place) for place in range(len(found.names))]

    def objects(features: list[Feature]) -> list[list[Any]]:
        return _rounded(features[:most], lambda part: display_name(names[e], part.index))

    def clusters(features: list[Feature]) -> list[list[Any]]:
        return _rounded(features[:most], lambda part: part.index)

    profiles = []
    for profile in found.domains.profiles[d]:
        ways = [
            {
                "clusters": clusters(way.clusters),
                "objects": objects(way.objects),
                "exclusive": objects(way.exclusive[: -(-most // 2)]),
                "shared": objects(way.shared[: -(-most // 2)]),
            }
            for way in profile.directions
        ]
        near = [[g, round(cosine, 3)] for g, cosine in profile.nearest]
        unsure = [
            [display_name(names[d], one.index), round(100 * one.certainty), one.other]
            for one in profile.unsure[:most]
        ]
        profiles.append({"ways": ways, "near": near, "unsure": unsure})
    made = found.composition
    known = made is not None and made.domain == d
    return {
        "names": [truncate(name, MAX_CLUSTER_NAME) for name in found.names[d]],
        "sizes": [profile.size for profile in found.domains.profiles[d]],
        "certainty": [round(100 * one.certainty, 1) for one in found.domains.profiles[d]],
        "order": found.tree.order[d].tolist(),
        "verbs": [way.verb for way in found.domains.profiles[d][0].directions],
        "classes": [made.line(k) for k in range(len(profiles))] if made and known else [],
        "profiles": profiles,
    }


def _rounded(features: list[Feature], key: Callable[[Feature], Any]) -> list[list[Any]]:
    """Return what, probability, lift and share of partners, with few digits."""
    return [
        [key(part), *(float(f"{x:.3g}") for x in (part.probability, part.lift, part.share))]
        for part in features
    ]


class SearchIndex(NamedTuple):
    """Packed names of the members of all clusters, and the number of names of each domain."""

    packed: str  # base64 of deflated JSON
    kept: list[int]
    per_cluster: int  # largest number of names of one cluster
    complete: bool  # whether every object can be found


def pack_names(result: Result, max_bytes: int = MAX_BYTES) -> SearchIndex:
    """Pack all names, or as many of the most certain members of each cluster as fit."""
    certainty, order, rank = [], [], []
    for d, label in enumerate(result.labels):
        own = result.memberships[d][np.arange(label.size), label]
        certainty.append(np.rint(100.0 * own).astype(np.int32))
        order.append(np.lexsort((-certainty[d], label)))
        sizes = np.bincount(label)
        rank.append(np.arange(label.size) - np.repeat(np.cumsum(sizes) - sizes, sizes))
    per_cluster = 1 + max(int(ranks.max()) for ranks in rank)
    while True:
        kept = [objects[ranks < per_cluster] for objects, ranks in zip(order, rank, strict=True)]
        entries = [_entries(result, d, kept[d], certainty[d]) for d in range(len(kept))]
        plain = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
        data = plain.encode("utf-8", "replace")  # a name may contain half of a surrogate pair
        small = len(data) <= MAX_RATIO * max_bytes
        packed = b64encode(zlib.compress(data, 9)).decode() if small else ""
        fits = small and len(packed) <= max_bytes
        if fits or per_cluster == 0:
            counts = [objects.size for objects in kept]
            complete = sum(counts) == sum(label.size for label in result.labels)
            return SearchIndex(packed if fits else "", counts, per_cluster, complete)
        per_cluster //= 2


def _entries(
    result: Result, d: int, order: NDArray[np.int64], certainty: Indices
) -> dict[str, object]:
    """Return names in order, the number of them per cluster, and runs of equal certainty."""
    names, ordered = object_names(result.relation, d), certainty[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(np.append(starts, ordered.size))
    return {
        "names": [display_name(names, int(i)) for i in order],
        "counts": np.bincount(result.labels[d][order], minlength=1).tolist(),
        "certainty": np.column_stack((ordered[starts], lengths)).tolist(),
    }


def cluster_rows(found: Description, d: int, *, features: bool) -> list[dict[str, Any]]:
    """Return the lines of the table of clusters, which is there without a script, too."""
    made, rows = found.composition, []
    for profile in found.domains.profiles[d]:
        k = profile.number
        texts = [found.features(d, way.objects[:2]) for way in profile.directions]
        rows.append(
            {
                "number": k,
                "name": truncate(found.names[d][k], MAX_CLUSTER_NAME),
                "size": profile.size,
                "share": profile.size / found.result.labels[d].size,
                "certainty": profile.certainty,
                "features": [truncate(t) for some in texts for t in some] if features else [],
                "classes": made.line(k) if made is not None and made.domain == d else "",
            }
        )
    return rows
