"""Relations of the general model: tables as people have them, and the data set they give."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from coblock.io import refuse, shorten
from coblock.io.cells import Cells
from coblock.io.listing import check_places, title_of
from coblock.io.objects import (
    align_exposures,
    check_cells,
    find_domain,
    index_cells,
    warn_of_cells,
)
from coblock.kernels import Floats
from coblock.model.dataset import Dataset, Table
from coblock.model.likelihoods import Likelihood
from coblock.model.likelihoods.degrees import PREFIX, DegreeCorrected
from coblock.model.relation import BinaryRelation

CORRECTED = tuple(PREFIX + name for name in ("bernoulli", "poisson"))


class Relation:
    """A table about objects: places filled by domains, values, one likelihood.

    The data are read and checked when a model is fitted to them, once: the messages of a fit have
    the name of the relation.

    Parameters
    ----------
    data : data frame, array, sparse matrix, networkx graph, tuples (or an rdflib graph), or path
        A long frame has a column for each place. An n-way array has an axis for each place; NaN
        is unseen. Edges of a graph, and tuples, list the objects of one cell each. Nodes of an
        undirected graph over two domains have the attribute ``bipartite``, 0 or 1.
    places : dict, or sequence of str
        The domain that fills each place. The keys are the columns of a frame. A sequence names
        domains that are also the names of the places.
    value : str, optional
        The column, edge attribute, or position in a tuple, that holds the values. Without it a
        cell that is listed is 1; for counts, the number of times that it is listed, in either
        order if the places are interchangeable.
    likelihood : {"bernoulli", "poisson", "categorical", "normal"} or Likelihood
        The distribution of the values.
    unseen : frame, path, list of tuples, tuple of arrays, or array, optional
        Cells that are unseen, where cells that are not listed are zeros: rows of a frame or file,
        tuples, an array for each place, or an n-way array that is not 0 at them. An object that
        only unseen cells name is an object of its domain like others; a warning names the first.
    absent : {"zero", "unseen"}, optional
        What cells that are not listed are. Default: "unseen" with a value, except for counts.
        The zero of categories is the first one by name.
    symmetric : bool
        Whether the two places of one domain are interchangeable.
    diagonal : {"seen", "unseen"}, optional
        Whether cells with an object twice are data. Default: unseen if there are two places,
        with a warning if some are listed.
    exposure : dict or sequence of arrays, optional
        Counts only: a factor for each object at each place; a cell has the product. The factors
        of a place are an array by position, or a dict by name.
    degree_corrected : bool or "auto"
        Whether members of a cluster may differ in degree: links or counts between two places.
        "auto" takes what has more evidence. It is for counts, and for a binary relation that is
        fitted alone.

    Examples
    --------
    >>> orders = [("ann", "tea", 2), ("bob", "tea", 1), ("ann", "milk", 5)]
    >>> relation = Relation(orders, ["user", "item"], value=2, likelihood="poisson")
    >>> relation.read("bought")
    3 cells, poisson, others are zeros
    """

    build = staticmethod(BinaryRelation.build)
    from_patterns = staticmethod(BinaryRelation.from_patterns)

    def __init__(
        self,
        data: Any,
        places: Mapping[str, str] | Sequence[str],
        *,
        value: str | int | None = None,
        likelihood: str | Likelihood = "bernoulli",
        unseen: Any = None,
        absent: Literal["zero", "unseen"] | None = None,
        symmetric: bool | None = None,
        diagonal: Literal["seen", "unseen"] | None = None,
        exposure: Mapping[str, Floats] | Sequence[Floats] | None = None,
        degree_corrected: bool | Literal["auto"] = False,
    ) -> None:
        self.places = check_places(places)
        self._given = {
            "data": list(data) if isinstance(data, Iterator) else data,
            "value": value,
            "likelihood": likelihood,
            "unseen": list(unseen) if isinstance(unseen, Iterator) else unseen,
            "absent": absent,
            "symmetric": symmetric,
            "diagonal": diagonal,
            "exposure": exposure,
            "degree_corrected": degree_corrected,
        }
        self._cells: Cells | None = None

    def read(self, name: str) -> Cells:
        """Read and check the data, once; an error names the relation, and the file if there is one.

        The name is known where relations are put together, not where a relation is made.
        """
        if self._cells is None:
            self._cells = self._read(name, self._given)
        return self._cells

    def read_like(self, name: str, likelihood: Likelihood) -> Cells:
        """Read the data with a likelihood that was fitted: other categories are refused."""
        return self._read(name, {**self._given, "likelihood": likelihood})

    def _read(self, name: str, given: dict[str, Any]) -> Cells:
        data = given["data"]
        file = f", file {data}" if isinstance(data, str | Path) else ""
        try:
            return Cells(places=self.places, **given)
        except (TypeError, ValueError, OSError) as error:
            kinds = (TypeError, FileNotFoundError, OSError, ValueError)
            kind = next(each for each in kinds if isinstance(error, each))
            msg = shorten(f"Relation '{name}'{file}: {error}")
            raise kind(msg) from error

    def __repr__(self) -> str:
        title = title_of(self.places)
        return f"{title}, not read yet" if self._cells is None else f"{title}: {self._cells}"


def build_dataset(relations: Mapping[str, Relation]) -> Dataset:
    """Return the data set of several relations: objects of each domain, cells by position."""
    if not relations:
        refuse("There is no relation. Pass a dict of at least one.")
    read = {name: relation.read(name) for name, relation in relations.items()}
    domains = list(dict.fromkeys(d for each in read.values() for d in each.places.values()))
    found = {}
    for domain in domains:
        found[domain] = find_domain(domain, read)
    tables = []
    for name, relation in read.items():
        places = relation.places.items()
        index = [found[domain][1] for _, domain in places]
        cells = index_cells(relation.objects, index)
        unseen = index_cells(relation.unseen, index)
        if relation.symmetric:
            for each in (cells, unseen):
                each[:, :2].sort(axis=1)
        numbers = tuple(domains.index(domain) for _, domain in places)
        table = Table(
            name=name,
            places=tuple(relation.places),
            domains=numbers,
            likelihood=_table_likelihood(relation),
            cells=cells,
            values=relation.values,
            unseen=unseen,
            filled=relation.filled,
            symmetric=relation.symmetric,
            distinct=relation.diagonal == "unseen" and len(set(numbers)) < len(numbers),
            exposures=align_exposures(name, relation, [found[d][0] for _, d in places]),
        )
        filled_by = [found[d][0] for _, d in places]
        tables.append(check_cells(table, filled_by, warn=not relation.diagonal_chosen))
    data = Dataset(tuple(domains), tuple(found[d][0] for d in domains), tuple(tables))
    for d, domain in enumerate(domains):
        filled = [table for table in tables if d in table.domains]
        if not any(table.n_observed(data.sizes) for table in filled):
            names = ", ".join(f"'{table.name}'" for table in filled)
            refuse(
                f"Domain '{domain}' has {data.sizes[d]:,} objects, but no observed cell in the "
                f"relations {names}: all are unseen. Add values, or leave the relations out."
            )
    for table in tables:
        warn_of_cells(table, read[table.name].repeated, data.sizes)
    return data


def _table_likelihood(relation: Cells) -> Likelihood:
    """Return the likelihood of the cells; a choice about counts is that of the shape, learnt."""
    asked = relation.degree_corrected
    if not asked or (asked == "auto" and relation.likelihood.name == "bernoulli"):
        return relation.likelihood
    return degree_corrected(relation.likelihood, symmetric=relation.symmetric)


def degree_corrected(likelihood: Likelihood, *, symmetric: bool) -> DegreeCorrected:
    """Return the degree-corrected likelihood of such values; symmetric places share a shape."""
    return DegreeCorrected(likelihood, 1 if symmetric else 2)


def check_degree_choice(
    data: Dataset, relations: Mapping[str, Relation] | Dataset
) -> bool | Literal["auto"]:
    """Return the degree correction of a relation that IRM fits; refuse other choices."""
    if isinstance(relations, Dataset):
        return data.corrected
    if is_binary(data):
        return relations[data.tables[0].name].read(data.tables[0].name).degree_corrected
    for name, described in relations.items():
        relation = described.read(name)
        if relation.degree_corrected == "auto" and relation.likelihood.name == "bernoulli":
            refuse(
                f"Relation '{name}': the automatic choice of degree correction is for counts, and "
                "for a binary relation that is fitted alone. Fit with the correction and without "
                "it, and keep the fit with the larger log evidence."
            )
    return False


def is_binary(data: Dataset) -> bool:
    """Return whether the data are one binary relation of two places, which IRM fits."""
    if len(data.tables) != 1:
        return False
    table = data.tables[0]
    seen_pairs = table.symmetric and not table.distinct  # IRM leaves their diagonal out
    return table.arity == 2 and table.filled and table.values_name == "bernoulli" and not seen_pairs
