"""The estimator for data on a cluster."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Client
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from coblock.distributed.connection import address_of, connect, plain_errors
from coblock.distributed.fitting import fit
from coblock.distributed.relation import ClusterRelation
from coblock.distributed.source import load
from coblock.estimator import IRM
from coblock.inference.fit import Settings
from coblock.io import model_file
from coblock.io.readers import Reader
from coblock.io.readers.pairs import Columns
from coblock.io.readers.text import Layout
from coblock.model.trace import Sweep

METHODS = ("acvb0", "cvb0")


class DistributedIRM(IRM):
    """Infinite Relational Model of edges that live on a Dask cluster.

    The same model, batches and bits as :class:`coblock.IRM` on one machine with processors of the
    same kind, whatever the number of workers. Links stay on the workers; memberships and names
    are kept here.

    Parameters
    ----------
    client : distributed.Client, str or None
        A client, the address of a scheduler, or None for the client that was made last.
    relation : "bipartite"
        Relations of one set of objects need one machine.
    row, column, value : str or None
        Columns of the edge files; by default the first two, and every edge is a link.
    shards : int or None
        Into how many shards rows and columns are cut. None: as many as there are threads, and
        more when workers join. The result does not depend on it.
    checkpoint : path or None
        File of this machine that keeps the sweeps once a minute; a fit of the same data and
        parameters goes on from it.
    inference : {"acvb0", "cvb0"}
        The others need all data at one place.
    batch_size : int, tuple of int or "auto"
        At least 2; "auto" takes 4 batches of rows and of columns a sweep, 16 are taken on one
        machine. There the same sizes, (rows, columns), give the same bits.
    max_clusters, init, refine, prior, hyperparameters, binarize, burn_in, tol, max_iter, n_init, \
random_state, warm_start, callback, verbose
        See :class:`coblock.IRM`.

    Examples
    --------
    >>> from coblock.distributed import DistributedIRM
    >>> model = DistributedIRM(client="tcp://host:8786")  # doctest: +SKIP
    >>> model.fit("edges/")  # doctest: +SKIP
    """

    def __init__(
        self,
        client: Client | str | None = None,
        *,
        relation: str = "bipartite",
        row: str | None = None,
        column: str | None = None,
        value: str | None = None,
        shards: int | None = None,
        checkpoint: str | Path | None = None,
        inference: str = "acvb0",
        max_clusters: int | tuple[int, int] | None = None,
        init: Any = "spectral",
        refine: bool = True,
        prior: str = "shared",
        hyperparameters: str = "newton",
        binarize: float | None = 0.0,
        burn_in: int | None = None,
        tol: float = 1e-5,
        max_iter: int = 1000,
        n_init: int = 1,
        batch_size: int | tuple[int, int] | str = "auto",
        random_state: Any = None,
        warm_start: bool = False,
        callback: Callable[[Sweep], object] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            relation,
            inference=inference,
            max_clusters=max_clusters,
            init=init,
            refine=refine,
            prior=prior,
            hyperparameters=hyperparameters,
            binarize=binarize,
            burn_in=burn_in,
            tol=tol,
            max_iter=max_iter,
            n_init=n_init,
            batch_size=batch_size,
            random_state=random_state,
            warm_start=warm_start,
            callback=callback,
            verbose=verbose,
        )
        self.client = client
        self.row = row
        self.column = column
        self.value = value
        self.shards = shards
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: object = None, *, unseen: Any = None) -> "DistributedIRM":
        """Find the blocks of the relation in a folder of edge files.

        Parameters
        ----------
        X : path
            Folder of Parquet, CSV or npz files (or one such file) that every worker sees under
            this name. Names are numbered by first appearance, files taken by name.
        y : ignored
            For scikit-learn's sake.
        unseen : None
            Unseen pairs are edges with a blank ``value``.
        """
        settings = self._settings()
        _refuse_what_is_local(self.relation, settings, X, unseen)
        self._fit_folder(X, settings)
        return self

    def _fit_folder(self, folder: str | Path, settings: Settings) -> None:
        """Bring the edges to the workers, fit, and publish the result."""
        client = connect(self.client)
        columns = Columns(self.row, self.column, self.value)
        reader = Reader("bipartite", columns, self.binarize, Layout())
        with plain_errors(client):
            relation = load(client, folder, reader, settings.batch_size, self.shards)
            self.n_features_in_ = relation.shape[1]
            seed = check_random_state(self.random_state).randint(2**31)
            result = fit(
                relation,
                settings,
                seed,
                initial=self._initial(relation),  # type: ignore[arg-type]
                callback=self._callback(),
                checkpoint=self.checkpoint,
                any_seed=self.random_state is None,
            )
        relation.fitting = False
        self._publish(result)

    def __sklearn_clone__(self) -> "DistributedIRM":
        """Return an unfitted twin; a client is shared, there is no second one."""
        parameters = self.get_params(deep=False)
        copies = {
            name: value if name == "client" else clone(value, safe=False)
            for name, value in parameters.items()
        }
        return type(self)(**copies)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: of a client its scheduler's address."""
        state = dict(super().__getstate__())
        if isinstance(self.client, Client):
            state["client"] = address_of(self.client)
        return state

    def collect(self) -> "DistributedIRM":
        """Bring the links from the workers to this machine, which must have room for them.

        Saving the model and recommending what was not seen need them.
        """
        check_is_fitted(self)
        relation = self.result_.relation
        if isinstance(relation, ClusterRelation):
            self.result_ = replace(self.result_, relation=relation.collect())
            self.release()
        return self

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file for :func:`coblock.load`; its links must be here.

        The file is that of a local model; what concerns the cluster is not kept.
        """
        check_is_fitted(self)
        parameters = {name: getattr(self, name) for name in IRM().get_params(deep=False)}
        model_file.save(self.result_, path, parameters)

    def release(self) -> None:
        """Free the memory of the workers; the model stays."""
        relation: Any = self.result_.relation
        if isinstance(relation, ClusterRelation) and relation.crew is not None:
            relation.crew.close()
            relation.crew = None


def _refuse_what_is_local(relation: str, settings: Settings, X: Any, unseen: Any) -> None:
    """Refuse what a cluster cannot do, with what can be done instead."""
    if relation != "bipartite":
        msg = (
            f"relation={relation!r} cannot be fitted on a cluster yet, only 'bipartite'. Use "
            "coblock.IRM on one machine."
        )
        raise ValueError(msg)
    if settings.inference not in METHODS:
        msg = (
            f"inference={settings.inference!r} takes objects one after another, which a cluster "
            f"cannot. Use one of {', '.join(METHODS)}, or coblock.IRM on one machine."
        )
        raise ValueError(msg)
    sizes = settings.batch_size
    if sizes == 1 or (isinstance(sizes, tuple) and 1 in sizes):
        msg = "batch_size=1 leaves nothing to share between workers. Pass 'auto', or at least 2."
        raise ValueError(msg)
    if not isinstance(X, str | Path):
        msg = (
            f"X must be a folder of Parquet, CSV or npz files that the workers see, not "
            f"{type(X).__name__}. For data in memory use coblock.IRM."
        )
        raise TypeError(msg)
    if unseen is not None:
        msg = (
            "unseen= is not possible here. Unseen pairs are edges with a blank value: pass value=."
        )
        raise ValueError(msg)


def fit_on_cluster(edges: str | Path, scheduler: str, **parameters: Any) -> DistributedIRM:
    """Fit the edges of a folder on the cluster of a scheduler.

    Parameters
    ----------
    edges : path
        Folder of edge files, or one file, that every worker sees under this name.
    scheduler : str
        Address, like ``tcp://host:8786``.
    **parameters
        Of :class:`DistributedIRM`.

    Returns
    -------
    DistributedIRM
        Fitted, with its links on the cluster; see :meth:`DistributedIRM.collect`.
    """
    return DistributedIRM(connect(scheduler), **parameters).fit(edges)
