"""Relations: links and unseen cells, each by row and by column (MODEL 1)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.kernels import DomainView, Floats, Incidence, Indices
from coblock.kernels.gather import add_label_counts
from coblock.model import checks
from coblock.model.checks import Kind
from coblock.model.likelihoods import Likelihood
from coblock.model.likelihoods.bernoulli import Bernoulli
from coblock.model.sums import sum_expected_cells


@dataclass(frozen=True, slots=True)
class Domain:
    """Objects of one kind: users, tags, countries."""

    size: int
    names: tuple[str, ...] | None = None


class RelationData(Protocol):
    """What inference needs of a relation, wherever its cells are stored."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of objects of each domain."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def repeated(self) -> bool:
        """Whether one domain fills both places."""

    @property
    def symmetric(self) -> bool:
        """Whether the two places are interchangeable (undirected)."""

    @property
    def likelihood(self) -> Likelihood:
        """The distribution of the cells."""

    @property
    def density(self) -> float:
        """Links per observed cell."""

    @property
    def own_link(self) -> Floats:
        """Links of objects with themselves, directed relations only."""

    @property
    def own_seen(self) -> Floats:
        """Whether the cells of objects with themselves are seen, directed relations only."""

    @property
    def copies(self) -> tuple[float, ...]:
        """Objects that the last one of each domain stands for (MODEL 16)."""

    def count_cells(
        self, labels: list[Indices], clusters: tuple[int, int]
    ) -> tuple[Floats, Floats]:
        """Return the numbers of links and of unseen cells of each block of a hard partition."""

    def expected_cells(self, q: list[Floats], hard: list[Indices]) -> tuple[Floats, Floats]:
        """Return the sums over links and over unseen cells of q_ik q_jl."""

    def view(self, d: int, q: Floats, hard: Indices, m: Floats, alpha: float) -> DomainView:
        """Return domain ``d`` with its clusters for kernels."""


class TwoPlaces:
    """What follows from the kind and the shape of a relation, wherever its cells are stored."""

    __slots__ = ()
    kind: Kind
    shape: tuple[int, int]

    @property
    def repeated(self) -> bool:
        """Whether rows and columns are the same objects."""
        return self.kind != "bipartite"

    @property
    def symmetric(self) -> bool:
        """Whether the two places are interchangeable."""
        return self.kind == "undirected"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of objects of each domain."""
        return self.shape[:1] if self.repeated else self.shape

    @property
    def copies(self) -> tuple[float, ...]:
        """Objects that the last one of each domain stands for: itself."""
        return (1.0,) * len(self.sizes)


@dataclass(frozen=True, slots=True, repr=False)
class BinaryRelation(TwoPlaces):
    """A binary relation; every cell that is neither a link nor unseen is an observed 0.

    Use :meth:`build`. Sparse input never causes an array of size rows x columns.

    Attributes
    ----------
    kind : str
        ``"bipartite"``, ``"directed"`` or ``"undirected"``.
    shape : tuple of int
        Rows and columns.
    incidence : tuple of tuple of Incidence
        For each domain, the cells of its objects at each of its places: rows and columns
        (bipartite), sender and receiver of the one domain (directed), or both ends together
        (undirected).
    own_link, own_seen : ndarray
        Links of objects with themselves, and whether those cells are seen (directed only).
    row_names, column_names : tuple of str or None
        Names of the objects, if the input has some.
    """

    kind: Kind
    shape: tuple[int, int]
    incidence: tuple[tuple[Incidence, ...], ...]
    own_link: Floats
    own_seen: Floats
    row_names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None
    likelihood: ClassVar[Likelihood] = Bernoulli()

    @classmethod
    def build(
        cls,
        X: Any,
        *,
        unseen: Any = None,
        kind: Kind = "bipartite",
        binarize: float | None = 0.0,
        self_links: bool = False,
        row_names: Sequence[object] | None = None,
        column_names: Sequence[object] | None = None,
    ) -> "BinaryRelation":
        """Check the input and build a relation.

        Parameters
        ----------
        X : sparse matrix, array or data frame
            Values above ``binarize`` are links. NaN (in a frame: null) is an unseen cell.
        unseen : sparse matrix, optional
            Its stored cells are unseen, whatever value is stored there.
        kind : {"bipartite", "directed", "undirected"}
            Directed and undirected relations have one set of objects. In an undirected one a
            pair is a link, or unseen, if either of its two cells is.
        binarize : float or None
            None: the input must already be 0 or 1.
        self_links : bool
            Whether the diagonal of a directed relation is data. By default it is unseen.
        row_names, column_names : sequence, optional
            Default: the names of the data frame, if ``X`` is one.

        Examples
        --------
        >>> import numpy as np
        >>> from coblock import Relation
        >>> relation = Relation.build(np.array([[1.0, 0.0], [np.nan, 1.0]]))
        >>> relation.n_links, relation.n_unseen
        (2, 1)
        """
        checks.check_choice("relation", kind, checks.KINDS)
        if binarize is not None:
            checks.check_number("binarize", binarize, smallest=-np.inf)
        X, frame_rows, frame_columns = _unwrap_frame(X)
        cells = _stored_cells(X, "X")
        checks.check_shape(cells.shape, kind)
        links, unseen_cells = _split(cells, binarize)
        del cells  # the largest array
        if unseen is not None:
            unseen_cells = unite(unseen_cells, _unseen_pattern(unseen, links.shape))
        checks.check_disjoint(links, unseen_cells)
        row_names = frame_rows if row_names is None else row_names
        column_names = frame_columns if column_names is None else column_names
        return cls._from_patterns(kind, links, unseen_cells, self_links, row_names, column_names)

    @classmethod
    def from_patterns(
        cls,
        links: sparse.csr_array,
        unseen: sparse.csr_array,
        *,
        kind: Kind = "bipartite",
        row_names: tuple[str, ...] | None = None,
        column_names: tuple[str, ...] | None = None,
    ) -> "BinaryRelation":
        """Build a relation from valid patterns, without the copies of :meth:`build`.

        Parameters
        ----------
        links, unseen : csr_array
            Ones at the links and at the unseen cells: indices sorted, no duplicates, no cell in
            both. In an undirected relation either of the two cells of a pair may be given.
        kind : {"bipartite", "directed", "undirected"}
            The diagonal of directed and undirected relations is unseen.
        row_names, column_names : tuple of str, optional
            Names of the objects.
        """
        checks.check_shape(links.shape, kind)
        return cls._from_patterns(kind, links, unseen, False, row_names, column_names)

    @classmethod
    def _from_patterns(
        cls,
        kind: Kind,
        links: sparse.csr_array,
        unseen: sparse.csr_array,
        self_links: bool,
        row_names: Sequence[object] | None,
        column_names: Sequence[object] | None,
    ) -> "BinaryRelation":
        check, (rows, columns) = checks.check_object_names, links.shape
        names = (check(row_names, rows, "row"), check(column_names, columns, "column"))
        if kind == "bipartite":
            incidence = ((_incidence(links, unseen),), (_incidence(links.T, unseen.T),))
            return cls(kind, links.shape, incidence, np.zeros(0), np.zeros(0), *names)
        own_link, own_seen = links.diagonal().astype(np.float64), 1.0 - unseen.diagonal()
        if not (self_links and kind == "directed"):
            if own_link.any():
                advice = " Relation.build(..., self_links=True) counts them."
                warnings.warn(
                    f"{int(own_link.sum()):,} links of objects with themselves are left out: the "
                    f"diagonal of {kind} relations is unseen.{advice * (kind == 'directed')}",
                    UserWarning,
                    stacklevel=3,
                )
            own_link, own_seen = np.zeros_like(own_link), np.zeros_like(own_seen)
        links, unseen = _without_diagonal(links), _without_diagonal(unseen)
        if kind == "undirected":
            links, unseen = unite(links, links.T), unite(unseen, unseen.T)
            checks.check_disjoint(links, unseen)
        places: tuple[Incidence, ...] = (_incidence(links, unseen),)
        if kind == "directed":
            places += (_incidence(links.T, unseen.T),)
        return cls(kind, links.shape, (places,), own_link, own_seen, *names)

    def __repr__(self) -> str:
        size = f"{self.shape[0]:,} x {self.shape[1]:,}"
        unseen = f", {self.n_unseen:,} unseen" if self.n_unseen else ""
        return f"Relation({self.kind}, {size}, {self.n_links:,} links{unseen})"

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The sets of objects that are clustered."""
        if self.repeated:
            return (Domain(self.shape[0], self.row_names or self.column_names),)
        names = (self.row_names, self.column_names)
        return tuple(Domain(size, each) for size, each in zip(self.shape, names, strict=True))

    @property
    def n_links(self) -> int:
        """Number of links; an undirected pair counts once."""
        stored = self.incidence[0][0].link.size
        return stored // 2 if self.symmetric else stored + int(self.own_link.sum())

    @property
    def n_unseen(self) -> int:
        """Number of unseen cells, without the diagonal of one-domain relations."""
        stored = self.incidence[0][0].unseen.size
        return stored // 2 if self.symmetric else stored

    @property
    def n_cells(self) -> int:
        """Number of observed cells."""
        rows, columns = self.shape
        pairs = rows * (columns - 1) if self.repeated else rows * columns
        return pairs // (1 + self.symmetric) + int(self.own_seen.sum()) - self.n_unseen

    @property
    def density(self) -> float:
        """Links per observed cell; 0 if no cell is observed."""
        return self.n_links / self.n_cells if self.n_cells else 0.0

    def expected_cells(self, q: list[Floats], hard: list[Indices]) -> tuple[Floats, Floats]:
        """Return the sums over links and over unseen cells of q_ik q_jl."""
        return sum_expected_cells(self.incidence[0][0], q[0], q[-1], hard[-1])

    def count_cells(
        self, labels: list[Indices], clusters: tuple[int, int]
    ) -> tuple[Floats, Floats]:
        """Return the numbers of links and of unseen cells of each block of a hard partition."""
        cells, links, unseen = self.incidence[0][0], np.zeros(clusters), np.zeros(clusters)
        add_label_counts(cells, labels[0], labels[-1], links, unseen)
        return links, unseen

    def view(self, d: int, q: Floats, hard: Indices, m: Floats, alpha: float) -> DomainView:
        """Return domain ``d`` with its clusters for kernels."""
        own = (self.own_link, self.own_seen)
        return DomainView(self.incidence[d], self.repeated, *own, q, hard, m, alpha)


def column_shares(relation: BinaryRelation) -> Floats:
    """Return the links over the observed cells of each column, 0 if none is observed."""
    place, rows = relation.incidence[-1][-1], relation.shape[0] - relation.repeated
    observed = rows - np.diff(place.unseen_start)
    return np.asarray(np.diff(place.link_start) / np.maximum(observed, 1))


def _unwrap_frame(X: Any) -> tuple[Any, Sequence[object] | None, Sequence[object] | None]:
    """Return the values of an array or data frame, and the names of its rows and columns."""
    if isinstance(X, np.ma.MaskedArray):  # masked cells are unseen
        return np.ma.filled(X.astype(np.float64), np.nan), None, None
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        return X, None, None
    if hasattr(X, "sparse"):  # a frame of pandas with sparse columns only
        return X.sparse.to_coo(), list(X.index), list(X.columns)
    frame = checks.open_frame(X, eager_only=True)
    if not isinstance(frame, nw.DataFrame):
        return np.asarray(X), None, None
    wrong = checks.text_columns(frame)
    if wrong:
        msg = (
            f"{len(wrong):,} of {len(frame.columns):,} columns of the data frame are not numbers; "
            f"the first is {wrong[0]!r}. A frame is read as a matrix: one row per object, one "
            "column per object of the other kind, links as numbers. coblock.read reads a frame of "
            "edges, or with row names in a column."
        )
        raise TypeError(msg)
    if nw.Object in frame.schema.values():  # numbers as Python objects
        columns = [np.array(frame.get_column(name).to_list(), np.float64) for name in frame.columns]
        values = np.stack(columns, axis=1)
    else:
        values = frame.select(nw.all().cast(nw.Float64)).to_numpy()
    index = nw.maybe_get_index(frame)
    return values, None if index is None else list(index), frame.columns


def _stored_cells(X: Any, name: str) -> sparse.csr_array:
    """Return the input as a sparse matrix with summed duplicates and sorted indices.

    A matrix that already has this form is not copied, and must not be written to.
    """
    is_sparse = bool(sparse.issparse(X))
    X = X if is_sparse else checks.convert_objects(np.asarray(X))
    if X.dtype.kind not in "buif":
        msg = f"{name} must hold real numbers, but is of type {X.dtype}."
        raise TypeError(msg)
    checks.check_shape(X.shape, "bipartite")
    if is_sparse:
        checks.check_indices(X, name)
        if X.format == "csr":
            cells = sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
            if cells.has_canonical_format:
                return cells
        X = X.astype(np.float64)  # copied before duplicates are summed: small integers overflow
    cells = sparse.csr_array(X, dtype=np.float64)
    cells.sum_duplicates()
    return cells


def _split(cells: sparse.csr_array, binarize: float | None) -> tuple[Any, Any]:
    """Return the patterns of links and of unseen (NaN) cells."""
    checks.check_values(cells, binary=binarize is None)
    if binarize is not None and binarize < 0:
        msg = (
            f"binarize={binarize:g} would turn all cells that are 0, stored or not, into links. "
            "Choose a threshold of at least 0."
        )
        raise ValueError(msg)
    threshold = np.float64(binarize or 0.0)  # float32 data are compared in double precision
    with np.errstate(invalid="ignore"):
        links = select_cells(cells, cells.data > threshold)
    if binarize == 0.0:
        _warn_of_threshold(cells, links.nnz)
    return links, select_cells(cells, np.isnan(cells.data))


def _warn_of_threshold(cells: sparse.csr_array, links: int) -> None:
    """Warn if values other than 0 and 1 are cut at 0."""
    values = cells.data
    if not (other := (values != 0) & (values != 1) & ~np.isnan(values)).any():
        return
    low, high = values[other].min(), values[other].max()
    share = links / (cells.shape[0] * cells.shape[1] - int(np.isnan(values).sum()))
    edges = " If each line is an edge, pass coblock.read(X)." if share == 1.0 else ""
    warnings.warn(
        f"{other.sum():,} of {values.size:,} stored values are neither 0 nor 1; they are from "
        f"{low:g} to {high:g}. Those above 0 count as links, {100 * share:.3g} % of the observed "
        f"cells. binarize=t counts only those above t; X > 0 says that all are meant.{edges}",
        UserWarning,
        stacklevel=4,
    )


def _unseen_pattern(unseen: Any, shape: tuple[int, int]) -> sparse.csr_array:
    """Return the pattern of all stored cells of ``unseen``."""
    if not bool(sparse.issparse(unseen)):
        msg = (
            f"unseen must be a SciPy sparse matrix whose stored cells are unseen, but is "
            f"{type(unseen).__name__}. For a boolean array pass scipy.sparse.csr_array(array)."
        )
        raise TypeError(msg)
    checks.check_same_shape(unseen.shape, shape)
    checks.check_indices(unseen, "unseen")
    coo = unseen.tocoo()
    cells = sparse.csr_array((np.ones(coo.nnz), coo.coords), shape=shape)
    return select_cells(cells, np.ones(cells.nnz, dtype=bool))


def select_cells(cells: sparse.csr_array, chosen: NDArray[np.bool_]) -> sparse.csr_array:
    """Return a matrix of ones at the chosen stored cells; it shares no memory with ``cells``."""
    kind = np.int32 if chosen.size <= np.iinfo(np.int32).max else np.int64
    if not chosen.any():
        index, start = np.empty(0, kind), np.zeros(cells.indptr.size, kind)
    elif chosen.all():
        index, start = cells.indices.astype(kind), cells.indptr.astype(kind)
    else:
        before = np.zeros(chosen.size + 1, dtype=kind)
        np.cumsum(chosen, out=before[1:])
        index, start = cells.indices[chosen].astype(kind, copy=False), before[cells.indptr]
    return sparse.csr_array((np.ones(index.size, dtype=np.int8), index, start), shape=cells.shape)


def unite(left: Any, right: Any) -> sparse.csr_array:
    """Return ones at the cells of either pattern."""
    both = sparse.csr_array(left + right)
    both.data[:] = 1
    return both


def _without_diagonal(pattern: sparse.csr_array) -> sparse.csr_array:
    """Return the pattern without the cells of objects with themselves."""
    rows = np.repeat(np.arange(pattern.shape[0], dtype=np.int32), np.diff(pattern.indptr))
    return select_cells(pattern, rows != pattern.indices)


def _incidence(links: Any, unseen: Any) -> Incidence:
    """Return the two patterns compressed by row, for the kernels."""
    parts: list[Any] = []
    for pattern in (links, unseen):
        cells = sparse.csr_array(pattern)
        cells.sort_indices()
        parts += [cells.indptr.astype(np.int64), cells.indices.astype(np.int32, copy=False)]
    return Incidence(*parts)
