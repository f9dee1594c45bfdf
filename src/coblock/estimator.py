"""The scikit-learn face of coblock; it holds no mathematics."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, BiclusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from coblock.analysis import prediction
from coblock.analysis.summary import summarise
from coblock.inference.fit import Settings, fit
from coblock.inference.start import memberships_of
from coblock.inference.variational import METHODS
from coblock.io import export, model_file
from coblock.io.checkpoint import Checkpoint, open_or_begin
from coblock.kernels import Floats
from coblock.model import checks
from coblock.model.relation import Relation
from coblock.model.result import Result
from coblock.model.trace import Sweep, tell_and

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
        Truncation: the largest number of clusters, of rows and of columns. None makes room
        wherever all are in use; the plain methods (``refine=False``), which cannot grow, then
        start with 40, or 20 from a random start. Gibbs starts with so many and is not truncated.
    init : {"spectral", "random"}, labels or IRM, default="spectral"
        Where to start: singular vectors of the links, random soft memberships (the paper's),
        labels of all objects (for two domains a pair of arrays), or an earlier model.
    refine : bool, default=True
        Search for the partition of the largest evidence by merges, splits and sweeps before the
        method's own sweeps; where ``acvb0`` or ``cvb0`` would make those in batches, memberships
        given the partition found take their place. False gives the paper's plain methods. Gibbs
        is left a sampler.
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
        the bound). 0 runs ``max_iter`` sweeps.
    max_iter : int, default=1000
        Largest number of sweeps. Gibbs does all of them and averages the second half.
    n_init : int, default=1
        Fits from different starts; the one with the largest log evidence is kept.
    batch_size : int, tuple of int or "auto", default="auto"
        Objects updated against the same counts; a pair for rows and columns. 1 is the paper's
        schedule, one object after another; "auto" takes that for up to 1,000 objects and else 16
        batches a sweep.
    n_jobs : int or None, default=None
        Threads, for the starts first and then for batches; -1 takes all processors. The result
        does not depend on it.
    random_state : int, RandomState or None, default=None
        Same data, seed and version: the same bits.
    warm_start : bool, default=False
        Go on from the memberships of the last fit.
    checkpoint : str, Path or None, default=None
        File to which the fit is written every minute and after rounds of moves. If it is there
        already, of the same data and parameters, the fit goes on from it, to the same bits; of
        others, it is refused. It is removed when the fit has ended; starts run one by one.
    callback : callable or None, default=None
        Called with a :class:`~coblock.model.trace.Sweep` after each sweep; True stops the fit.
    verbose : int, default=0
        1 tells of every sweep on standard error.

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
        Sweeps, whether the change fell below ``tol``, and the report of each sweep.

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
        callback: Callable[[Sweep], object] | None = None,
        verbose: int = 0,
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

    def fit(self, X: Any, y: object = None, *, unseen: Any = None) -> "IRM":
        """Find the blocks of a relation.

        Parameters
        ----------
        X : sparse matrix, array, data frame or Relation
            Rows by columns; values above ``binarize`` are links, NaN is an unseen cell.
        y : ignored
            For scikit-learn's sake.
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

        All results are kept to the bit, with the relation and its names. Of the parameters, a
        start from labels or from a model is kept as ``init="given"``; a callback, a checkpoint,
        and a random state that is not a number, are not kept.
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
        """Draw the probability of a link in every block; returns matplotlib's axes."""
        from coblock.ui import plots

        return plots.plot_blocks(self, ax)

    def plot_trace(self, ax: "Axes | None" = None) -> "Axes":
        """Draw change and bound by sweep; returns matplotlib's axes."""
        from coblock.ui import plots

        return plots.plot_trace(self, ax)

    def plot_sizes(self, ax: "Axes | None" = None) -> "Axes":
        """Draw how many members the clusters have; returns matplotlib's axes."""
        from coblock.ui import plots

        return plots.plot_sizes(self, ax)

    def _repr_html_inner(self) -> str:
        """Return what notebooks show: the blocks, or scikit-learn's view before a fit."""
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
        """Fit; the checkpoint, if there is one, stays."""
        settings = self._settings()
        relation = self._relation(X, unseen, kind=self.relation, reset=True)
        seed = check_random_state(self.random_state).randint(2**31)
        initial = self._initial(relation)
        if self.checkpoint is None:
            rng = np.random.default_rng(seed)
            self._publish(fit(relation, settings, rng, initial=initial, callback=self._callback()))
            return
        wanted = Checkpoint.begin(relation, settings, seed, initial, self.get_params(deep=False))
        wanted.feature_names = hasattr(self, "feature_names_in_")
        seeded = isinstance(self.random_state, int | np.integer)
        self._go_on(open_or_begin(self.checkpoint, wanted, any_seed=not seeded))

    def _go_on(self, found: Checkpoint) -> None:
        """Follow a fit that is under way to its end."""
        assert self.checkpoint is not None
        self._publish(found.result(self.checkpoint, self._callback()))

    def _settings(self) -> Settings:
        """Check the parameters and return them as the fit takes them."""
        checks.check_choice("relation", self.relation, checks.KINDS)
        checks.check_choice("inference", self.inference, (*METHODS, "gibbs"))
        if not isinstance(self.init, IRM | tuple | list | np.ndarray):
            checks.check_choice("init", self.init, ("spectral", "random"))
        checks.check_choice("prior", self.prior, ("shared", "per-block"))
        checks.check_choice("variance", self.variance, ("exact", "paper"))
        rules = ("newton", "fixed-point", "fixed")
        checks.check_choice("hyperparameters", self.hyperparameters, rules)
        if self.callback is not None and not callable(self.callback):
            msg = f"callback must be callable or None, but is {self.callback!r}."
            raise TypeError(msg)
        if self.inference == "gibbs" and self.prior == "per-block":
            msg = "inference='gibbs' knows the shared prior only. Pass prior='shared'."
            raise ValueError(msg)
        return Settings(
            inference=self.inference,
            max_clusters=checks.check_clusters(self.max_clusters),
            init=self.init if isinstance(self.init, str) else "given",
            refine=bool(self.refine),
            shared_prior=self.prior == "shared",
            exact_variance=self.variance == "exact",
            rule=self.hyperparameters,  # type: ignore[arg-type]
            burn_in=None
            if self.burn_in is None
            else checks.check_whole_number("burn_in", self.burn_in, 0),
            tol=checks.check_number("tol", self.tol),
            max_iter=checks.check_whole_number("max_iter", self.max_iter, 1),
            n_init=checks.check_whole_number("n_init", self.n_init, 1),
            batch_size=checks.check_batch_size(self.batch_size),
            n_jobs=self.n_jobs,
        )

    def _relation(self, X: Any, unseen: Any, *, kind: str, reset: bool) -> Relation:
        """Read the input; scikit-learn keeps count of its features."""
        if isinstance(X, Relation):
            checks.check_ready(X, kind, None if reset else self.n_features_in_, unseen)
            self.n_features_in_: int = X.shape[1]
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
            labels = checks.check_labels(model, relation.sizes)
            checks.check_room(labels, checks.check_clusters(self.max_clusters))
            return memberships_of(labels)
        check_is_fitted(model)
        earlier = model.result_.relation
        if (earlier.kind, earlier.shape) != (relation.kind, relation.shape):
            msg = (
                f"The earlier model knows a {earlier.kind} relation of shape {earlier.shape}, but "
                f"this one is {relation.kind} of shape {relation.shape}. Pass warm_start=False and "
                "init='spectral'."
            )
            raise ValueError(msg)
        return [q.copy() for q in model.result_.memberships]

    def _callback(self) -> Callable[[Sweep], object] | None:
        return tell_and(self.callback) if self.verbose else self.callback

    def _publish(self, result: Result) -> None:
        """Set the fitted attributes."""
        self.result_ = result
        self.row_labels_, self.column_labels_ = result.labels[0], result.labels[-1]
        if result.relation.one_domain:
            self.labels_ = result.labels[0]
        elif hasattr(self, "labels_"):
            del self.labels_
        self.row_membership_ = result.memberships[0]
        self.column_membership_ = result.memberships[-1]
        self.block_probability_ = result.block_probability
        self.block_links_ = result.n
        self.block_cells_ = result.n + result.N
        a, b = result.priors.a, result.priors.b
        self.concentration_ = tuple(result.priors.alpha)
        self.block_prior_ = (float(a[0, 0]), float(b[0, 0])) if result.priors.shared else (a, b)
        self.log_evidence_ = result.log_evidence
        self.stability_ = result.stability
        self.n_iter_ = len(result.trace)
        self.converged_ = result.converged
        self.trace_ = [sweep.as_dict() for sweep in result.trace]
