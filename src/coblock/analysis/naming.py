"""Short names for clusters, made from their most characteristic partners or members."""

from collections import Counter
from collections.abc import Sequence

from coblock.analysis.explain import Domains, Profile
from coblock.io import printable
from coblock.io.export import object_names
from coblock.model.result import Result

MAX_PART = 28  # characters of each part of a name
FEWEST_PARTS, MOST_PARTS = 2, 4


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
