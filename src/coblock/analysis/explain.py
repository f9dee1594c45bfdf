"""Explain and name clusters: what they link to more than others, what is near, who is unsure.

*Lift* is the probability of a link from a member of the cluster over the average of all objects:
2 means twice the average. Time and memory are linear in the links and unseen cells.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from coblock.io import printable
from coblock.io.export import object_names
from coblock.kernels import Floats, Incidence, Indices, Offsets
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result

CLUSTERS_SHOWN = 8  # partner clusters of a cluster
OBJECTS_SHOWN = 12  # single partners of a cluster
NEAREST_SHOWN = 5
UNSURE_SHOWN = 8
UNSURE_BELOW = 0.95  # certainty of a member that is listed as unsure
SUPPORT = 0.5  # least probability of a partner, relative to the most probable one
EXCLUSIVE = 0.5  # share of a partner's links above which it is exclusive to a cluster
MAX_PART = 28  # characters of each part of a name
FEWEST_PARTS, MOST_PARTS = 2, 4  # of a name
SHARED = 1.5  # lift below which a probable partner is shared with other clusters


@dataclass(frozen=True, slots=True)
class Feature:
    """A partner of a cluster, itself a cluster or a single object, and how they are linked."""

    index: int
    probability: float  # of a link between a member and the partner
    lift: float  # probability over the average of all objects
    share: float  # fraction of the partner's links that this cluster has


@dataclass(frozen=True, slots=True)
class Direction:
    """Partners of a cluster in one direction, with the largest lift first.

    Of all partners, those with at least half of the probability of the most probable one
    are ranked. Exclusive objects have most of their links with this cluster; shared objects are
    probable, but hardly more than on average.
    """

    verb: str  # "links to" or "linked from"
    clusters: list[Feature]
    objects: list[Feature]
    exclusive: list[Feature]
    shared: list[Feature]


@dataclass(frozen=True, slots=True)
class Unsure:
    """A member that may belong to another cluster."""

    index: int
    certainty: float
    other: int  # the next probable cluster
    other_probability: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What characterises one cluster."""

    number: int
    size: int
    certainty: float  # mean probability of the cluster over its members
    members: NDArray[np.int64]  # the most certain first, then those with most links
    directions: list[Direction]
    nearest: list[tuple[int, float]]  # clusters with the most similar links, and their cosine
    unsure: list[Unsure]


@dataclass(frozen=True, slots=True)
class Domains:
    """Profiles of all clusters of each domain, and what its objects are called."""

    nouns: tuple[str, ...]
    profiles: list[list[Profile]]

    def partner(self, d: int) -> int:
        """Return the domain at the other end of the links of domain ``d``."""
        return len(self.nouns) - 1 - d


def explain_clusters(result: Result) -> Domains:
    """Return what characterises every cluster of every domain.

    Examples
    --------
    >>> import numpy as np
    >>> from coblock import IRM
    >>> model = IRM(random_state=0).fit(np.kron(np.eye(2), np.ones((9, 8))))
    >>> first = explain_clusters(model.result_).profiles[0][0]
    >>> first.size, [round(part.lift, 1) for part in first.directions[0].objects[:2]]
    (9, [2.0, 2.0])
    """
    nouns = ("object",) if result.relation.repeated else ("row", "column")
    return Domains(nouns, [_profiles(result, d) for d in range(len(nouns))])


def views(result: Result, d: int) -> Iterator[tuple[str, int, Floats, Floats, Floats]]:
    """Yield verb, place and tables (probability, links, cells) of each direction of a domain.

    Tables have the clusters of domain ``d`` first. In an undirected relation a pair within a
    cluster counts for both of its objects.
    """
    tables = [result.block_probability, result.n, result.n + result.N]
    tables = [table[result.with_members] for table in tables]
    if result.relation.symmetric:
        tables[1:] = [table + np.diag(np.diag(table)) for table in tables[1:]]
    verbs = ("links to", "linked from") if result.relation.kind == "directed" else ("links to",)
    for p, verb in enumerate(verbs):
        probability, links, cells = (t.T if d == 1 or p == 1 else t for t in tables)
        yield verb, p, probability, links, cells


def has_cells(result: Result) -> bool:
    """Return whether the links are on this machine; without them single partners are unknown."""
    return isinstance(result.relation, BinaryRelation)


def _profiles(result: Result, d: int) -> list[Profile]:
    label, q, K = result.labels[d], result.memberships[d], result.n_clusters[d]
    certainty = q[np.arange(label.size), label]
    here = has_cells(result)
    places = result.relation.incidence[d] if here else ()
    degree = sum((np.diff(place.link_start) for place in places), np.zeros(label.size))
    order = np.lexsort((-degree, -np.round(certainty, 3), label))
    members = np.split(order, np.cumsum(np.bincount(label, minlength=K))[:-1])
    directions: list[list[Direction]] = [[] for _ in range(K)]
    for verb, p, probability, links, cells in views(result, d):
        objects = _object_tables(result, d, places[p]) if here else None
        average = links.sum(axis=0) / np.maximum(cells.sum(axis=0), 1e-300)
        share = links / np.maximum(links.sum(axis=0), 1e-300)
        for k in range(K):
            linked = np.flatnonzero(links[k] > 0.0)
            lift = probability[k, linked] / np.maximum(average[linked], 1e-300)
            found = (linked, probability[k, linked], lift, share[k, linked])
            clusters = _by_lift(*found, CLUSTERS_SHOWN)
            single = _object_features(objects, k) if objects else ([], [], [])
            directions[k].append(Direction(verb, clusters, *single))
    near = _nearest(result, d)
    unsure = _unsure(q[:, :K], certainty, members)
    sure = [float(certainty[some].mean()) for some in members]
    sizes = [some.size for some in members]
    columns = zip(range(K), sizes, sure, members, directions, near, unsure, strict=True)
    return [Profile(*each) for each in columns]


def _pattern(start: Offsets, index: Indices, shape: tuple[int, int]) -> sparse.csr_array:
    return sparse.csr_array((np.ones(index.size), index, start), shape=shape)


def _object_tables(result: Result, d: int, place: Incidence) -> list[sparse.csr_array]:
    """Return links, probability, lift and share of each cluster with single linked objects."""
    label, relation = result.labels[d], result.relation
    n, others, K = label.size, relation.sizes[-1 - d], result.n_clusters[d]
    mine = _pattern(np.arange(n + 1), label, (n, K)).T.tocsr()
    links = (mine @ _pattern(place.link_start, place.link, (n, others))).tocoo()
    unseen = (mine @ _pattern(place.unseen_start, place.unseen, (n, others))).tocsr()
    own_links, own_unseen = np.zeros(others), np.zeros(others)
    if relation.repeated:
        own_links, own_unseen = relation.own_link, 1.0 - relation.own_seen
        at = np.arange(n)
        links = (links + sparse.coo_array((own_links, (label, at)), shape=(K, n))).tocoo()
        unseen = unseen + sparse.csr_array((own_unseen, (label, at)), shape=(K, n))
    k, j = links.coords
    unseen.sum_duplicates()  # sorted, for a binary search of each cell
    hidden = np.asarray(unseen[k, j]) if k.size else np.zeros(0)  # SciPy gives a sparse array of 0
    cells = np.bincount(label, minlength=K)[k] - hidden
    total = np.asarray(links.sum(axis=0)).ravel()
    seen = n - np.asarray(unseen.sum(axis=0)).ravel()
    probability = links.data / np.maximum(cells, 1.0)
    lift = probability / np.maximum(total[j] / np.maximum(seen[j], 1.0), 1e-300)
    values = (links.data, probability, lift, links.data / np.maximum(total[j], 1.0))
    return [sparse.csr_array((value, (k, j)), shape=(K, others)) for value in values]


def _object_features(
    tables: list[sparse.csr_array], k: int
) -> tuple[list[Feature], list[Feature], list[Feature]]:
    """Return ranked, exclusive and shared objects among the partners of cluster ``k``."""
    part = slice(tables[0].indptr[k], tables[0].indptr[k + 1])
    linked = tables[0].data[part] > 0
    index = tables[0].indices[part][linked].astype(np.int64)
    probability, lift, share = (table.data[part][linked] for table in tables[1:])
    ranked = _by_lift(index, probability, lift, share, OBJECTS_SHOWN)
    alone = share > EXCLUSIVE
    of_alone = (probability[alone], lift[alone], share[alone])
    exclusive = _by_lift(index[alone], *of_alone, OBJECTS_SHOWN)
    most = probability.max(initial=0.0)
    common = np.flatnonzero((lift < SHARED) & (probability >= SUPPORT * most) & ~alone)
    common = common[np.lexsort((index[common], -probability[common]))][:OBJECTS_SHOWN]
    shared = _features(index[common], probability[common], lift[common], share[common])
    return ranked, exclusive, shared


def _by_lift(
    index: NDArray[np.int64], probability: Floats, lift: Floats, share: Floats, most: int
) -> list[Feature]:
    """Return the partners with lift above 1 and enough probability, the largest lift first."""
    least = SUPPORT * probability.max(initial=0.0)
    kept = np.flatnonzero((probability >= least) & (lift > 1.0))
    order = kept[np.lexsort((index[kept], -probability[kept], -np.round(lift[kept], 9)))][:most]
    return _features(index[order], probability[order], lift[order], share[order])


def _features(*columns: NDArray[np.generic]) -> list[Feature]:
    return [Feature(*each) for each in zip(*(column.tolist() for column in columns), strict=True)]


def similarity(result: Result, d: int) -> Floats:
    """Return the cosines between the link probabilities of clusters, weighted by partner size."""
    size = np.bincount(result.labels[-1 - d])
    parts = [table * np.sqrt(size) for _, _, table, _, _ in views(result, d)]
    vectors = np.hstack(parts)
    vectors = vectors / np.maximum(np.sqrt((vectors**2).sum(axis=1, keepdims=True)), 1e-300)
    with threadpool_limits(1):  # for the same bits on any number of threads
        return np.asarray(vectors @ vectors.T)


def _nearest(result: Result, d: int) -> list[list[tuple[int, float]]]:
    cosine, found = similarity(result, d), []
    for k, line in enumerate(np.round(cosine, 9)):
        order = np.argsort(-line, kind="stable")
        near = order[order != k][:NEAREST_SHOWN]
        found.append([(int(g), float(cosine[k, g])) for g in near])
    return found


def _unsure(q: Floats, certainty: Floats, members: list[NDArray[np.int64]]) -> list[list[Unsure]]:
    """Return the least certain members of each cluster with their next probable cluster."""
    found: list[list[Unsure]] = []
    for k, some in enumerate(members):
        doubtful = some[certainty[some] < UNSURE_BELOW]
        doubtful = doubtful[np.argsort(certainty[doubtful], kind="stable")][:UNSURE_SHOWN]
        found.append([])
        for i in doubtful:
            others = np.where(np.arange(q.shape[1]) == k, -1.0, q[i])
            g = int(others.argmax())
            if g != k:
                found[-1].append(Unsure(int(i), float(certainty[i]), g, float(q[i, g])))
    return found


def describe_feature(name: str, feature: Feature) -> str:
    """Return a partner in words.

    Examples
    --------
    >>> describe_feature("use::gameplaying", Feature(0, 0.98, 40.2, 0.9))
    'use::gameplaying 98 %, 40 x average'
    """
    lift = f"{feature.lift:,.0f}" if feature.lift >= 9.95 else f"{feature.lift:.1f}"
    share = 100.0 * feature.probability
    shown = f"{share:.0f}" if share >= 9.95 else f"{share:.2g}" if share >= 1e-3 else f"{share:.0e}"
    return f"{printable(name)} {shown} %, {lift} x average"


def shown_name(result: Result, d: int, i: int) -> str:
    """Return the name of an object on one line, or its noun and number if it has none."""
    names = object_names(result.relation, d)
    if names is not None and names[i].strip():
        return printable(names[i])
    noun = "object" if result.relation.repeated else ("row", "column")[d]
    return f"{noun} {i}"


def describe_certainty(result: Result) -> str:
    """Return a sentence that says what the certainties of a result are conditional on."""
    if result.samples:
        return (
            f"Certainty is the probability of a member's cluster over {len(result.samples):,} "
            "sampled partitions, in which clusters open and close."
        )
    words = (
        "Certainty is the probability of a member's cluster given the clusters of all other "
        "objects. It does not say whether another partition fits as well"
    )
    if result.stability is None:
        return f"{words}: fit with n_init=5 to see whether other starts agree."
    return f"{words}; the restarts agree with an adjusted Rand index of {result.stability:.2f}."


def describe_structure(result: Result) -> str | None:
    """Return a sentence if the result is a single block, else None."""
    if result.n_clusters != (1, 1):
        return None
    density = result.relation.density
    return f"No structure found beyond the density: {density:.2%} of the observed cells are links."


# Names of clusters


def name_clusters(result: Result, found: Domains) -> list[list[str]]:
    """Return a name for each cluster of each domain; names of a domain differ.

    The domain with fewer objects provides the words: its own clusters are named after the members
    with most links, the others after the partners with the largest lift. In one domain these are
    the members. A cluster without a word is named by its number. Names do not depend on the
    numbers of the clusters unless two clusters have the same words.
    """
    sizes = result.relation.sizes
    return [
        _distinct([_words(result, found, d, profile, sizes) for profile in profiles], noun)
        for d, (noun, profiles) in enumerate(zip(found.nouns, found.profiles, strict=True))
    ]


def _words(
    result: Result, found: Domains, d: int, profile: Profile, sizes: Sequence[int]
) -> list[str]:
    """Return the words for a cluster, the most characteristic first."""
    e = found.partner(d)
    own, others = object_names(result.relation, d), object_names(result.relation, e)
    if d != e and others is not None and (sizes[e] <= sizes[d] or own is None):
        words = [others[part.index] for part in profile.directions[0].objects]
        if words:
            return [_short(word) for word in words if word.strip()][:MOST_PARTS]
    if own is None:
        return []
    return [_short(own[i]) for i in profile.members[:MOST_PARTS] if own[i].strip()]


def _short(word: str) -> str:
    line = printable(word[: 4 * MAX_PART])
    return line if len(line) <= MAX_PART else f"{line[: MAX_PART - 3]}..."


def _distinct(words: list[list[str]], noun: str) -> list[str]:
    """Return names of as few words as make them differ; where none do, the number is added."""
    names = [""] * len(words)
    for parts in range(FEWEST_PARTS, MOST_PARTS + 1):
        longer = [", ".join(some[:parts]) for some in words]
        often = Counter(names)
        names = [new if often[old] > 1 else old for old, new in zip(names, longer, strict=True)]
    often = Counter(names)
    for k, some in enumerate(words):
        if not some:
            names[k] = f"{noun} cluster {k}"
        elif often[names[k]] > 1:
            names[k] = f"{', '.join(some[:FEWEST_PARTS])} ({k})"
    taken: set[str] = set()
    for k, name in enumerate(names):
        names[k] = name if name not in taken else f"{name} ({k})"
        taken.add(names[k])
    return names
