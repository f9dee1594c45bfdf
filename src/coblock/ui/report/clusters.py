"""What the page says about each cluster."""

from dataclasses import dataclass

import numpy as np

from coblock.kernels import Floats, Indices
from coblock.model.result import Result
from coblock.ui.report.words import shown_name

MOST_CARDS = 100  # per domain
TYPICAL = 6
PARTNERS = 3


@dataclass(frozen=True, slots=True)
class Partner:
    """A cluster on the other side and how likely it is linked."""

    cluster: int
    probability: float
    width: float  # of its bar, in per cent of the largest probability of all blocks


@dataclass(frozen=True, slots=True)
class Ties:
    """The strongest and the weakest partners of a cluster in one direction."""

    verb: str
    strongest: list[Partner]
    weakest: list[Partner]


@dataclass(frozen=True, slots=True)
class Card:
    """One cluster."""

    number: int
    size: int
    share: float  # of all objects of its domain
    certainty: float  # mean membership in the own cluster
    typical: list[str]  # the surest members
    others: int  # members that are not named
    ties: list[Ties]


@dataclass(frozen=True, slots=True)
class Side:
    """The clusters of one domain."""

    what: str  # row, column or object
    partner: str  # what stands on the other side
    objects: int
    clusters: int
    cards: list[Card]
    unnamed: bool

    @property
    def left_out(self) -> int:
        """How many clusters have no card."""
        return self.clusters - len(self.cards)

    @property
    def objects_left_out(self) -> int:
        """How many objects are in clusters without a card."""
        return self.objects - sum(card.size for card in self.cards)


def sides(result: Result) -> list[Side]:
    """Return the cards of every domain, the largest clusters first."""
    if result.relation.one_domain:
        return [_side(result, 0, "object", "object")]
    return [_side(result, 0, "row", "column"), _side(result, 1, "column", "row")]


def names_of(result: Result, d: int) -> tuple[str, ...] | None:
    """Return the names of a domain; those of one domain may stand at rows or at columns."""
    relation = result.relation
    if relation.one_domain:
        return relation.row_names or relation.column_names
    return relation.column_names if d else relation.row_names


def certainty(q: Floats, label: Indices) -> Floats:
    """Return the membership of each object in its own cluster."""
    return q[np.arange(label.size), label]


def _side(result: Result, d: int, what: str, partner: str) -> Side:
    q, label, names = result.memberships[d], result.labels[d], names_of(result, d)
    sure = certainty(q, label)
    order = np.lexsort((-sure, label))  # by cluster, the surest first
    ends = np.cumsum(np.bincount(label, minlength=q.shape[1]))
    cards = []
    for k, end in enumerate(ends[:MOST_CARDS]):
        members = order[(ends[k - 1] if k else 0) : end]
        typical = [shown_name(names, int(i)) for i in members[:TYPICAL]]
        cards.append(
            Card(
                k,
                members.size,
                members.size / label.size,
                float(sure[members].mean()),
                typical,
                members.size - len(typical),
                _ties(result, d, k),
            )
        )
    return Side(what, partner, label.size, q.shape[1], cards, names is None)


def _ties(result: Result, d: int, k: int) -> list[Ties]:
    """Return the partners of a cluster; in a directed relation those of both directions."""
    probability = result.block_probability
    largest = float(probability.max())
    if result.relation.kind == "directed":
        return [
            _partners("links to", probability[k], largest),
            _partners("linked from", probability[:, k], largest),
        ]
    return [_partners("links to", probability[:, k] if d else probability[k], largest)]


def _partners(verb: str, probability: Floats, largest: float) -> Ties:
    order = np.argsort(-probability, kind="stable")
    partners = [
        Partner(int(l), float(probability[l]), round(100.0 * float(probability[l]) / largest, 1))
        for l in order
    ]
    weakest = partners[max(PARTNERS, len(partners) - PARTNERS) :]
    return Ties(verb, partners[:PARTNERS], weakest[::-1])
