"""Write what a model has found as Markdown, for people and for language models."""

import re

from coblock.analysis.description import Description, typical_members
from coblock.analysis.explain import Profile, describe_certainty, describe_structure, shown_name
from coblock.io import printable, quantity
from coblock.io.export import object_names
from coblock.ui.style import MAX_NAME, percent, truncate

SPECIAL = re.compile(r"([\\`*_\[\]<>|~&])")
MEMBERS = 10  # named of each cluster
LEVELS = 12  # lines of the table of cuts


def render_markdown(found: Description, *, title: str) -> str:
    """Return a report as Markdown: the relation, every cluster, and the tree of blocks."""
    result = found.result
    relation, (K1, K2) = result.relation, result.n_clusters
    clusters = f"{K1} clusters" if relation.repeated else f"{K1} x {K2} clusters"
    state = "Converged" if result.converged else "Stopped before convergence"
    lines = [
        f"# {escape(title)}",
        "",
        f"- {relation.kind} relation, {relation.shape[0]:,} x {relation.shape[1]:,}: "
        f"{relation.n_links:,} links, {relation.n_unseen:,} unseen cells, density "
        f"{percent(relation.density)}",
        f"- {clusters}, log evidence {result.log_evidence:,.1f} (log probability of links and "
        "clusters together; of two fits to the same data, the larger is better)",
        f"- {state} after {quantity(len(result.trace), 'sweep')} (a sweep is one pass over all "
        "objects)",
        "",
        "Percentages are probabilities of a link. *Lift* (`40 x average`) is this probability over "
        f"the average of all objects. {describe_certainty(result)}",
        "",
    ]
    single = describe_structure(result)
    lines += [single, ""] if single else []
    if found.composition is not None:
        made = found.composition
        lines += [
            f"Known classes of {quantity(made.objects, found.domains.nouns[made.domain])}: purity "
            f"{made.purity:.2f}, adjusted Rand index {made.rand_index:.2f}.",
            "",
        ]
    for d, profiles in enumerate(found.domains.profiles):
        noun = found.domains.nouns[d]
        lines += [f"## {noun.capitalize()} clusters", ""]
        for profile in profiles:
            lines += _cluster(found, d, profile)
    return "\n".join([*lines, *_tree(found)]) + "\n"


def _cluster(found: Description, d: int, profile: Profile) -> list[str]:
    result, noun, k = found.result, found.domains.nouns[d], profile.number
    names = object_names(result.relation, d)
    members = typical_members(result.memberships[d], result.labels[d], k, names, MEMBERS)
    lines = [
        f"### {noun} cluster {k}: {escape(found.names[d][k])}",
        "",
        f"- {quantity(profile.size, noun)}, certainty {percent(profile.certainty)}",
        f"- members: {', '.join(map(escape, members))}",
    ]
    made = found.composition
    if made is not None and made.domain == d:
        lines.append(f"- classes: {escape(made.line(k))}")
    for way in profile.directions:
        sets = {
            f"{way.verb} clusters": found.features(d, way.clusters[:5], clusters=True),
            way.verb: found.features(d, way.objects),
            f"{way.verb}, exclusively": found.features(d, way.exclusive[:5]),
            f"{way.verb}, like others": found.features(d, way.shared[:5]),
        }
        lines += [
            f"- {what}: {'; '.join(map(escape, some))}" for what, some in sets.items() if some
        ]
    if profile.nearest:
        near = (f"{noun} cluster {g} ({cosine:.2f})" for g, cosine in profile.nearest)
        lines.append(f"- similar clusters (cosine): {', '.join(near)}")
    if profile.unsure:
        unsure = (
            f"{escape(shown_name(result, d, each.index))} ({percent(each.certainty)}, else cluster "
            f"{each.other})"
            for each in profile.unsure
        )
        lines.append(f"- unsure members: {', '.join(unsure)}")
    return [*lines, ""]


def _tree(found: Description) -> list[str]:
    """Return the evidence of a few cuts of the tree as a table."""
    cuts = found.cuts
    step = -(-len(cuts) // LEVELS)
    lines = [
        "## Tree of blocks",
        "",
        "Clusters are merged pair by pair at the least loss of evidence, down to one.",
        "",
        "| clusters | log evidence |",
        "|---|---|",
    ]
    for cut in [*cuts[::step], *([cuts[-1]] if (len(cuts) - 1) % step else [])]:
        lines.append(f"| {' x '.join(map(str, cut.clusters))} | {cut.log_evidence:,.1f} |")
    return lines


def escape(text: str) -> str:
    r"""Return text on one line in which nothing is markup.

    Examples
    --------
    >>> escape("a*b | <c>")
    'a\\*b \\| \\<c\\>'
    """
    return SPECIAL.sub(r"\\\1", truncate(printable(text), 4 * MAX_NAME))
