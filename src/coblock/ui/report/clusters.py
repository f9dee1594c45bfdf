"""Prepare the cards of the page, one for each cluster."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from coblock.io.export import object_names
from coblock.kernels import Floats
from coblock.model.result import Result
from coblock.ui.names import display_name

MAX_CARDS = 100  # per domain
TYPICAL_MEMBERS = 6  # named on a card
PARTNERS = 3  # strongest, and weakest, partners on a card


@dataclass(frozen=True, slots=True)
class ClusterCard:
    """The numbers, the typical members and the partners of one cluster."""

    number: int
    size: int
    share: float  # of all objects of its domain
    certainty: float  # mean membership in the own cluster
    typical: list[str]
    others: int  # members that are not named
    partners: list[dict[str, Any]]  # for each direction verb, strongest and weakest clusters


@dataclass(frozen=True, slots=True)
class DomainCards:
    """The cards of one domain, the largest clusters first."""

    noun: str  # row, column or object
    partner: str  # noun of the other place
    objects: int
    clusters: int
    cards: list[ClusterCard]
    unnamed: bool


def domain_cards(result: Result) -> list[DomainCards]:
    """Return the cards of every domain."""
    if result.relation.repeated:
        return [_cards(result, 0, "object", "object")]
    return [_cards(result, 0, "row", "column"), _cards(result, 1, "column", "row")]


def own_membership(result: Result, d: int) -> Floats:
    """Return the membership of each object of a domain in its own cluster."""
    label = result.labels[d]
    return result.memberships[d][np.arange(label.size), label]


def _cards(result: Result, d: int, noun: str, partner: str) -> DomainCards:
    label, names = result.labels[d], object_names(result.relation, d)
    certainty, K = own_membership(result, d), result.memberships[d].shape[1]
    ends = np.cumsum(np.bincount(label, minlength=K))
    by_cluster = np.split(np.lexsort((-certainty, label)), ends[:-1])
    cards = [
        ClusterCard(
            k,
            members.size,
            members.size / label.size,
            float(certainty[members].mean()),
            [display_name(names, int(i)) for i in members[:TYPICAL_MEMBERS]],
            max(members.size - TYPICAL_MEMBERS, 0),
            _partners(result, d, k),
        )
        for k, members in enumerate(by_cluster[:MAX_CARDS])
    ]
    return DomainCards(noun, partner, label.size, K, cards, names is None)


def _partners(result: Result, d: int, k: int) -> list[dict[str, Any]]:
    """Return the partners of a cluster; those of both directions in a directed relation."""
    probability = result.block_probability
    directions = {"links to": probability[:, k] if d else probability[k]}
    if result.relation.kind == "directed":
        directions["linked from"] = probability[:, k]
    found = []
    for verb, links in directions.items():
        width = np.round(100.0 * links / probability.max(), 1)  # of the bar, in per cent
        ranked = [
            {"cluster": int(l), "probability": float(links[l]), "width": float(width[l])}
            for l in np.argsort(-links, kind="stable")
        ]
        weakest = ranked[max(PARTNERS, len(ranked) - PARTNERS) :][::-1]
        found.append({"verb": verb, "strongest": ranked[:PARTNERS], "weakest": weakest})
    return found
