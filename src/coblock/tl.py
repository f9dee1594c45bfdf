"""Tools for AnnData objects, called as those of scanpy: ``coblock.tl.blocks(adata)``."""

from typing import Any

from coblock.estimator import IRM
from coblock.io.annotate import label_anndata
from coblock.model.relation import BinaryRelation

__all__ = ["blocks"]


def blocks(
    adata: Any,
    *,
    layer: str | None = None,
    key_added: str = "coblock",
    copy: bool = False,
    **parameters: Any,
) -> Any:
    """Cluster observations and variables, and write the clusters to ``obs`` and ``var``.

    Parameters
    ----------
    adata : AnnData
        Values of ``X`` above ``binarize`` (0 by default) are links: an expressed gene, an open
        peak, a marker that is present.
    layer : str, optional
        The layer to use instead of ``X``.
    key_added : str
        The new columns are ``key_added`` (categorical) and ``<key_added>_probability``.
        ``uns[key_added]`` gets the parameters, the block probabilities and the log evidence.
    copy : bool
        Return a changed copy; by default ``adata`` itself is changed.
    **parameters
        Those of :class:`coblock.IRM`, such as ``random_state``.

    Examples
    --------
    >>> import anndata, numpy as np
    >>> adata = anndata.AnnData(np.kron(np.eye(2), np.ones((9, 8))))
    >>> blocks(adata, random_state=0)
    >>> adata.obs["coblock"].value_counts().tolist()
    [9, 9]
    """
    adata = adata.copy() if copy else adata
    binarize = parameters.get("binarize", 0.0)
    relation = BinaryRelation.build(
        adata.X if layer is None else adata.layers[layer],
        binarize=binarize,
        row_names=list(adata.obs_names),
        column_names=list(adata.var_names),
    )
    model = IRM(**parameters).fit(relation)
    label_anndata(adata, model, key_added)
    K1, K2 = model.result_.n_clusters
    adata.uns[key_added] = {
        "params": {"layer": layer or "X", **{name: str(x) for name, x in parameters.items()}},
        "block_probability": model.block_probability_[:K1, :K2],
        "log_evidence": float(model.log_evidence_),
    }
    return adata if copy else None
