"""The scikit-learn estimator; it contains no mathematics."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, BiclusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from coblock.analysis import prediction
from coblock.analysis.summary import summarise
from coblock.inference.fit import Fit
from coblock.inference.settings import Settings, read_settings
from coblock.inference.start import soft_labels
from coblock.io import checkpoint, export, model_file
from coblock.kernels import Floats
from coblock.model import checks
from coblock.model.relation import Relation
from coblock.model.result import Result
from coblock.model.trace import Callback, log_sweeps

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class IRM(BiclusterMixin, BaseEstimator):
    """Infinite Relational Model: clusters rows and columns of a binary relation.

    The number of clusters is found, not given. Unseen cells are left out exactly.

    Parameters
    ----------
    relation : {"bipartite", "directed", "undirected"}, default="bipartite"
        Directed and undirected relations have one set of objects, clustered once.
    inference : {"acvb0", "acvb", "cvb0", "cvb", "vb", "gibbs"}, default="acvb0"
        Collapsed variational Bayes of zeroth or second order, averaged (``a``) or not; plain
        variational Bayes; collapsed Gibbs sampling.
    max_clusters : int, tuple of int or None, default=None
        Truncation: the largest number of clusters, of rows and of columns. None does not limit
        the search; the plain methods (``refine=False``), which cannot add clusters, then start
        with 40, or 20 from a random start. Gibbs starts with so many and is not truncated.
    init : {"spectral", "random"}, labels or IRM, default="spectral"
        Where to start: singular vectors of the links, random soft memberships (the paper's),
        labels of all objects (for two domains a pair of arrays), or an earlier model.
    refine : bool, default=True
        Search for the partition with the largest evidence by merges, splits and sweeps. What
        ``inference`` returns then depends on the method. ``acvb0``: the labels found, with
        memberships given the labels of all other objects, averaged over sampled partitions;
        ``cvb0``: the same without samples. ``acvb``, ``cvb``, ``vb`` and ``prior="per-block"``:
        the memberships of the method's own sweeps, started at the partition found. False gives
        the paper's plain methods. Gibbs always samples from the start and is not refined.
    prior : {"shared", "per-block"}, default="shared"
        One Beta prior for the link probabilities of all blocks, or the paper's, one for each.
    variance : {"exact", "paper"}, default="exact"
        For the second order: the variance of the counts, or the paper's, which is too small.
    hyperparameters : {"newton", "fixed-point", "fixed"}, default="newton"
        How the prior and the concentrations are learnt; the fixed point is the paper's and slow.
        Gibbs samples them unless they are fixed.
    binarize : float or None, default=0.0
        Values above it are links. None: the input must already be 0 or 1.
    burn_in : int or None, default=None
        Sweeps before averaging begins. None waits until memberships change little.
    tol : float, default=1e-5
        Stop when the mean change of a membership falls below it (``vb``: the relative change of
        the bound). 0: the sweeps of a method go on to ``max_iter``. A search, and the averages
        of ``acvb0`` and ``cvb0`` after it, end by themselves.
    max_iter : int, default=1000
        Largest number of sweeps. Gibbs does all of them and averages the second half.
    n_init : int, default=1
        Fits from different starts; the one with the largest log evidence is kept.
    batch_size : int, tuple of int or "auto", default="auto"
        Objects updated against the same counts; a pair for rows and columns. 1 is the paper's
        schedule, one object after another. "auto" uses 1 for up to 1,000 objects, and else 16
        batches a sweep. Gibbs and second-order methods always use 1.
    n_jobs : int or None, default=None
        Threads, for the starts first and then for batches; -1 uses all processors. The bits of
        the result do not depend on it.
    random_state : int, RandomState or None, default=None
        Same data, seed and version: the same bits.
    warm_start : bool, default=False
        Go on from the memberships of the last fit.
    checkpoint : str, Path or None, default=None
        File to which the fit is written every minute and after rounds of moves. A file of the
        same data and parameters is resumed, with the same bits; any other is refused. It is
        removed when the fit has ended. Starts run one by one.
    callback : callable or None, default=None
        Called with a :class:`~coblock.model.trace.SweepRecord` after each sweep; True stops
        the fit.
    verbose : int, default=0
        1 writes a line per sweep to standard error.
    engine : engine or None, default=None
        Where the fit runs. None: threads of this process. A
        :class:`~coblock.distributed.DaskEngine` runs it on a cluster; ``fit`` then takes the path
        of edge files that the workers can read.

    Attributes
    ----------
    row_labels_, column_labels_ : ndarray of int
        Most probable cluster of each row and column; 0 is the largest. One-domain relations
        also have ``labels_``.
    row_membership_, column_membership_ : ndarray
        Probability of each cluster, for each row and column.
    block_probability_, block_links_, block_cells_ : ndarray of shape (K1, K2)
        Posterior mean link probability, expected links and observed cells of each block. An
        undirected block stands on both sides of the diagonal.
    concentration_ : tuple of float
        One for each domain.
    block_prior_ : tuple
        (a, b), floats or, for ``prior="per-block"``, arrays.
    log_evidence_ : float
        Log evidence of the labels, hyperparameters at their best.
    stability_ : float or None
        Mean adjusted Rand index between the ``n_init`` fits; None for a single one.
    n_iter_, converged_, trace_ : int, bool, list of dict
        Sweeps, whether the fit came to its end before ``max_iter``, and the record of each sweep.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.zeros((20, 14))
    >>> X[:12, :8] = X[12:, 8:] = 1
    >>> model = IRM(random_state=0).fit(X)
    >>> model.block_probability_.shape
    (2, 2)
    >>> model.row_labels_.tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    """

    def __init__(
        self,
        relation: str = "bipartite",
        *,
        inference: str = "acvb0",
        max_clusters: int | tuple[int, int] | None = None,
        init: Any = "spectral",
        refine: bool = True,
        prior: str = "shared",
        variance: str = "exact",
        hyperparameters: str = "newton",
        binarize: float | None = 0.0,
        burn_in: int | None = None,
        tol: float = 1e-5,
        max_iter: int = 1000,
        n_init: int = 1,
        batch_size: int | tuple[int, int] | str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
        callback: Callback | None = None,
        verbose: int = 0,
        engine: Any = None,
    ) -> None:
        self.relation = relation
        self.inference = inference
        self.max_clusters = max_clusters
        self.init = init
        self.refine = refine
        self.prior = prior
        self.variance = variance
        self.hyperparameters = hyperparameters
        self.binarize = binarize
        self.burn_in = burn_in
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.callback = callback
        self.verbose = verbose
        self.engine = engine

    def fit(self, X: Any, y: object = None, *, unseen: Any = None) -> "IRM":
        """Find the blocks of a relation.

        Parameters
        ----------
        X : sparse matrix, array, data frame, Relation or (with an engine) path
            Rows by columns; values above ``binarize`` are links, NaN is an unseen cell.
        y : ignored
            For compatibility with scikit-learn.
        unseen : sparse matrix, optional
            Its stored cells are unseen.
        """
        self._fit(X, unseen)
        if self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)
        return self

    def predict(self, X: Any, *, unseen: Any = None) -> NDArray[np.int32]:
        """Return the most probable cluster of each new row; the model does not change."""
        return self.predict_membership(X, unseen=unseen).argmax(axis=1).astype(np.int32)

    def predict_membership(self, X: Any, *, unseen: Any = None) -> Floats:
        """Return the cluster probabilities of new rows, given the fitted columns.

        New rows of a directed relation are known as senders only.
        """
        check_is_fitted(self)
        new = self._relation(X, unseen, kind="bipartite", reset=False)
        return prediction.fold_in(self.result_, new)

    def link_probability(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Return the probability of a link for pairs of fitted rows and columns.

        The two arrays of positions are broadcast against each other.
        """
        check_is_fitted(self)
        shape = self.result_.relation.shape
        rows = checks.check_positions(rows, shape[0], "row")
        columns = checks.check_positions(columns, shape[1], "column")
        rows, columns = np.broadcast_arrays(rows, columns)
        flat = prediction.link_probability(self.result_, rows.ravel(), columns.ravel())
        return flat.reshape(rows.shape)

    def score_links(self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike) -> float:
        """Return the mean log probability of cells that were (True) or were not (False) links."""
        probability = self.link_probability(rows, columns)
        links = checks.check_outcomes(values, probability.shape)
        return prediction.mean_log_probability(probability, links)

    def recommend(
        self, rows: ArrayLike | None = None, n: int = 10, exclude_seen: bool = True
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return the ``n`` most probable columns of each row that it is not yet linked to.

        Parameters
        ----------
        rows : array of int or None
            Positions of fitted rows; None asks for all of them.
        n : int
            How many columns to return for each row.
        exclude_seen : bool
            Leave out the links that the model was fitted to. Observed zeros and unseen cells
            stay candidates. An object is never recommended to itself.

        Returns
        -------
        columns : ndarray of shape (rows, n)
            Positions, the most probable first; ties (one part in a billion) by position. A row
            with fewer than ``n`` candidates ends in -1.
        probabilities : ndarray of shape (rows, n)
            Their link probabilities; NaN beside -1.
        """
        check_is_fitted(self)
        size = self.result_.relation.shape[0]
        chosen = checks.check_positions(np.arange(size) if rows is None else rows, size, "row")
        most = checks.check_whole_number("n", n, 1)
        return prediction.recommend(
            self.result_, np.atleast_1d(chosen).ravel(), most, exclude_seen=exclude_seen
        )

    def to_frame(self, what: str = "rows", *, library: str = "polars") -> Any:
        """Return rows, columns or blocks as a data frame of polars, or of pandas.

        Rows and columns have name (or position), cluster and probability of the cluster; blocks
        have both clusters, their sizes, link probability, expected links and observed cells.
        """
        check_is_fitted(self)
        return export.to_frame(self.result_, what, library)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file for :func:`coblock.load`, whole or not at all.

        All results are kept to the bit, with the relation and its names. A start from labels or
        from a model is kept as ``init="given"``; callback, checkpoint, engine and a random state
        that is not a number are not kept.
        """
        check_is_fitted(self)
        named = hasattr(self, "feature_names_in_")
        model_file.save(self.result_, path, self.get_params(deep=False), feature_names=named)

    def summary(self) -> str:
        """Return a description of all clusters in words."""
        check_is_fitted(self)
        return summarise(self.result_)

    def report(self, path: str | Path, *, title: str | None = None) -> None:
        """Write one HTML page that needs nothing else: pictures, blocks, clusters, search."""
        from coblock.ui.report import write_report

        check_is_fitted(self)
        asked = self.get_params(deep=False)
        del asked["callback"], asked["checkpoint"]
        write_report(self.result_, path, settings=asked, title=title)

    def plot_blocks(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the probability of a link in every block; return matplotlib's axes."""
        return self._plots().plot_blocks(self, ax)

    def plot_trace(self, ax: "Axes | None" = None) -> "Axes":
        """Draw change and bound by sweep; return matplotlib's axes."""
        return self._plots().plot_trace(self, ax)

    def plot_sizes(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the numbers of members of the clusters; return matplotlib's axes."""
        return self._plots().plot_sizes(self, ax)

    @staticmethod
    def _plots() -> Any:
        from coblock.ui import plots

        return plots

    def _repr_html_inner(self) -> str:
        """Return the HTML of notebooks: the blocks, or scikit-learn's view before a fit."""
        if not hasattr(self, "result_"):
            return super()._repr_html_inner()
        from coblock.ui.report.notebook import notebook_view

        return notebook_view(self.result_)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    @property
    def rows_(self) -> NDArray[np.bool_]:
        """Rows of each block, (K1 * K2, rows), as scikit-learn's biclusters have them."""
        K1, K2 = self.block_probability_.shape
        return np.repeat(np.arange(K1), K2)[:, None] == self.row_labels_

    @property
    def columns_(self) -> NDArray[np.bool_]:
        """Columns of each block, (K1 * K2, columns)."""
        K1, K2 = self.block_probability_.shape
        return np.tile(np.arange(K2), K1)[:, None] == self.column_labels_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def _fit(self, X: Any, unseen: Any = None) -> None:
        """Fit; a checkpoint is not removed."""
        settings = self._settings()
        if self.engine is None:
            relation: Any = self._relation(X, unseen, kind=self.relation, reset=True)
        else:
            relation = self.engine.open(X, unseen, self.relation, self.binarize, settings)
            self.n_features_in_ = int(relation.shape[1])
        seed = check_random_state(self.random_state).randint(2**31)
        fit = Fit(relation, settings, seed, self._initial(relation))
        if self.checkpoint is None:
            self._publish(fit.run(self._callback(), engine=self.engine))
            return
        seeded = isinstance(self.random_state, int | np.integer)
        stored = checkpoint.StoredFit(
            fit, self.get_params(deep=False), hasattr(self, "feature_names_in_")
        )
        self._continue(checkpoint.open_or_begin(self.checkpoint, stored, any_seed=not seeded))

    def _continue(self, stored: checkpoint.StoredFit) -> None:
        """Run a fit that is under way to its end, writing checkpoints."""
        assert self.checkpoint is not None
        self._publish(stored.run(self.checkpoint, self._callback(), engine=self.engine))

    def _settings(self) -> Settings:
        """Check the parameters and return them as a fit takes them."""
        given = isinstance(self.init, IRM | tuple | list | np.ndarray)
        if self.callback is not None and not callable(self.callback):
            msg = f"callback must be callable or None, but is {self.callback!r}."
            raise TypeError(msg)
        return read_settings(self.get_params(deep=False), given_start=given)

    def _relation(self, X: Any, unseen: Any, *, kind: str, reset: bool) -> Relation:
        """Read the input; scikit-learn keeps count of its features."""
        if isinstance(X, Relation):
            checks.check_relation(X, kind, None if reset else self.n_features_in_, unseen)
            self.n_features_in_ = X.shape[1]
            return X
        values = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse=True,
            ensure_all_finite=False,
            dtype="numeric",
            ensure_min_samples=1,
        )
        keeps_more = hasattr(X, "columns") or isinstance(X, np.ma.MaskedArray)
        source = X if keeps_more else values  # names of a frame, the mask of an array
        return Relation.build(source, unseen=unseen, kind=kind, binarize=self.binarize)

    def _initial(self, relation: Relation) -> list[Floats] | None:
        """Return the memberships to start from where they are given."""
        model = self if self.warm_start and hasattr(self, "result_") else self.init
        if isinstance(model, str):
            return None
        if not isinstance(model, IRM):
            limit = checks.check_clusters(self.max_clusters)
            return soft_labels(checks.check_labels(model, relation.sizes, limit))
        check_is_fitted(model)
        earlier = model.result_.relation
        if (earlier.kind, earlier.shape) != (relation.kind, relation.shape):
            msg = (
                f"The earlier model has a {earlier.kind} relation of shape {earlier.shape}, but "
                f"this one is {relation.kind} of shape {relation.shape}. Pass warm_start=False and "
                "init='spectral'."
            )
            raise ValueError(msg)
        return [q.copy() for q in model.result_.memberships]

    def _callback(self) -> Callback | None:
        return log_sweeps(self.callback) if self.verbose else self.callback

    def _publish(self, result: Result) -> None:
        """Set the fitted attributes."""
        self.result_ = result
        self.row_labels_, self.column_labels_ = result.labels[0], result.labels[-1]
        if result.relation.repeated:
            self.labels_ = result.labels[0]
        elif hasattr(self, "labels_"):
            del self.labels_
        self.row_membership_ = result.memberships[0]
        self.column_membership_ = result.memberships[-1]
        self.block_probability_ = result.block_probability
        self.block_links_ = result.n
        self.block_cells_ = result.n + result.N
        a, b = result.hyper.prior
        self.concentration_ = tuple(result.hyper.alpha)
        self.block_prior_ = (a, b) if result.hyper.per_block else (a.item(), b.item())
        self.log_evidence_ = result.log_evidence
        self.stability_ = result.stability
        self.n_iter_ = len(result.trace)
        self.converged_ = result.converged
        self.trace_ = [sweep.as_dict() for sweep in result.trace]
