"""The scikit-learn estimator; it contains no mathematics."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, BiclusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from coblock.analysis import description, prediction
from coblock.analysis.tree import Tree, build_tree
from coblock.inference.fit import Fit
from coblock.inference.settings import Settings, read_settings
from coblock.inference.start import soft_labels
from coblock.io import checkpoint, export, model_file
from coblock.io.export import Library, Table
from coblock.io.readers import Reading, is_edges, read
from coblock.kernels import Floats
from coblock.model import checks
from coblock.model.checks import Inference, Kind, Learning, Prior, Variance
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result
from coblock.model.trace import Callback, log_sweeps
from coblock.predictions import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class IRM(Predictions, BiclusterMixin, BaseEstimator):
    """Infinite Relational Model: clusters rows and columns of a binary relation.

    The number of clusters is found, not given. Unseen cells are left out exactly.

    Parameters
    ----------
    relation : {"bipartite", "directed", "undirected"}, default="bipartite"
        Directed and undirected relations have one set of objects, clustered once.
    inference : {"acvb0", "acvb", "cvb0", "cvb", "vb", "gibbs"}, default="acvb0"
        Collapsed variational Bayes of zeroth or second order, averaged (``a``) or not; plain
        variational Bayes; collapsed Gibbs sampling.
    likelihood : {"bernoulli"}, default="bernoulli"
        IRM is for binary relations. Counts, categories and real numbers are fitted by
        :class:`MultiIRM`: ``MultiIRM().fit({"data": Relation(X, ["row", "column"],
        likelihood="poisson")})``.
    degree_corrected : {False, True, "auto"}, default=False
        Whether members of a cluster may differ in degree; "auto" takes what has more evidence.
    max_clusters : int, tuple of int or None, default=None
        Largest number of clusters, of rows and of columns. None does not limit the search; the
        plain methods (``refine=False``), which cannot add clusters, then start with 60, or 20 at
        random. Gibbs starts with so many and is not truncated.
    init : {"spectral", "random"}, labels or IRM, default="spectral"
        Where to start: singular vectors of the links, random memberships (the paper's), labels
        of all objects (for two domains a pair of arrays), or an earlier model.
    refine : bool, default=True
        Search for the partition with the largest evidence by merges, splits and sweeps. With
        ``acvb0`` the result has the labels found, and memberships and predictions averaged over
        partitions sampled around it: by Gibbs chains where sweeps are sequential (see
        ``batch_size``), else with the clusters found. With ``cvb0`` nothing is sampled. Else, and
        with ``prior="per-block"``, memberships are those of the method's own sweeps from the
        partition found. False gives the paper's plain methods. Gibbs is not refined.
    prior : {"shared", "per-block"}, default="shared"
        One Beta prior for the link probabilities of all blocks, or the paper's, one for each.
    variance : {"exact", "paper"}, default="exact"
        For the second order: the variance of the counts, or the paper's, which is too small.
    hyperparameters : {"newton", "fixed-point", "fixed"}, default="newton"
        How the prior and the concentrations are learnt; the fixed points are the paper's, one for
        ``vb`` and one for the others, and slow. Gibbs samples them unless they are fixed. Fixed
        ones keep the values of ``block_prior`` and ``concentration``, in the search, too.
    block_prior : tuple of float or None, default=None
        a and b of the prior of the blocks, to begin with. None: the weight of one cell, with the
        density of the relation as mean.
    concentration : float, tuple of float or None, default=None
        Concentrations of rows and of columns, to begin with; a number for both. None: 1.
    hyperprior : tuple of float or None, default=None
        Shape and rate of the Gamma hyperprior of the concentrations, for samples and for the
        comparison of numbers of clusters in the search. None: 1 and 1.
    block_hyperprior : tuple of float or None, default=None
        Shape and rate of the Gamma hyperpriors of a and b, for samples, and for learning where
        each block has its own. None: 1 and 0.1, for each block 2 and 1.
    binarize : float or None, default=0.0
        Values above it are links. None: the input must already be 0 or 1.
    burn_in : int or None, default=None
        Sweeps before averaging begins. None waits until memberships change little or cycle, and
        begins again when they come to rest later.
    tol : float, default=1e-5
        The sweeps of a method have converged when the mean change of a membership falls below it
        (``vb``: the relative change of the bound, and 1/1,000 of that of memberships); 0 lets them
        go on to ``max_iter``. The default has converged when its search finds no gain and one more
        sample changes the averaged memberships by less than 0.02; ``tol`` does not affect it.
    max_iter : int, default=1000
        Largest number of sweeps of all phases. Gibbs does them all and averages the second half.
    n_init : int, default=1
        Fits from different starts; the one with the largest log evidence is kept.
    batch_size : int, tuple of int or "auto", default="auto"
        Objects updated against the same counts; a pair for rows and columns. 1 is the paper's
        schedule, one object after another. "auto" uses 1 for up to 1,000 objects, and else 16
        batches a sweep. Gibbs and second-order methods always use 1.
    n_jobs : int or None, default=None
        Threads, for starts first and then for batches; -1 uses all. They do not change the bits.
    random_state : int, RandomState or None, default=None
        Same data, seed and version: the same bits.
    warm_start : bool, default=False
        Go on from the memberships of the last fit.
    checkpoint : str, Path or None, default=None
        File to which the fit is written every minute and after rounds of moves. A file of the
        same data and parameters is resumed, with the same bits; any other is refused. It is
        removed when the fit has ended, and locked until then. Starts run one by one.
    callback : callable or None, default=None
        Called with a :class:`~coblock.model.trace.SweepRecord` after each sweep; True ends a fit.
    verbose : int, default=0
        1 writes a line per sweep to standard error.
    engine : engine or None, default=None
        Where the fit runs. None: threads of this process. A
        :class:`~coblock.distributed.DaskEngine` runs it on a cluster; ``fit`` then takes the path
        of edge files that the workers can read.

    Attributes
    ----------
    row_labels_, column_labels_ : ndarray of int
        Clusters of the rows and columns in the best partition found, 0 the largest; for a plain
        method the most probable ones. ``labels_`` are those of the rows.
    row_names_, column_names_ : ndarray of str or None
        Names of the rows and columns, where the input has some.
    row_membership_, column_membership_ : ndarray
        Probability of each cluster, for each row and column. Clusters that are no object's most
        probable one come last. Labels, tables, pictures and numbers of clusters leave these out.
    block_probability_, block_links_, block_cells_ : ndarray of shape (K1, K2)
        Posterior mean link probability, expected links and observed cells of each block, for all
        clusters of the memberships. An undirected block stands on both sides of the diagonal.
    concentration_, block_prior_ : tuple
        A float for each domain; (a, b), floats or, for ``prior="per-block"``, arrays.
    log_evidence_, stability_ : float
        Log evidence of the labels, hyperparameters at their best; mean adjusted Rand index
        between the ``n_init`` fits, None for one.
    degrees_ : DegreeChoice or None
        Evidence of the plain and of the degree-corrected model, if asked for; which was taken.
    cluster_numbers_ : list of dict
        For each domain, the probability of each number of clusters: its share of the samples.
    chain_disagreement_ : float or None
        How far the memberships of chains from several optima are apart: from 0 to 1, None for one.
    n_iter_, converged_, trace_ : int, bool, list of dict
        Sweeps; whether the fit has converged, see ``tol``; the record of each sweep.

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
        relation: Kind = "bipartite",
        *,
        inference: Inference = "acvb0",
        likelihood: Literal["bernoulli"] = "bernoulli",
        degree_corrected: bool | Literal["auto"] = False,
        max_clusters: int | tuple[int, int] | None = None,
        init: Any = "spectral",
        refine: bool = True,
        prior: Prior = "shared",
        variance: Variance = "exact",
        hyperparameters: Learning = "newton",
        block_prior: tuple[float, float] | None = None,
        concentration: float | tuple[float, float] | None = None,
        hyperprior: tuple[float, float] | None = None,
        block_hyperprior: tuple[float, float] | None = None,
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
        self.likelihood = likelihood
        self.degree_corrected = degree_corrected
        self.max_clusters = max_clusters
        self.init = init
        self.refine = refine
        self.prior = prior
        self.variance = variance
        self.hyperparameters = hyperparameters
        self.block_prior = block_prior
        self.concentration = concentration
        self.hyperprior = hyperprior
        self.block_hyperprior = block_hyperprior
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

        ``X`` is a sparse matrix, array or data frame of rows by columns; a :class:`Relation`, or
        what :func:`coblock.read` returns; a path, a networkx graph, or a data frame with a column
        of text, which are read by :func:`coblock.read`, and so is their ``unseen``. Values above
        ``binarize`` are links; NaN and the stored cells of the sparse matrix ``unseen`` are unseen.
        ``y`` is ignored.
        """
        self._fit(X, unseen)
        return self

    def to_frame(self, what: Table = "rows", *, library: Library | None = None) -> Any:
        """Return rows, columns or blocks as a data frame of polars, or of pandas.

        The default is pandas if a frame of pandas was fitted, else polars. Rows and columns have
        name (or position), cluster and probability of the cluster; blocks have both clusters,
        their sizes, link probability, expected links and observed cells.
        """
        check_is_fitted(self)
        return export.to_frame(self.result_, what, library or self._library)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file for :func:`coblock.load`, whole or not at all.

        Everything is kept to the bit but a given start, callback, checkpoint, engine and generator.
        """
        check_is_fitted(self)
        named = hasattr(self, "feature_names_in_")
        model_file.save(self.result_, path, self.get_params(deep=False), feature_names=named)

    def summary(self) -> str:
        """Return a description of all clusters in words."""
        check_is_fitted(self)
        return description.summarise(self.result_)

    def report(self, path: str | Path, *, title: str | None = None, **shown: Any) -> None:
        """Write an HTML page, or Markdown (``.md``); ``shown`` as in ``analysis.describe``."""
        from coblock.ui.report import write_report

        check_is_fitted(self)
        found = description.describe(self.result_, **shown)
        write_report(found, path, settings=self.get_params(deep=False), title=title)

    def tree(self) -> Tree:
        """Return the tree of blocks: ``tree().cut(k)`` merges clusters down to ``k``."""
        check_is_fitted(self)
        return build_tree(self.result_)

    def compare_cuts(self, clusters: Iterable[int]) -> list[dict[str, Any]]:
        """Return the evidence of cuts of the tree next to that of direct fits.

        A direct fit has the parameters of this one, and at most so many clusters per domain. It is
        a fit of its own and takes as long; a large difference says that the cut is not the best
        coarse description.
        """
        check_is_fitted(self)
        tree, found = build_tree(self.result_), []
        given = self.get_params(deep=False) | {
            "callback": None,
            "checkpoint": None,
            "init": "spectral",
        }
        for number in clusters:
            cut = tree.cut(number)
            direct = IRM(**given | {"max_clusters": number, "engine": None, "warm_start": False})
            direct.fit(self.result_.relation)
            found.append(
                {
                    "cut": cut.clusters,
                    "cut_log_evidence": cut.log_evidence,
                    "direct": tuple(int(label.max()) + 1 for label in direct.result_.labels),
                    "direct_log_evidence": direct.log_evidence_,
                }
            )
        return found

    def plot_blocks(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the probability of a link in every block; return matplotlib's axes."""
        return self._plots.plot_blocks(self, ax)

    def plot_trace(self, ax: "Axes | None" = None) -> "Axes":
        """Draw change and bound by sweep; return matplotlib's axes."""
        return self._plots.plot_trace(self, ax)

    def plot_sizes(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the numbers of members of the clusters; return matplotlib's axes."""
        return self._plots.plot_sizes(self, ax)

    @property
    def _plots(self) -> Any:
        from coblock.ui import plots

        return plots

    def _repr_html_inner(self) -> str:
        """Return the HTML of notebooks: the blocks, or scikit-learn's view before a fit."""
        if not hasattr(self, "result_"):
            return super()._repr_html_inner()
        from coblock.ui.report import notebook_view

        return notebook_view(self.result_)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def _fit(self, X: Any, unseen: Any = None, *, keep: bool = False) -> None:
        """Fit; a checkpoint is removed at the end unless it is to be kept."""
        settings = self._settings()
        if self.engine is None:
            relation = self._relation(X, unseen, kind=self.relation, reset=True)
            self._run(relation, settings, keep=keep)
            return
        with self.engine.open(X, unseen, self.relation, self.binarize, settings) as opened:
            self.n_features_in_ = int(opened.shape[1])
            self._run(opened, settings, keep=keep)

    def _run(self, relation: Any, settings: Settings, *, keep: bool) -> None:
        """Fit an opened relation, from its checkpoint if there is one."""
        seed = check_random_state(self.random_state).randint(2**31)
        fit = Fit(relation, settings, seed, self._initial(relation))
        if self.checkpoint is None:
            self._publish(fit.run(self._callback(), engine=self.engine))
            return
        seeded = isinstance(self.random_state, int | np.integer)
        stored = checkpoint.StoredFit(
            fit, self.get_params(deep=False), hasattr(self, "feature_names_in_")
        )
        path = self.checkpoint
        with checkpoint.open_or_begin(path, stored, any_seed=not seeded) as under_way:
            self._continue(under_way, keep=keep)

    def _continue(self, stored: checkpoint.StoredFit, *, keep: bool) -> None:
        """Run a fit that is under way to its end, writing checkpoints."""
        assert self.checkpoint is not None
        self._publish(stored.run(self.checkpoint, self._callback(), engine=self.engine))
        if not keep:
            Path(self.checkpoint).unlink(missing_ok=True)

    def _settings(self) -> Settings:
        """Check the parameters and return them as a fit takes them."""
        given = isinstance(self.init, IRM | tuple | list | np.ndarray)
        if self.callback is not None and not callable(self.callback):
            msg = f"callback must be callable or None, but is {self.callback!r}."
            raise TypeError(msg)
        return read_settings(self.get_params(deep=False), given_start=given)

    def _relation(self, X: Any, unseen: Any, *, kind: Kind, reset: bool) -> BinaryRelation:
        """Read the input; scikit-learn keeps count of its features."""
        if reset and self._library != (library := export.library_of(X)):
            self._library = library
        if is_edges(X):
            X, unseen = read(X, relation=kind, binarize=self.binarize, unseen=unseen), None
            for note in X.notes if reset else ():
                warnings.warn(f"{note} coblock.read has options.", UserWarning, stacklevel=4)
        if isinstance(X, Reading):
            X = X.relation
            if not reset and self.column_names_ is not None:
                X, _ = prediction.align(X, self.column_names_.tolist())
        if isinstance(X, BinaryRelation):
            checks.check_relation(X, kind, None if reset else self.n_features_in_, unseen)
            self.n_features_in_ = X.shape[1]
            return X
        checks.open_frame(X)  # before scikit-learn reads it
        values = validate_data(self, X, reset=reset, accept_sparse=True, ensure_all_finite=False)
        keeps_more = hasattr(X, "columns") or isinstance(X, np.ma.MaskedArray)
        source = X if keeps_more else values  # names of a frame, the mask of an array
        return BinaryRelation.build(source, unseen=unseen, kind=kind, binarize=self.binarize)

    def _initial(self, relation: BinaryRelation) -> list[Floats] | None:
        """Return the memberships to start from where they are given."""
        model = self if self.warm_start and hasattr(self, "result_") else self.init
        if isinstance(model, str):
            return None
        if not isinstance(model, IRM):
            limit = checks.check_one_or_two("max_clusters", self.max_clusters, None)
            return soft_labels(checks.check_labels(model, relation.sizes, limit))
        check_is_fitted(model)
        checks.check_same_form(model.result_.relation, relation)
        return [q.copy() for q in model.result_.memberships]

    def _callback(self) -> Callback | None:
        return log_sweeps(self.callback) if self.verbose else self.callback

    def _publish(self, result: Result) -> None:
        """Set the fitted attributes."""
        self.result_ = result
        self.block_probability_, self.degrees_ = result.block_probability, result.degrees
        self.block_links_, self.block_cells_ = result.n, result.n + result.N
        a, b = result.hyper.prior
        self.concentration_ = tuple(result.hyper.alpha)
        self.block_prior_ = (a, b) if result.hyper.per_block else (a.item(), b.item())
        self.log_evidence_, self.stability_ = result.log_evidence, result.stability
        self.n_iter_, self.converged_ = len(result.trace), result.converged
        self.trace_ = [sweep.as_dict() for sweep in result.trace]
