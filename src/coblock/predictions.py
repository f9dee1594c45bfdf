"""What a fitted estimator says of rows, columns and new rows; the estimator inherits it."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from coblock.analysis import prediction
from coblock.io import export
from coblock.kernels import Floats
from coblock.model import checks
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result


class Predictions(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Methods of a fitted estimator that predict links, clusters and new rows.

    Rows and columns are given by position, or by name if the relation has names.
    """

    result_: Result
    _library: str = "polars"  # of the frame that was fitted

    def fit_predict(self, X: Any, y: object = None) -> NDArray[np.int32]:
        """Fit, and return the clusters of the rows, ``row_labels_``."""
        return self.fit(X).row_labels_

    def predict(self, X: Any, *, unseen: Any = None) -> NDArray[np.int32]:
        """Return the most probable cluster with members of each new row."""
        q = self.predict_membership(X, unseen=unseen)
        return prediction.most_probable_label(self.result_, q)

    def predict_membership(self, X: Any, *, unseen: Any = None) -> Floats:
        """Return the cluster probabilities of new rows, given the fitted columns.

        New rows of a directed relation are known as senders only.
        """
        new = self._new_rows(X, unseen)
        return prediction.fold_in(self.result_, new)

    def predict_proba(self, X: Any) -> Floats:
        """Return the cluster probabilities of new rows, under scikit-learn's name."""
        return self.predict_membership(X)

    def transform(self, X: Any) -> Any:
        """Return the cluster probabilities of new rows as features for a pipeline."""
        return self.predict_membership(X)

    def score(self, X: Any, y: object = None) -> float:
        """Return the mean log probability of the observed cells of new rows, given the fit.

        The probability of a row is that of all its cells together, over all clusters that it may
        belong to. ``cross_val_score`` and ``GridSearchCV`` call it with rows that were not fitted.
        """
        new = self._new_rows(X, None)
        if not new.n_cells:
            msg = "X has no observed cells, so that there is nothing to score."
            raise ValueError(msg)
        return float(prediction.log_probability_of_rows(self.result_, new).sum() / new.n_cells)

    def link_probability(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Return the probability of a link for pairs of fitted rows and columns.

        The two arrays of positions or names are broadcast against each other.
        """
        check_is_fitted(self)
        pair = (self._positions(rows, 0), self._positions(columns, 1))
        rows, columns = np.broadcast_arrays(*pair)
        flat = prediction.link_probability(self.result_, rows.ravel(), columns.ravel())
        return flat.reshape(rows.shape)

    def score_links(self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike) -> float:
        """Return the mean log probability of cells that were (True) or were not (False) links."""
        probability = self.link_probability(rows, columns)
        links = checks.check_outcomes(values, probability.shape)
        return prediction.mean_log_probability(probability, links)

    def recommend(
        self, rows: ArrayLike | None = None, n: int = 10, exclude_seen: bool = True
    ) -> Any:
        """Return the ``n`` most probable columns of each row that it is not yet linked to.

        ``rows`` are names or positions of fitted rows; None asks for all of them. Observed zeros
        and unseen cells are candidates, and links of the fit if ``exclude_seen`` is False. An
        object is never recommended to itself. Equal probabilities (to one part in a billion) are
        ordered by lift, that is, the column with fewer links first, and then by name.

        For names the result is a data frame of the library that was fitted, with row, rank,
        column, probability and lift: the probability over the share of links of the column. For
        positions it is a pair of arrays of shape (rows, n): columns, and their probabilities. A
        row with fewer than ``n`` candidates ends in -1 and NaN.
        """
        check_is_fitted(self)
        named = rows is not None and np.asarray(rows).dtype.kind in "UO"
        size = self.result_.relation.shape[0]
        chosen = np.atleast_1d(self._positions(np.arange(size) if rows is None else rows, 0))
        most = checks.check_whole_number("n", n, 1)
        found = prediction.recommend(self.result_, chosen.ravel(), most, exclude_seen=exclude_seen)
        if not named:
            return found
        table = export.recommendation_columns(self.result_, chosen.ravel(), *found)
        return export.make_frame(table, self._library)

    def same_cluster_probability(
        self, first: ArrayLike, second: ArrayLike, *, columns: bool = False
    ) -> Floats:
        """Return the probability that pairs of fitted rows, or columns, share a cluster.

        Positions or names are broadcast. It is the fraction of the sampled partitions in which both
        have the same cluster; without samples, the memberships of the two are taken as independent.
        """
        check_is_fitted(self)
        d = 1 if columns else 0
        one, other = np.broadcast_arrays(*(self._positions(each, d) for each in (first, second)))
        flat = prediction.same_cluster_probability(self.result_, -d, one.ravel(), other.ravel())
        return flat.reshape(one.shape)

    @property
    def row_labels_(self) -> NDArray[np.int32]:
        """Clusters of the rows."""
        return self.result_.labels[0]

    @property
    def column_labels_(self) -> NDArray[np.int32]:
        """Clusters of the columns."""
        return self.result_.labels[-1]

    @property
    def labels_(self) -> NDArray[np.int32]:
        """Clusters of the rows."""
        return self.result_.labels[0]

    @property
    def row_membership_(self) -> Floats:
        """Probability of each cluster, for each row."""
        return self.result_.memberships[0]

    @property
    def column_membership_(self) -> Floats:
        """Probability of each cluster, for each column."""
        return self.result_.memberships[-1]

    @property
    def row_names_(self) -> NDArray[np.object_] | None:
        """Names of the fitted rows, None if they have none."""
        return self._names(0)

    @property
    def column_names_(self) -> NDArray[np.object_] | None:
        """Names of the fitted columns, None if they have none."""
        return self._names(1)

    @property
    def cluster_numbers_(self) -> list[dict[int, float]]:
        """Probability of each number of clusters, for each domain."""
        return prediction.cluster_numbers(self.result_)

    @property
    def chain_disagreement_(self) -> float | None:
        """Mean total variation distance between the memberships of a chain and of all chains."""
        return prediction.chain_disagreement(self.result_)

    @property
    def rows_(self) -> NDArray[np.bool_]:
        """Rows of each block, (K1 * K2, rows), as scikit-learn's biclusters have them."""
        K1, K2 = self.result_.n_clusters
        return np.repeat(np.arange(K1), K2)[:, None] == self.row_labels_

    @property
    def columns_(self) -> NDArray[np.bool_]:
        """Columns of each block, (K1 * K2, columns)."""
        K1, K2 = self.result_.n_clusters
        return np.tile(np.arange(K2), K1)[:, None] == self.column_labels_

    @property
    def _n_features_out(self) -> int:
        """Number of columns of :meth:`transform`, for scikit-learn."""
        return int(self.result_.memberships[0].shape[1])

    def _new_rows(self, X: Any, unseen: Any) -> BinaryRelation:
        check_is_fitted(self)
        return self._relation(X, unseen, kind="bipartite", reset=False)

    def _names(self, place: int) -> NDArray[np.object_] | None:
        names = export.object_names(self.result_.relation, place)
        return None if names is None else np.array(names, dtype=object)

    def _positions(self, values: ArrayLike, place: int) -> NDArray[np.int64]:
        """Return positions of rows (0) or columns (1) that are given by position or by name."""
        relation = self.result_.relation
        names = export.object_names(relation, place)
        return checks.check_positions(
            values, relation.shape[place], ("row", "column")[place], names
        )
