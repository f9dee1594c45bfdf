"""The data: which cells are links, which are unseen, each by row and by column (MODEL 1)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.kernels import BIPARTITE, DIRECTED, UNDIRECTED, Floats, Indices, Place
from coblock.kernels.blocks import label_sums, outer_sums
from coblock.model import checks

CODES = {"bipartite": BIPARTITE, "directed": DIRECTED, "undirected": UNDIRECTED}


@dataclass(frozen=True, slots=True)
class Relation:
    """A binary relation; every cell that is neither a link nor unseen is an observed 0.

    Use :meth:`build`. Nothing of the size rows x columns is ever made from sparse input.

    Attributes
    ----------
    kind : str
        ``"bipartite"``, ``"directed"`` or ``"undirected"``.
    shape : tuple of int
        Rows and columns.
    places : tuple of tuple of Place
        For each domain the places its objects stand at: rows and columns (bipartite), sender
        and receiver of the one domain (directed), or both ends as one (undirected).
    self_link, self_seen : ndarray
        Links of objects with themselves and whether those cells are seen (directed only).
    row_names, column_names : tuple of str or None
        Names of the objects, where the input had some.
    """

    kind: str
    shape: tuple[int, int]
    places: tuple[tuple[Place, ...], ...]
    self_link: Floats
    self_seen: Floats
    row_names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None

    @classmethod
    def build(
        cls,
        X: Any,
        *,
        unseen: Any = None,
        kind: str = "bipartite",
        binarize: float | None = 0.0,
        self_links: bool = False,
        row_names: Sequence[object] | None = None,
        column_names: Sequence[object] | None = None,
    ) -> "Relation":
        """Read and check a relation.

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
            None means that the input must already be 0 or 1.
        self_links : bool
            Whether the diagonal of a directed relation is data. By default it is unseen.
        row_names, column_names : sequence, optional
            Default: those of the data frame, where ``X`` is one.

        Examples
        --------
        >>> import numpy as np
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
        links, hidden = _split(cells, binarize)
        del cells  # the largest array of all
        if unseen is not None:
            hidden = _join(hidden, _unseen_cells(unseen, links.shape))
        checks.check_disjoint(links, hidden)
        names = (
            checks.check_names(frame_rows if row_names is None else row_names, X.shape[0], "row"),
            checks.check_names(
                frame_columns if column_names is None else column_names, X.shape[1], "column"
            ),
        )
        if kind == "bipartite":
            return cls._two_domains(links, hidden, names)
        return cls._one_domain(kind, links, hidden, self_links, names)

    @classmethod
    def from_patterns(
        cls,
        links: sparse.csr_array,
        unseen: sparse.csr_array,
        *,
        kind: str = "bipartite",
        row_names: tuple[str, ...] | None = None,
        column_names: tuple[str, ...] | None = None,
    ) -> "Relation":
        """Take patterns that are known to be in order, without the copies of :meth:`build`.

        Parameters
        ----------
        links, unseen : csr_array
            Ones at the links and at the unseen cells: indices sorted, nothing twice, no cell in
            both. In an undirected relation either of the two cells of a pair may be given.
        kind : {"bipartite", "directed", "undirected"}
            The diagonal of directed and undirected relations is unseen.
        row_names, column_names : tuple of str, optional
            Names of the objects.
        """
        checks.check_shape(links.shape, kind)
        names = (
            checks.check_names(row_names, links.shape[0], "row"),
            checks.check_names(column_names, links.shape[1], "column"),
        )
        if kind == "bipartite":
            return cls._two_domains(links, unseen, names)
        return cls._one_domain(kind, links, unseen, False, names)

    @classmethod
    def _two_domains(
        cls, links: sparse.csr_array, unseen: sparse.csr_array, names: Any
    ) -> "Relation":
        nothing = np.zeros(0)
        places = ((_place(links, unseen),), (_place(links.T, unseen.T),))
        return cls("bipartite", links.shape, places, nothing, nothing, *names)

    @classmethod
    def _one_domain(
        cls,
        kind: str,
        links: sparse.csr_array,
        unseen: sparse.csr_array,
        self_links: bool,
        names: Any,
    ) -> "Relation":
        self_link = links.diagonal().astype(np.float64)
        self_seen = 1.0 - unseen.diagonal()
        if not (self_links and kind == "directed"):
            _warn_of_self_links(int(self_link.sum()), kind)
            self_link, self_seen = np.zeros_like(self_link), np.zeros_like(self_seen)
        links, unseen = _without_diagonal(links), _without_diagonal(unseen)
        if kind == "directed":
            places: tuple[Place, ...] = (_place(links, unseen), _place(links.T, unseen.T))
        else:
            links, unseen = _join(links, links.T), _join(unseen, unseen.T)
            checks.check_disjoint(links, unseen)
            places = (_place(links, unseen),)
        return cls(kind, links.shape, (places,), self_link, self_seen, *names)

    @property
    def code(self) -> int:
        """The kernels' number of the kind."""
        return CODES[self.kind]

    @property
    def one_domain(self) -> bool:
        """Whether rows and columns are the same objects."""
        return self.kind != "bipartite"

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many objects each domain has."""
        return self.shape[:1] if self.one_domain else self.shape

    @property
    def n_links(self) -> int:
        """How many links there are; an undirected pair counts once."""
        stored = self.places[0][0].link.size
        return stored // 2 if self.kind == "undirected" else stored + int(self.self_link.sum())

    @property
    def n_unseen(self) -> int:
        """How many cells are unseen, the diagonal of one-domain relations left aside."""
        stored = self.places[0][0].unseen.size
        return stored // 2 if self.kind == "undirected" else stored

    @property
    def n_cells(self) -> int:
        """How many cells are observed."""
        rows, columns = self.shape
        if self.kind == "undirected":
            return rows * (rows - 1) // 2 - self.n_unseen
        if self.kind == "directed":
            return rows * (rows - 1) + int(self.self_seen.sum()) - self.n_unseen
        return rows * columns - self.n_unseen

    @property
    def density(self) -> float:
        """Links per observed cell, 0 where no cell is observed."""
        return self.n_links / self.n_cells if self.n_cells else 0.0

    def products(self, q: list[Floats], sure: list[Indices]) -> tuple[Floats, Floats]:
        """Return the sums over links, and over unseen cells, of q_ik q_jl."""
        place, ends = self.places[0][0], (q[0], q[-1], sure[-1])
        links = outer_sums(place.link_start, place.link, *ends)
        return links, outer_sums(place.unseen_start, place.unseen, *ends)

    def cells(self, labels: list[Indices], clusters: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return how many links, and unseen cells, each block of a hard partition has."""
        place, links, unseen = self.places[0][0], np.zeros(clusters), np.zeros(clusters)
        label_sums(place.link_start, place.link, labels[0], labels[-1], links)
        label_sums(place.unseen_start, place.unseen, labels[0], labels[-1], unseen)
        return links, unseen


def _unwrap_frame(X: Any) -> tuple[Any, Sequence[object] | None, Sequence[object] | None]:
    """Return the values of a data frame with the names of its rows and columns."""
    if isinstance(X, np.ma.MaskedArray):  # what is masked is not known
        return np.ma.filled(X.astype(np.float64), np.nan), None, None
    if isinstance(X, np.ndarray) or _is_sparse(X):
        return X, None, None
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return np.asarray(X), None, None
    wrong = [
        name for name, kind in frame.schema.items() if not (kind.is_numeric() or kind == nw.Boolean)
    ]
    if wrong:
        msg = (
            f"{len(wrong):,} of {len(frame.columns):,} columns of the data frame are not numbers; "
            f"the first is {wrong[0]!r}. A frame is read as a matrix: one row per object, one "
            "column per object of the other kind, links as numbers."
        )
        raise TypeError(msg)
    values = frame.select(nw.all().cast(nw.Float64)).to_numpy()
    index = nw.maybe_get_index(frame)
    return values, None if index is None else list(index), frame.columns


def _is_sparse(X: Any) -> bool:
    return bool(sparse.issparse(X))


def _stored_cells(X: Any, name: str) -> sparse.csr_array:
    """Return the input as a sparse matrix with duplicates added and indices sorted.

    One that is in order already is not copied, and must not be written to.
    """
    if not _is_sparse(X):
        X = np.asarray(X)
    if X.dtype.kind not in "buif":
        msg = f"{name} must hold real numbers, but is of type {X.dtype}."
        raise TypeError(msg)
    checks.check_shape(X.shape, "bipartite")
    if _is_sparse(X):
        checks.check_indices(X, name)
        if X.format == "csr":
            cells = sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
            if cells.has_canonical_format:
                return cells
        X = X.astype(np.float64)  # a copy, before duplicates are added up: small integers overflow
    cells = sparse.csr_array(X, dtype=np.float64)
    cells.sum_duplicates()
    return cells


def _split(cells: sparse.csr_array, binarize: float | None) -> tuple[Any, Any]:
    """Return the patterns of links and of unseen (NaN) cells."""
    checks.check_finite(cells)
    if binarize is None:
        checks.check_binary(cells)
    if binarize is not None and binarize < 0:
        msg = (
            f"binarize={binarize:g} would make links of all cells that are 0, stored or not. "
            "Choose a threshold of at least 0."
        )
        raise ValueError(msg)
    threshold = np.float64(0.0 if binarize is None else binarize)  # all digits in comparisons
    with np.errstate(invalid="ignore"):
        links = _pattern(cells, cells.data > threshold)
    return links, _pattern(cells, np.isnan(cells.data))


def _unseen_cells(unseen: Any, shape: tuple[int, int]) -> sparse.csr_array:
    """Return the pattern of all stored cells of ``unseen``."""
    if not _is_sparse(unseen):
        msg = (
            f"unseen must be a SciPy sparse matrix whose stored cells are unseen, but is "
            f"{type(unseen).__name__}. For a boolean array pass scipy.sparse.csr_array(array)."
        )
        raise TypeError(msg)
    checks.check_same_shape(unseen.shape, shape)
    checks.check_indices(unseen, "unseen")
    coo = unseen.tocoo()
    ones = np.ones(coo.nnz)
    cells = sparse.csr_array((ones, (coo.coords[0], coo.coords[1])), shape=shape)
    return _pattern(cells, np.ones(cells.nnz, dtype=bool))


def _pattern(cells: sparse.csr_array, chosen: NDArray[np.bool_]) -> sparse.csr_array:
    """Return a matrix of ones at the chosen stored cells; no memory is shared."""
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


def _join(left: Any, right: Any) -> sparse.csr_array:
    """Return ones where either pattern has a cell."""
    both = sparse.csr_array(left + right)
    both.data[:] = 1
    return both


def _without_diagonal(pattern: sparse.csr_array) -> sparse.csr_array:
    """Return the pattern without the cells of objects with themselves."""
    rows = np.repeat(np.arange(pattern.shape[0], dtype=np.int32), np.diff(pattern.indptr))
    return _pattern(pattern, rows != pattern.indices)


def _place(links: Any, unseen: Any) -> Place:
    """Return the two patterns compressed by row, for the kernels."""
    links, unseen = sparse.csr_array(links), sparse.csr_array(unseen)
    links.sort_indices()
    unseen.sort_indices()
    return Place(
        links.indptr.astype(np.int64),
        links.indices.astype(np.int32, copy=False),
        unseen.indptr.astype(np.int64),
        unseen.indices.astype(np.int32, copy=False),
    )


def _warn_of_self_links(count: int, kind: str) -> None:
    if count:
        advice = " Relation.build(..., self_links=True) counts them." if kind == "directed" else ""
        warnings.warn(
            f"{count:,} links of objects with themselves are left out: the diagonal of a {kind} "
            f"relation is unseen.{advice}",
            UserWarning,
            stacklevel=4,
        )
