"""MultiIRM: several relations of any arity over shared domains, clustered together."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from coblock.analysis.description import summarise_several
from coblock.analysis.fold_in import assign_new_objects
from coblock.estimator import IRM
from coblock.inference.convergence import warn_if_not_converged
from coblock.inference.multi_fit import MultiFit, binary_record, use_engine
from coblock.inference.settings import Settings, check_method, read_multi_settings
from coblock.io import checkpoint, model_file, multi_checkpoint, refuse
from coblock.io.cells import LIKELIHOODS
from coblock.io.export import LIBRARIES, multi_frame
from coblock.io.tables import (
    Relation,
    build_dataset,
    check_degree_choice,
    degree_corrected,
    is_binary,
)
from coblock.kernels import Floats
from coblock.model import checks
from coblock.model.checks import Inference, Kind
from coblock.model.dataset import Dataset, check_place_names, find_cells, find_objects
from coblock.model.multi_result import (
    DomainResult,
    MultiResult,
    MultiSample,
    RelationResult,
    log_predictive,
    predict_mean,
)
from coblock.model.multi_threads import use_threads
from coblock.model.relation import BinaryRelation

PASSED_ON = ("inference", "init", "refine", "burn_in", "tol", "max_iter", "random_state")  # to IRM


class MultiIRM(BaseEstimator):  # type: ignore[misc]
    """Infinite Relational Model of several relations over shared domains.

    The objects of each domain are clustered by all relations they are in. The search looks for
    the labels with the largest evidence, from spectral starts, by sweeps, merges and splits.
    Where the data are small, Gibbs chains from the best local optima follow, and predictions
    average over their samples. Where labels are so certain that the chains do not move, they
    average over partitions of the search with nearly as much evidence as the best one: an
    ensemble of equal weights, not the posterior.

    Parameters
    ----------
    inference : {"acvb0", "cvb0", "vb", "gibbs"}, default="acvb0"
        As in :class:`IRM`: collapsed variational Bayes, averaged (``a``) or not, variational
        Bayes, collapsed Gibbs sampling. "acvb" and "cvb" are for one binary relation of two
        places.
    max_clusters : int or dict, optional
        Most clusters of each domain, or of the domains named. Default: no limit; the plain methods
        then start with up to 60, or 20 at random. Gibbs starts with so many.
    init : {"spectral", "random"}, default="spectral"
        Where to start: singular vectors of the cells, or random memberships.
    refine : bool, default=True
        Search for the labels with the largest evidence. ``acvb0`` then averages predictions over
        samples, ``cvb0`` draws none, ``vb`` sweeps from these labels. False gives the plain
        methods. Gibbs is not refined.
    burn_in, tol : int or None, float
        Sweeps before memberships are averaged, and their change at which the plain methods and
        ``vb`` have converged, as in :class:`IRM`.
    max_iter : int
        Most sweeps, those of the samples included. Gibbs does them all and averages the second
        half.
    random_state : int, RandomState or None
        Seed. The same seed gives the same bits, at any number of threads.
    n_jobs : int or None, default=None
        Number of threads; None is 1 and -1 all processors.
    engine : DaskEngine or None, default=None
        Where batches of domains of more than 1,000 objects are scored: on threads (None), or on
        the workers of a Dask cluster (``coblock.distributed.DaskEngine``), with the same bits.
    callback : callable, optional
        Called with the record of each sweep; the fit ends when it returns True.
    checkpoint : str or Path, optional
        File to which the fit is written once a minute, and when the callback raises. A fit of the
        same data goes on from it, as does :func:`coblock.resume`; it is removed at the end. One
        binary relation of two places is fitted, and resumed, as an :class:`IRM`.

    Attributes
    ----------
    domains_ : dict of DomainResult
        Names, labels, memberships, concentration and number of clusters of each domain. Labels are
        the best ones found, the most probable ones of a plain method, or of Gibbs the sample with
        the largest evidence.
    relations_ : dict of RelationResult
        Predictive means, statistics and hyperparameters of the blocks of each relation.
    log_evidence_ : float
        Log of the joint probability of all data and the labels.
    n_iter_, converged_, trace_ : int, bool, list of dict
        Sweeps; whether the fit has converged, which Gibbs never has; the record of each sweep.

    Examples
    --------
    >>> likes = [("ann", "tea"), ("bob", "tea"), ("eve", "jazz"), ("dan", "jazz")]
    >>> knows = [("ann", "bob"), ("eve", "dan")]
    >>> model = MultiIRM(random_state=0).fit(
    ...     {
    ...         "likes": Relation(likes, ["person", "thing"]),
    ...         "knows": Relation(knows, {"who": "person", "whom": "person"}, symmetric=True),
    ...     }
    ... )
    >>> sorted(model.domains_)
    ['person', 'thing']
    """

    def __init__(
        self,
        *,
        inference: Inference = "acvb0",
        max_clusters: int | Mapping[str, int] | None = None,
        init: Literal["spectral", "random"] = "spectral",
        refine: bool = True,
        burn_in: int | None = None,
        tol: float = 1e-5,
        max_iter: int = 2000,
        random_state: Any = None,
        n_jobs: int | None = None,
        engine: Any = None,
        callback: Any = None,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.inference = inference
        self.max_clusters = max_clusters
        self.init = init
        self.refine = refine
        self.burn_in = burn_in
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.engine = engine
        self.callback = callback
        self.checkpoint = checkpoint

    def fit(self, relations: Mapping[str, Relation] | Dataset, y: object = None) -> "MultiIRM":
        """Cluster the objects of all domains; ``y`` is ignored."""
        self._fit(relations, keep=False)
        return self

    def _fit(self, relations: Mapping[str, Relation] | Dataset, *, keep: bool) -> None:
        """Fit; the checkpoint is removed at the end unless it is to be kept."""
        settings = read_multi_settings(self.get_params(deep=False))
        data = relations
        if not isinstance(data, Dataset):
            data = build_dataset(_check_relations(relations))
        limits, corrected = self._limits(data), check_degree_choice(data, relations)
        if is_binary(data):
            if self.engine is not None:
                refuse(
                    "One binary relation of two places is fitted on a cluster by IRM(engine=...), "
                    "from files that the workers see. Use it, or leave engine= out."
                )
            same = {name: getattr(self, name) for name in PASSED_ON}
            irm = IRM(**same, n_jobs=self.n_jobs, checkpoint=self.checkpoint)
            irm.set_params(degree_corrected=corrected)
            irm.set_params(callback=self._binary_callback(data, settings))
            self._publish(fit_binary(data, limits, irm, settings, keep=keep))
            return
        check_method(settings, data)
        with use_engine(self.engine, data, settings):
            self._fit_several(data, limits, settings, keep=keep)

    def _fit_several(
        self, data: Dataset, limits: tuple[int | None, ...], settings: Settings, *, keep: bool
    ) -> None:
        """Fit relations that are not one binary one, from their checkpoint if there is one."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        if self.checkpoint is None:
            self._run(MultiFit(data, seed, limits, settings), self.callback)
            return
        known = None if self.random_state is None else seed
        with multi_checkpoint.open_checkpoint(
            self.checkpoint, data, known, limits, settings
        ) as found:
            fit = found or MultiFit(data, seed, limits, settings)
            stored = multi_checkpoint.StoredMultiFit(fit, self._stored_parameters())
            self._continue(stored, keep=keep)

    def _run(self, fit: MultiFit, callback: Any) -> None:
        """Run a fit to its end on the threads that are asked for, and publish its result."""
        with use_threads(checks.check_jobs(self.n_jobs)):
            fit.run(callback)
            result = fit.result()
        if self.inference != "gibbs" and self.tol > 0:
            warn_if_not_converged(result, fit.settings)
        self._publish(result)

    def _binary_callback(self, data: Dataset, settings: Settings) -> Any:
        """Return a callback for :class:`IRM` that calls the callback of this model."""
        callback, n_domains = self.callback, len(data.domains)
        if callback is None:
            return None
        return lambda record: callback(binary_record(record, n_domains, settings))

    def _continue(self, stored: multi_checkpoint.StoredMultiFit, *, keep: bool) -> None:
        """Run a fit that is under way to its end, writing checkpoints."""
        assert self.checkpoint is not None
        path = Path(self.checkpoint)
        writer = checkpoint.CheckpointWriter(stored, path, callback=self.callback)
        writer.save()
        self._run(stored.fit, writer)
        if not keep:
            path.unlink(missing_ok=True)

    def predict(self, relation: str, /, **places: ArrayLike) -> Floats:
        """Return the predictive mean of cells: probabilities, mean counts or values.

        Every place is given by names or positions, which are broadcast against each other. Whole
        numbers are names where objects are named by numbers, and positions elsewhere. Categories
        have a vector of probabilities each, on a last axis.
        """
        check_is_fitted(self)
        r = self.result_.relation_number(relation)
        cells, shape = find_cells(self.result_.data, self.result_.data.tables[r], places)
        mean = predict_mean(self.result_, r, cells)
        return mean.reshape(shape + mean.shape[1:])

    def score(self, relation: str, cells: Mapping[str, ArrayLike], values: ArrayLike) -> float:
        """Return the mean log predictive probability of the values of cells."""
        check_is_fitted(self)
        r = self.result_.relation_number(relation)
        table = self.result_.data.tables[r]
        at, _ = find_cells(self.result_.data, table, cells)
        encoded = table.encode(np.ravel(values))
        if encoded.size != len(at) or not encoded.size:
            refuse(
                f"There are {encoded.size:,} values for {len(at):,} cells of relation "
                f"'{relation}'. Give a value for each cell, and at least one cell."
            )
        return float(log_predictive(self.result_, r, at, encoded).mean())

    def rank(self, relation: str, /, n: int = 10, **places: Any) -> list[tuple[Any, float]]:
        """Return the objects with the largest predictive mean at the place that is not given."""
        check_is_fitted(self)
        table = self.result_.data.table(relation)
        check_place_names(table, places)
        free = [place for place in table.places if place not in places]
        if len(free) != 1 or len(places) >= table.arity or any(map(np.ndim, places.values())):
            refuse(
                f"rank needs one object at all places of relation '{relation}' but one; the places "
                f"are {', '.join(table.places)}, and {', '.join(places) or 'none'} are given."
            )
        domain = self.result_.data.domains[table.domains[table.places.index(free[0])]]
        objects = np.arange(domain.size) if domain.names is None else domain.names
        mean = self.predict(relation, **places, **{free[0]: objects})
        if mean.ndim > 1:
            refuse(f"Relation '{relation}' holds categories, which have no order to rank by.")
        if table.distinct:  # an object is not ranked for itself
            p = table.places.index(free[0])
            for e, place in enumerate(table.places):
                if e != p and table.domains[e] == table.domains[p]:
                    mean[find_objects(self.result_.data, table, e, places[place])] = -np.inf
        best = np.argsort(-mean, kind="stable")[: checks.check_whole_number("n", n, 1)]
        best = best[np.isfinite(mean[best])]
        names = domain.names or range(domain.size)
        return [(names[int(o)], float(mean[o])) for o in best]

    def assign(self, domain: str, relations: Mapping[str, Relation]) -> dict[Any, Floats]:
        """Return the cluster probabilities of new objects of a domain, by name.

        The relations list cells of the new objects, with names of fitted objects at all other
        places, and are described as the fitted ones. A relation that is not given is unseen for
        them. Where objects have no names, an array has a row for each new object, and these are
        named by their positions in it. The exposure of a new object is 1 if none is given.
        """
        check_is_fitted(self)
        return assign_new_objects(self.result_, domain, _check_relations(relations))

    def summary(self) -> str:
        """Return a description of domains and relations in words."""
        check_is_fitted(self)
        return summarise_several(self.result_)

    def to_frame(
        self, *, domain: str | None = None, relation: str | None = None, library: str = "polars"
    ) -> Any:
        """Return the objects of a domain, or the blocks of a relation, as a data frame.

        Objects have name, cluster and probability of the cluster; blocks have a cluster for each
        place, their sufficient statistics and the predictive mean. ``library`` is "polars" or
        "pandas".
        """
        check_is_fitted(self)
        checks.check_choice("library", library, LIBRARIES)
        return multi_frame(self.result_, domain, relation, library)

    def report(self, path: str | Path, *, title: str | None = None) -> None:
        """Write the report: one HTML file that needs no network, or Markdown (``.md``)."""
        check_is_fitted(self)
        from coblock.ui.report import write_report

        write_report(self.result_, path, settings=self.get_params(deep=False), title=title)

    def plot_blocks(self, relation: str, ax: Any = None) -> Any:
        """Draw the predictive mean of every block of a relation of two places."""
        check_is_fitted(self)
        from coblock.ui.plots import plot_relation

        return plot_relation(self, relation, ax)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file for :func:`coblock.load`, whole or not at all."""
        check_is_fitted(self)
        model_file.save(self.result_, path, self._stored_parameters())

    def _stored_parameters(self) -> dict[str, Any]:
        """Return the parameters that files hold."""
        return {name: getattr(self, name) for name in model_file.MULTI_PARAMETERS}

    def _limits(self, data: Dataset) -> tuple[int | None, ...]:
        """Return the most clusters of each domain."""
        limit = self.max_clusters
        if limit is None:
            return (None,) * len(data.domains)
        if isinstance(limit, Mapping):
            for name in limit:
                data.domain(name)
            given = {
                name: checks.check_whole_number(f"max_clusters of '{name}'", each, 1)
                for name, each in limit.items()
            }
            return tuple(given.get(name) for name in data.domain_names)
        return (checks.check_whole_number("max_clusters", limit, 1),) * len(data.domains)

    def _publish(self, result: MultiResult) -> None:
        """Set the fitted attributes."""
        self.result_ = result
        data = result.data
        self.domains_ = {
            name: DomainResult(
                data.domains[d].names,
                result.labels[d],
                result.memberships[d],
                result.alpha[d],
                int(result.labels[d].max()) + 1,
            )
            for d, name in enumerate(data.domain_names)
        }
        self.relations_ = {
            table.name: RelationResult(
                {p: data.domain_names[d] for p, d in zip(table.places, table.domains, strict=True)},
                table.likelihood.name,
                result.priors[r],
                result.partition.relation_bound(r),
                result,
                r,
            )
            for r, table in enumerate(data.tables)
        }
        self.log_evidence_, self.n_iter_ = result.log_evidence, len(result.trace)
        self.converged_, self.trace_ = result.converged, [asdict(each) for each in result.trace]


def _check_relations(relations: object) -> Mapping[str, Relation]:
    """Return a dict of relations, or refuse it."""
    if not isinstance(relations, Mapping):
        refuse("relations must be a dict from names to Relation objects.", TypeError)
    for name, each in relations.items():
        if not isinstance(name, str) or not name:
            refuse(f"The name of a relation must be a text, but is {name!r}.", TypeError)
        if not isinstance(each, Relation):
            refuse(
                f"relations['{name}'] must be a coblock.Relation, but is {type(each).__name__}.",
                TypeError,
            )
    return relations


def fit_binary(
    data: Dataset,
    limits: tuple[int | None, ...],
    irm: IRM,
    settings: Settings,
    *,
    keep: bool = False,
) -> MultiResult:
    """Fit one binary relation with :class:`IRM`; what is found is the same."""
    table = data.tables[0]
    shape = (data.sizes[table.domains[0]], data.sizes[table.domains[1]])
    links, unseen = (
        sparse.csr_array((np.ones(len(each)), tuple(each.T)), shape=shape)
        for each in (table.cells, table.unseen)
    )
    kind: Kind = "bipartite"
    if len(data.domains) == 1:
        kind = "undirected" if table.symmetric else "directed"
    relation = BinaryRelation.build(links, unseen=unseen, kind=kind, self_links=not table.distinct)
    first, last = limits[0], limits[-1]
    limit = None if first is None or last is None else (first, last)
    irm.set_params(relation=kind, max_clusters=limit)._fit(relation, keep=keep)
    found, model = irm.result_, irm.degrees_.model if irm.degrees_ else None
    prior, alpha = found.hyper.prior.ravel(), list(found.hyper.alpha)
    if model is not None:
        prior = np.concatenate((model.prior, model.eta))
        likelihood = degree_corrected(LIKELIHOODS["bernoulli"], symmetric=table.symmetric)
        data = replace(data, tables=(replace(table, likelihood=likelihood),))
    samples = []
    for sample in [] if model else found.samples:
        hyper = sample.hyper or found.hyper
        samples.append(MultiSample(sample.labels, [hyper.prior.ravel()], list(hyper.alpha)))
    trace = [binary_record(record, len(data.domains), settings) for record in found.trace]
    fitted = (found.labels, [prior], alpha, found.log_evidence, samples, trace, found.converged)
    return MultiResult(data, *fitted, soft=None if model else found.memberships)
