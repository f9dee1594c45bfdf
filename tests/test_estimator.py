"""The estimator: checks of scikit-learn, attributes, reproducibility, new rows, odd shapes."""

import pickle
import warnings
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import betaln, softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score, consensus_score
from sklearn.utils.estimator_checks import (
    check_estimator_sparse_array,
    check_estimator_sparse_matrix,
    parametrize_with_checks,
)

import coblock.analysis.prediction
import reference
from coblock import IRM, Relation
from coblock.inference.fit import Start
from coblock.model.trace import SweepRecord

KINDS = ("bipartite", "directed", "undirected")
DETERMINISTIC = ("acvb0", "acvb", "cvb0", "cvb", "vb")
INFERENCES = (*DETERMINISTIC, "gibbs")
NAN = np.nan
TRUE_ROWS = np.repeat([0, 1, 2], [14, 9, 6])
TRUE_COLUMNS = np.repeat([0, 1], [12, 8])
TRUE_OBJECTS = np.repeat([0, 1, 2], [12, 8, 5])
PLAIN = {"init": "random", "refine": False}  # the plain methods of the paper
ARRAYS = (
    "row_labels_",
    "column_labels_",
    "row_membership_",
    "column_membership_",
    "block_probability_",
    "block_links_",
    "block_cells_",
    "concentration_",
    "block_prior_",
    "log_evidence_",
    "rows_",
    "columns_",
)


def draw(rng: np.random.Generator, probability: np.ndarray, unseen: float) -> np.ndarray:
    X = (rng.random(probability.shape) < probability).astype(float)
    X[rng.random(X.shape) < unseen] = NAN
    return X


def planted(kind: str, unseen: float = 0.1) -> np.ndarray:
    """Return clear blocks with some unseen cells (NaN) and, in one domain, an empty diagonal."""
    rng = np.random.default_rng(0)
    if kind == "bipartite":
        theta = np.array([[0.95, 0.05], [0.05, 0.95], [0.9, 0.9]])
        return draw(rng, theta[TRUE_ROWS][:, TRUE_COLUMNS], unseen)
    theta = np.array([[0.9, 0.1, 0.1], [0.8, 0.1, 0.9], [0.1, 0.1, 0.9]])
    if kind == "undirected":
        theta = np.array([[0.95, 0.05, 0.5], [0.05, 0.95, 0.05], [0.5, 0.05, 0.05]])
    X = draw(rng, theta[TRUE_OBJECTS][:, TRUE_OBJECTS], unseen)
    if kind == "undirected":
        X = np.triu(X, 1)
        X = np.where(np.tri(len(X), dtype=bool), X.T, X)
    np.fill_diagonal(X, 0.0)
    return X


def dense(X: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells, and which of them are observed, in the form of the reference."""
    observed = (~np.isnan(X)).astype(float)
    if kind != "bipartite":
        np.fill_diagonal(observed, 0.0)
    return np.nan_to_num(X, nan=0.0), observed


def fit(kind: str, inference: str, X: np.ndarray | None = None, **settings) -> IRM:
    settings = {"max_clusters": 5, "max_iter": 40, "random_state": 3} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return IRM(kind, inference=inference, **settings).fit(planted(kind) if X is None else X)


@cache
def fitted(kind: str, inference: str) -> IRM:
    """Return a model that tests share and do not change."""
    return fit(kind, inference)


@cache
def best(kind: str) -> IRM:
    """Return the best of several starts, which has found the blocks."""
    return fit(kind, "acvb0", max_iter=200, n_init=3)


def counted_memberships(model: IRM) -> list[np.ndarray]:
    """Return the memberships that the blocks count: those of the labels if there are samples."""
    q, result = memberships(model), model.result_
    if not result.samples:
        return q
    return [np.eye(each.shape[1])[z] for each, z in zip(q, result.labels, strict=True)]


def memberships(model: IRM) -> list[np.ndarray]:
    one_domain = model.relation != "bipartite"
    q = [model.row_membership_, model.column_membership_]
    return q[:1] if one_domain else q


def assert_same_bits(left: IRM, right: IRM) -> None:
    for name in ARRAYS:
        assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    assert (left.n_iter_, left.converged_) == (right.n_iter_, right.converged_)
    for one, other in zip(left.trace_, right.trace_, strict=True):
        assert {**one, "seconds": 0.0} == {**other, "seconds": 0.0}


# Checks of scikit-learn


SMALL = {"random_state": 0, "max_clusters": 3, "max_iter": 20}


@parametrize_with_checks(
    [
        IRM(random_state=0),
        *(IRM(inference=inference, **SMALL) for inference in INFERENCES),
        IRM(n_init=2, n_jobs=2, prior="per-block", hyperparameters="fixed-point", **SMALL),
    ],
    expected_failed_checks=lambda _: {
        f"check_estimator_sparse_{kind}": "it takes predict_proba for that of a classifier"
        for kind in ("array", "matrix")
    },
)
@pytest.mark.usefixtures("short_chains")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


class WithoutProbabilities(IRM):
    """The estimator without the method that two checks take for that of a classifier."""

    @property
    def predict_proba(self):
        raise AttributeError


@pytest.mark.parametrize("check", [check_estimator_sparse_array, check_estimator_sparse_matrix])
@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_parts_of_the_sparse_checks(check, inference):
    check("IRM", WithoutProbabilities(inference=inference, **SMALL))


# Reproducibility


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inference", INFERENCES)
def test_same_seed_gives_same_bits(kind, inference):
    first = fitted(kind, inference)
    np.random.default_rng().random(7)
    np.random.seed(12345)  # noqa: NPY002  (a fit must not use the global generator)
    assert_same_bits(fit(kind, inference), first)


@pytest.mark.parametrize("inference", INFERENCES)
def test_another_seed_gives_another_trace(inference):
    one, other = (fit("bipartite", inference, random_state=seed, **PLAIN) for seed in (3, 4))
    assert one.trace_[0]["bound"] != other.trace_[0]["bound"]


@pytest.mark.parametrize("inference", ["acvb0", "gibbs"])
def test_number_of_threads_does_not_change_the_bits(inference):
    models = [fit("bipartite", inference, n_init=3, n_jobs=jobs) for jobs in (1, 2, None)]
    assert_same_bits(models[0], models[1])
    assert_same_bits(models[0], models[2])


def test_sparse_and_dense_input_give_the_same_bits():
    X = planted("bipartite")
    as_links = sparse.csc_array(np.nan_to_num(X, nan=0.0))
    model = IRM(max_clusters=5, max_iter=40, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(as_links, unseen=sparse.coo_array(np.isnan(X)))
    assert_same_bits(model, fitted("bipartite", "acvb0"))


# Fitted attributes


every_fit = pytest.mark.parametrize(
    ("kind", "inference"), [(kind, inference) for kind in KINDS for inference in INFERENCES]
)


@every_fit
def test_attributes_have_their_shapes_and_types(kind, inference):
    model, X = fitted(kind, inference), planted(kind)
    K1, K2 = model.block_probability_.shape
    assert model.row_labels_.shape == X.shape[:1]
    assert model.column_labels_.shape == X.shape[1:]
    assert model.row_membership_.shape == (X.shape[0], K1)
    assert model.column_membership_.shape == (X.shape[1], K2)
    assert model.block_links_.shape == model.block_cells_.shape == (K1, K2)
    for name in ("row_labels_", "column_labels_"):
        assert getattr(model, name).dtype.kind == "i"
    for name in ("row_membership_", "column_membership_", "block_probability_", "block_links_"):
        assert getattr(model, name).dtype == np.float64
    domains = 2 if kind == "bipartite" else 1
    assert isinstance(model.concentration_, tuple)
    assert [type(alpha) for alpha in model.concentration_] == [float] * domains
    assert [type(value) for value in model.block_prior_] == [float, float]
    assert all(value > 0 for value in (*model.concentration_, *model.block_prior_))
    assert (type(model.log_evidence_), type(model.n_iter_)) == (float, int)
    assert isinstance(model.converged_, bool)
    assert model.n_features_in_ == X.shape[1]


@every_fit
def test_labels_are_the_most_probable_clusters(kind, inference):
    model = fitted(kind, inference)
    for label, q in (
        (model.row_labels_, model.row_membership_),
        (model.column_labels_, model.column_membership_),
    ):
        assert_allclose(q.sum(axis=1), 1.0, rtol=1e-12)
        assert (q >= 0.0).all()
        assert_array_equal(q[np.arange(label.size), label], q.max(axis=1))
        sizes = np.bincount(label)
        assert (sizes > 0).all(), "a cluster without members has a number before one with some"
        assert (np.diff(sizes) <= 0).all(), "clusters are not sorted by size"


@every_fit
def test_blocks_are_the_counts_of_the_memberships(kind, inference):
    model = fitted(kind, inference)
    X, observed = dense(planted(kind), kind)
    n, N = reference.counts(X, observed, counted_memberships(model), kind)
    assert_allclose(model.block_links_, n, rtol=1e-9, atol=1e-9)
    assert_allclose(model.block_cells_, n + N, rtol=1e-9, atol=1e-9)
    a, b = model.block_prior_
    assert_allclose(model.block_probability_, (a + n) / (a + b + n + N), rtol=1e-9)


def test_counting_unseen_cells_as_zeros_gives_other_blocks():
    """Negative control for the test above."""
    model, (X, _) = fitted("bipartite", "acvb0"), dense(planted("bipartite"), "bipartite")
    n, N = reference.counts(X, np.ones_like(X), memberships(model), "bipartite")
    assert np.abs(model.block_cells_ - n - N).max() > 1.0


@every_fit
def test_log_evidence_is_above_the_joint_at_any_hyperparameters(kind, inference):
    model = fitted(kind, inference)
    X, observed = dense(planted(kind), kind)
    labels = [model.row_labels_, model.column_labels_][: 2 if kind == "bipartite" else 1]
    for a, b, alpha in ((*model.block_prior_, 1.0), (0.5, 0.5, 0.7), (1.0, 3.0, 2.0)):
        joint = reference.log_joint(X, observed, labels, kind, a, b, [alpha] * len(labels))
        assert model.log_evidence_ > joint - 1e-9
    assert model.log_evidence_ < 0.0


@every_fit
def test_trace_has_a_record_of_every_sweep(kind, inference):
    trace = fitted(kind, inference).trace_
    keys = ["sweep", "change", "leave_one_out", "bound", "row_clusters", "column_clusters"]
    assert all(list(report) == [*keys, "seconds", "moved"] for report in trace)
    trace = [{name: x for name, x in report.items() if name != "moved"} for report in trace]
    assert [report["sweep"] for report in trace] == list(range(1, len(trace) + 1))
    assert np.isfinite([list(report.values()) for report in trace]).all()
    seconds = [report["seconds"] for report in trace]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0.0
    for report in trace:
        assert 1 <= report["row_clusters"] <= len(planted(kind))
        assert 0.0 <= report["change"] <= 2.0


@pytest.mark.parametrize("kind", ["directed", "undirected"])
def test_rows_and_columns_of_one_domain_share_attributes(kind):
    model = fitted(kind, "acvb0")
    assert model.row_labels_ is model.column_labels_
    assert model.row_membership_ is model.column_membership_
    assert model.labels_ is model.row_labels_


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_those_of_the_rows(kind):
    model = fitted(kind, "acvb0")
    assert_array_equal(model.labels_, model.row_labels_)


def test_undirected_blocks_are_symmetric():
    model = fitted("undirected", "acvb0")
    for table in (model.block_links_, model.block_cells_, model.block_probability_):
        assert_allclose(table, table.T, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_biclusters_are_the_blocks(kind):
    model, X = best(kind), np.nan_to_num(planted(kind), nan=0.0)
    K1, K2 = model.block_probability_.shape
    assert (K1, K2) != (1, 1)
    assert model.rows_.shape == (K1 * K2, X.shape[0])
    assert model.columns_.shape == (K1 * K2, X.shape[1])
    assert model.rows_.dtype == model.columns_.dtype == bool
    covered = np.einsum("bi,bj->ij", model.rows_.astype(int), model.columns_.astype(int))
    assert_array_equal(covered, 1)  # every cell is in one block
    assert consensus_score(model.biclusters_, (model.rows_, model.columns_)) == pytest.approx(1)
    for number in range(K1 * K2):
        k, l = divmod(number, K2)
        rows, columns = model.get_indices(number)
        assert_array_equal(rows, np.flatnonzero(model.row_labels_ == k))
        assert_array_equal(columns, np.flatnonzero(model.column_labels_ == l))
        assert model.get_shape(number) == (rows.size, columns.size)
        assert_array_equal(model.get_submatrix(number, X), X[np.ix_(rows, columns)])


@pytest.mark.parametrize("kind", KINDS)
def test_planted_blocks_are_found(kind):
    """The tests of prediction below assume it."""
    model = best(kind)
    truth = TRUE_ROWS if kind == "bipartite" else TRUE_OBJECTS
    assert adjusted_rand_score(model.row_labels_, truth) > 0.9


# Parameters


def test_parameters_are_kept_as_given():
    given = {"max_clusters": [3, 4], "tol": 1, "callback": print, "random_state": 7}
    model = IRM("directed", **given)
    assert {name: model.get_params()[name] for name in given} == given
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert (twin.relation, twin.random_state) == ("directed", 7)
    assert model.set_params(inference="vb", relation="bipartite") is model
    assert (model.inference, model.relation) == ("vb", "bipartite")
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(clusters=3)


def test_constructor_does_not_validate_or_fit():
    assert not [name for name in vars(IRM(inference="nonsense")) if name.endswith("_")]


@pytest.mark.parametrize("kind", KINDS)
def test_pickled_model_has_the_same_bits(kind):
    model = fitted(kind, "gibbs")
    twin = pickle.loads(pickle.dumps(model))
    assert_same_bits(twin, model)
    rows = np.arange(3)
    assert_array_equal(twin.link_probability(rows, rows), model.link_probability(rows, rows))
    assert_array_equal(twin.predict(planted(kind)), model.predict(planted(kind)))
    assert twin.summary() == model.summary()


def test_list_of_two_numbers_of_clusters_is_a_pair():
    one = fit("bipartite", "cvb0", max_clusters=[2, 3])
    assert_same_bits(one, fit("bipartite", "cvb0", max_clusters=(2, 3)))
    assert one.trace_[0]["row_clusters"] <= 2
    assert one.trace_[0]["column_clusters"] <= 3


@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize("init", ["spectral", "random"])
@pytest.mark.parametrize("inference", DETERMINISTIC)
def test_max_clusters_is_never_exceeded(inference, init, refine):
    model = fit("bipartite", inference, max_clusters=(2, 1), init=init, refine=refine)
    assert model.row_membership_.shape[1] <= 2
    assert model.column_membership_.shape[1] == 1
    assert max(sweep["row_clusters"] for sweep in model.trace_) <= 2


def test_labels_with_more_clusters_than_allowed_are_refused_or_merged():
    refusal, start = "", (TRUE_ROWS, TRUE_COLUMNS)
    try:
        model = fit("bipartite", "acvb0", max_clusters=(2, 1), init=start)
    except ValueError as error:
        refusal = str(error)
    assert "max_clusters" in refusal if refusal else model.row_membership_.shape[1] <= 2


def test_prior_per_block():
    model = fit("bipartite", "acvb0", prior="per-block", n_init=6, max_iter=500)
    a, b = model.block_prior_
    assert a.shape == b.shape == model.block_probability_.shape
    assert a.size > 1
    assert np.ptp(a) > 0.01
    n, N = model.block_links_, model.block_cells_ - model.block_links_
    assert_allclose(model.block_probability_, (a + n) / (a + b + n + N), rtol=1e-12)


@every_fit
def test_fixed_hyperparameters_keep_their_initial_values(kind, inference):
    model = fit(kind, inference, hyperparameters="fixed", max_iter=10)
    density = Relation.build(planted(kind), kind=kind).density
    assert set(model.concentration_) == {1.0}
    assert_allclose(model.block_prior_, (density, 1.0 - density), rtol=1e-12)
    learnt = fit(kind, inference, max_iter=10)
    assert abs(learnt.block_prior_[0] - density) > 1e-3
    assert learnt.concentration_[0] != 1.0


@every_fit
def test_given_hyperparameters_stay_where_they_are_fixed(kind, inference):
    given = {"block_prior": (0.7, 2.1), "concentration": (1.5, 0.4)}
    model = fit(kind, inference, hyperparameters="fixed", max_iter=60, **given)
    assert model.block_prior_ == (0.7, 2.1)
    assert model.concentration_ == (1.5, 0.4)[: len(model.concentration_)]
    from_there = fit(kind, inference, max_iter=60, **given)
    assert from_there.block_prior_ != (0.7, 2.1)


def test_hyperprior_of_the_concentration_is_that_given():
    few, many = (
        fit("bipartite", "gibbs", hyperprior=hyperprior, max_iter=60).concentration_[0]
        for hyperprior in ((1.0, 1000.0), (1000.0, 1.0))
    )
    assert few < 0.1
    assert many > 10.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"block_prior": (1.0, 0.0)}, "block_prior must be finite and 1e-08 to 1e\\+08, but is 0"),
        ({"block_prior": 1.0}, "block_prior must be a pair of positive numbers, but is 1.0"),
        ({"concentration": -1.0}, "concentration must be finite"),
        ({"concentration": "much"}, "concentration must be a number, but is 'much'"),
        ({"hyperprior": (1.0, 1.0, 1.0)}, "hyperprior must be a pair"),
        ({"block_hyperprior": (1.0, -1.0)}, "block_hyperprior must be finite"),
    ],
)
def test_impossible_hyperparameters_are_refused(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        IRM(**given).fit(np.eye(3))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"refine": "no"}, "refine must be True or False, but is 'no'"),
        ({"n_jobs": "two"}, "n_jobs must be None, a number of threads, or -1.*'two'"),
        ({"n_jobs": 0}, "n_jobs must be None, a number of threads, or -1.*0"),
        ({"n_jobs": True}, "n_jobs must be None, a number of threads, or -1.*True"),
    ],
)
def test_flags_and_numbers_of_threads_are_checked(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        IRM(**given).fit(np.eye(3))


def test_fixed_point_of_the_paper_learns_more_slowly_than_newton():
    """Both rules move the prior, but the fixed point less far in ten sweeps."""
    density = Relation.build(planted("bipartite")).density
    rules = ("fixed-point", "newton")
    slow, fast = (
        fit("bipartite", "cvb0", hyperparameters=rule, max_iter=10, **PLAIN) for rule in rules
    )
    steps = [abs(np.log(model.block_prior_[0] / density)) for model in (slow, fast)]
    assert 0.0 < steps[0] < steps[1]


def test_variance_of_the_paper_gives_another_trace():
    exact, paper = (fit("bipartite", "cvb", variance=name, **PLAIN) for name in ("exact", "paper"))
    assert exact.trace_[-1]["bound"] != paper.trace_[-1]["bound"]


@pytest.mark.parametrize("inference", ["acvb0", "gibbs"])
def test_best_of_several_starts_is_kept(inference, monkeypatch):
    evidences, run = [], Start.run

    def record_evidence(self, *args, **kwargs):
        result = run(self, *args, **kwargs)
        evidences.append(result.log_evidence)
        return result

    monkeypatch.setattr(Start, "run", record_evidence)
    model = fit("bipartite", inference, n_init=6, **PLAIN)
    assert len(evidences) == 6
    assert len(set(evidences)) > 1, "all starts ended with the same evidence"
    assert model.log_evidence_ == max(evidences)


# Warm start, callback, stop rule


def test_warm_start_continues_from_the_last_fit():
    model = IRM(inference="cvb0", max_clusters=5, max_iter=8, tol=0, random_state=3, **PLAIN)
    model.set_params(warm_start=True).fit(planted("bipartite"))
    first = model.trace_
    model.fit(planted("bipartite"))
    assert model.trace_[0]["change"] < 0.5 * first[0]["change"]
    assert model.trace_[-1]["bound"] > first[-1]["bound"] - 0.01 * abs(first[-1]["bound"])
    cold = clone(model).set_params(warm_start=False)
    assert cold.fit(planted("bipartite")).trace_[0]["change"] == first[0]["change"]


def test_warm_start_refuses_another_relation():
    model = IRM(warm_start=True, max_iter=2, tol=0, random_state=0).fit(planted("directed"))
    with pytest.raises(ValueError, match=r"\(25, 25\).*\(24, 25\).*warm_start=False"):
        model.fit(planted("directed")[1:])
    with pytest.raises(ValueError, match=r"bipartite.*directed.*warm_start=False"):
        model.set_params(relation="directed").fit(planted("directed"))
    model.set_params(warm_start=False).fit(planted("directed")[:10, :10])
    assert model.row_labels_.size == 10


@pytest.mark.parametrize("inference", INFERENCES)
def test_fit_without_warm_start_ignores_the_last_fit(inference):
    model = fit("bipartite", inference, X=planted("bipartite")[::2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(planted("bipartite"))
    assert_same_bits(model, fitted("bipartite", inference))


@pytest.mark.parametrize("inference", INFERENCES)
def test_callback_is_called_once_for_each_sweep(inference):
    records = []
    model = fit("bipartite", inference, callback=records.append)
    assert all(isinstance(record, SweepRecord) for record in records)
    assert [record.as_dict() for record in records] == model.trace_
    assert_same_bits(model, fitted("bipartite", inference))


@pytest.mark.parametrize("inference", INFERENCES)
def test_callback_can_stop_the_fit(inference):
    model = fit("bipartite", inference, callback=lambda sweep: sweep.sweep == 3)
    assert model.n_iter_ == 3
    assert not model.converged_
    assert_allclose(model.row_membership_.sum(axis=1), 1.0)
    assert np.isfinite(model.link_probability(0, np.arange(5))).all()


@pytest.mark.parametrize(("answer", "sweeps"), [(np.True_, 1), (None, 4), (0, 4), ("go on", 4)])
def test_only_true_stops_the_fit(answer, sweeps):
    model = fit("bipartite", "cvb0", callback=lambda _sweep: answer, tol=0, max_iter=4)
    assert model.n_iter_ == sweeps


def test_verbose_writes_a_line_for_each_sweep_to_standard_error(capsys):
    records = []
    model = fit("bipartite", "cvb0", verbose=1, callback=records.append)
    output = capsys.readouterr()
    lines = output.err.splitlines()
    assert output.out == ""
    assert len(lines) == len(records) == model.n_iter_
    assert lines[0].startswith("sweep 1: change ")
    assert f"{model.trace_[-1]['change']:.2e}" in lines[-1]
    fit("bipartite", "cvb0")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("inference", "settings"),
    [
        *((inference, PLAIN) for inference in INFERENCES),
        *((inference, {}) for inference in ("acvb", "cvb", "vb", "gibbs")),
    ],
)
def test_tolerance_zero_runs_all_sweeps_without_a_warning(inference, settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = IRM(inference=inference, tol=0, max_iter=90, max_clusters=4, random_state=0)
        model.set_params(**settings).fit(planted("bipartite"))
    assert (model.n_iter_, model.converged_) == (90, False)


@pytest.mark.parametrize("inference", ["acvb0", "cvb0"])
def test_tolerance_zero_ends_with_the_posterior_average(inference):
    """Its phases end by themselves, so the fit has converged."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = IRM(inference=inference, tol=0, random_state=0).fit(planted("bipartite"))
        short = IRM(inference=inference, tol=0, max_iter=3, random_state=0)
        short.fit(planted("bipartite"))
    assert model.converged_
    assert model.n_iter_ < model.max_iter
    assert (short.n_iter_, short.converged_) == (3, False)


@pytest.mark.parametrize("inference", DETERMINISTIC)
def test_fit_that_ends_at_max_iter_warns_with_advice(inference):
    advice = r"not converged after 3 sweeps.*tol is 1e-09.*Raise max_iter \(now 3\) or tol"
    model = IRM(inference=inference, refine=False, tol=1e-9, max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match=advice):
        model.fit(planted("bipartite"))
    assert not model.converged_


def test_warning_points_at_the_line_of_the_caller():
    with pytest.warns(ConvergenceWarning) as caught:
        IRM(max_iter=2, random_state=0).fit(planted("bipartite"))
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("inference", DETERMINISTIC)
def test_fit_stops_when_it_has_converged(inference):
    X = planted("directed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = IRM("directed", inference=inference, max_clusters=5, random_state=3).fit(X)
    assert model.converged_
    assert model.n_iter_ < 500
    if inference in {"acvb", "cvb", "cvb0"}:  # VB looks at its bound, ACVB0 ends with samples
        assert model.trace_[-1]["change"] < 1e-5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_default_fit_converges_on_perfect_blocks():
    X = np.kron(np.eye(2), np.ones((30, 20)))
    models = [IRM(random_state=number).fit(X) for number in range(5)]
    assert all(model.block_probability_.shape == (2, 2) for model in models)
    assert [model.converged_ for model in models].count(True) >= 4


def test_vb_converges_if_the_bound_stays_zero():
    """No cell is observed, so the log evidence is 0 and its relative change 0 / 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = IRM(inference="vb", random_state=0).fit(np.full((5, 5), NAN))
    assert model.converged_


def test_ties_in_the_gibbs_average_leave_no_gap_between_clusters():
    """An object can be in each of two clusters for half of the kept sweeps."""
    X = (np.random.default_rng(5).random((8, 7)) < 0.4).astype(float)
    for seed in range(40):
        model = IRM(inference="gibbs", max_iter=4, random_state=seed).fit(X)
        assert np.isfinite(model.log_evidence_)
        for label, q in (
            (model.row_labels_, model.row_membership_),
            (model.column_labels_, model.column_membership_),
        ):
            sizes = np.bincount(label)
            assert (sizes > 0).all()
            assert (np.diff(sizes) <= 0).all()
            assert_array_equal(q[np.arange(label.size), label], q.max(axis=1))
            assert (q.sum(axis=0) > 0).all()


# New rows


def test_training_rows_are_predicted_to_be_in_their_clusters():
    model, X = best("bipartite"), planted("bipartite")
    assert_array_equal(model.predict(X), model.row_labels_)
    assert model.predict(X).dtype.kind == "i"


def log_prior_of_new_rows(model: IRM) -> np.ndarray:
    """Return that of the fit: sticks for a plain method, the CRP after a search and for Gibbs."""
    sizes, sticks = counted_memberships(model)[0].sum(axis=0), model.result_.sticks
    if model.refine or model.inference == "gibbs":
        assert sticks is None
        return np.log(np.maximum(sizes, 1e-300))
    in_order = reference.stick_log_prior(sizes[sticks[0]], model.concentration_[0])
    return in_order[np.argsort(sticks[0])]


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_get_the_update_with_all_counts_fixed(kind, inference):
    refine = inference in {"acvb0", "cvb0", "gibbs"}
    model, X = fit(kind, inference, refine=refine), planted(kind)
    q = counted_memberships(model)
    cells, observed = dense(X, kind)
    n, N = reference.counts(cells, observed, q, kind)
    a, b = model.block_prior_
    new = np.random.default_rng(1).choice([0.0, 1.0, NAN], (4, X.shape[1]))
    log_prior = log_prior_of_new_rows(model)
    for row, found in zip(new, model.predict_membership(new), strict=True):
        n_plus, N_plus = (row == 1.0) @ q[-1], (row == 0.0) @ q[-1]
        gain = betaln(a + n + n_plus, b + N + N_plus) - betaln(a + n, b + N)
        assert_allclose(found, softmax(log_prior + gain.sum(axis=1)), rtol=1e-8, atol=1e-12)


def test_unseen_cells_of_new_rows_are_left_out():
    model = best("bipartite")
    row = np.where(TRUE_COLUMNS == 0, 1.0, 0.0)[None]
    half_seen = np.where(np.arange(row.size) % 2, NAN, row)
    hidden = sparse.csr_array(np.isnan(half_seen))
    by_nan = model.predict_membership(half_seen)
    by_mask = model.predict_membership(np.nan_to_num(half_seen, nan=0.0), unseen=hidden)
    assert_array_equal(by_nan, by_mask)
    assert model.predict(half_seen) == model.predict(row)
    as_zeros = model.predict_membership(np.nan_to_num(half_seen, nan=0.0))
    assert np.abs(as_zeros - by_nan).max() > 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_new_row_without_observed_cells_gets_the_prior(kind):
    model = best(kind)
    prior = softmax(log_prior_of_new_rows(model))
    found = model.predict_membership(np.full((2, model.n_features_in_), NAN))
    assert_allclose(found, [prior, prior], rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_do_not_depend_on_each_other_or_change_the_model(kind):
    model, X = best(kind), planted(kind)
    before = pickle.dumps([getattr(model, name) for name in ARRAYS])
    expected = model.predict_membership(X)
    order = np.random.default_rng(2).permutation(len(X))
    assert_array_equal(model.predict_membership(X[order]), expected[order])
    assert_array_equal(model.predict_membership(X[5:6]), expected[5:6])
    as_sparse = sparse.csr_array(np.nan_to_num(X, nan=0.0))
    hidden = sparse.csr_array(np.isnan(X))
    assert_array_equal(model.predict_membership(as_sparse, unseen=hidden), expected)
    assert_array_equal(model.predict_membership(Relation.build(X)), expected)
    assert_allclose(expected.sum(axis=1), 1.0, rtol=1e-12)
    assert pickle.dumps([getattr(model, name) for name in ARRAYS]) == before


@pytest.mark.parametrize("columns", [19, 21])
@pytest.mark.parametrize("make", [np.ones, lambda shape: sparse.csr_array(np.ones(shape))])
def test_new_rows_must_have_the_fitted_columns(make, columns):
    with pytest.raises(ValueError, match=rf"{columns} features.*20"):
        best("bipartite").predict(make((2, columns)))


def test_relation_of_new_rows_must_have_the_fitted_columns():
    with pytest.raises(ValueError, match=r"19.*20|20.*19"):
        best("bipartite").predict(Relation.build(np.ones((2, 19))))


@pytest.mark.parametrize("method", ["predict", "predict_membership", "summary"])
def test_methods_need_a_fit(method):
    arguments = [] if method == "summary" else [np.eye(3)]
    with pytest.raises(NotFittedError):
        getattr(IRM(), method)(*arguments)
    with pytest.raises(NotFittedError):
        IRM().link_probability(0, 0)


# Links


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inference", DETERMINISTIC)
def test_link_probabilities_equal_the_definition(kind, inference):
    model = fitted(kind, inference)
    X, observed = dense(planted(kind), kind)
    expected = reference.link_probability(
        X, observed, memberships(model), kind, *model.block_prior_
    )
    rows, columns = np.indices(X.shape)
    found = model.link_probability(rows, columns)
    assert_allclose(found, expected, rtol=1e-9)
    assert ((found > 0.0) & (found < 1.0)).all()


@pytest.mark.parametrize("inference", ["acvb0", "vb", "gibbs"])
def test_self_links_can_be_data(inference):
    X = planted("directed")
    np.fill_diagonal(X, TRUE_OBJECTS == 0)
    X[3, 3] = NAN
    model = fit("directed", inference, X=Relation.build(X, kind="directed", self_links=True))
    observed = (~np.isnan(X)).astype(float)
    n, N = reference.counts(np.nan_to_num(X), observed, counted_memberships(model), "directed")
    assert_allclose(model.block_links_, n, rtol=1e-9, atol=1e-9)
    assert_allclose(model.block_cells_, n + N, rtol=1e-9, atol=1e-9)
    assert model.block_cells_.sum() == pytest.approx(observed.sum())


def test_positions_are_broadcast():
    model = best("bipartite")
    whole = model.link_probability(np.arange(29)[:, None], np.arange(20))
    assert whole.shape == (29, 20)
    assert_allclose(model.link_probability([3, 5], 7), whole[[3, 5], 7], rtol=1e-12)
    assert_allclose(model.link_probability([3, 5], [7, 1]), whole[[3, 5], [7, 1]], rtol=1e-12)
    single = model.link_probability(3, 7)
    assert np.shape(single) == ()
    assert_allclose(single, whole[3, 7], rtol=1e-12)
    with pytest.raises(ValueError, match="broadcast"):
        model.link_probability([1, 2], [1, 2, 3])


def test_empty_positions_give_empty_probabilities():
    assert best("bipartite").link_probability([], []).shape == (0,)


def test_scores_do_not_depend_on_the_chunk_size(monkeypatch):
    model = best("bipartite")
    whole = model.link_probability(np.arange(29)[:, None], np.arange(20))
    monkeypatch.setattr(coblock.analysis.prediction, "CHUNK", 7)
    chunked = model.link_probability(np.arange(29)[:, None], np.arange(20))
    assert_allclose(chunked, whole, rtol=1e-12)


@pytest.mark.parametrize(
    ("rows", "columns", "error", "words"),
    [
        ([0, -1], 0, ValueError, r"1 of 2 row positions .* 0 to 28; the first is -1"),
        ([29], 0, ValueError, r"1 of 1 row positions .* 0 to 28; the first is 29"),
        (0, [3, 20, 21], ValueError, r"2 of 3 column positions .* 0 to 19; the first is 20"),
        ([0.0], 0, TypeError, r"rows must be positions .* float64"),
        (0, [True], TypeError, r"columns must be positions .* bool"),
        ("first", 0, TypeError, r"rows must be positions"),
        (None, 0, TypeError, r"rows must be positions"),
    ],
)
def test_positions_that_do_not_exist_are_refused(rows, columns, error, words):
    with pytest.raises(error, match=words):
        best("bipartite").link_probability(rows, columns)


def test_gibbs_averages_link_probabilities_over_its_samples():
    model = fitted("directed", "gibbs")
    samples = model.result_.samples
    assert len(samples) == 20  # the second half of 40 sweeps
    rows, columns = np.indices((25, 25))
    average = np.mean(
        [sample.probability[np.ix_(sample.labels[0], sample.labels[0])] for sample in samples],
        axis=0,
    )
    found = model.link_probability(rows, columns)
    assert_allclose(found, average, rtol=1e-12)
    plug_in = model.row_membership_ @ model.block_probability_ @ model.row_membership_.T
    assert np.abs(found - plug_in).max() > 1e-3


def test_gibbs_keeps_the_second_half_of_its_sweeps():
    """One of two sweeps is kept, so memberships are 0 or 1; twenty of forty are kept."""
    noise = (np.random.default_rng(1).random((12, 10)) < 0.4).astype(float)
    found = {
        most: np.concatenate(
            [
                fit(
                    "bipartite", "gibbs", X=noise, max_iter=most, random_state=seed
                ).row_membership_.ravel()
                for seed in range(8)
            ]
        )
        for most in (2, 40)
    }
    assert set(found[2]) == {0.0, 1.0}
    assert len(set(found[40])) > 2


@pytest.mark.parametrize("inference", ["acvb0", "gibbs"])
def test_score_is_the_mean_log_probability(inference):
    model = fitted("bipartite", inference)
    rows, columns = np.nonzero(~np.isnan(planted("bipartite")))
    values = planted("bipartite")[rows, columns]
    p = model.link_probability(rows, columns)
    expected = np.mean(values * np.log(p) + (1.0 - values) * np.log1p(-p))
    assert model.score_links(rows, columns, values) == pytest.approx(expected, rel=1e-12)
    assert model.score_links(rows, columns, values > 0) == pytest.approx(expected, rel=1e-12)
    assert model.score_links(rows, columns, 1 - values) < expected


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0], r"values has shape \(1,\).* \(2,\).*one value for each cell"),
        ([0.5, 2.0], r"values must be 0 or 1, but 2 of 2 are not; the first is 0.5"),
        ([1.0, NAN], r"1 of 2 are not; the first is nan"),
    ],
)
def test_invalid_values_to_score_are_refused(values, words):
    with pytest.raises(ValueError, match=words):
        best("bipartite").score_links([0, 1], [0, 1], values)


def test_score_without_cells_is_refused():
    nothing = np.zeros(0, dtype=int)
    with pytest.raises(ValueError, match="at least one cell"):
        best("bipartite").score_links(nothing, nothing, nothing)


# Odd shapes


ODD = {
    "nothing observed": np.full((5, 5), NAN),
    "no links": np.zeros((5, 5)),
    "all links": np.ones((5, 5)) - np.eye(5),
    "one link": np.eye(5, k=1) * np.eye(5)[0][:, None],
    "one pair observed": np.where(np.abs(np.subtract.outer(range(5), range(5))) == 4, 1.0, NAN),
    "two objects": np.array([[0.0, 1.0], [1.0, 0.0]]),
    "one object": np.zeros((1, 1)),
    "one object, unseen": np.full((1, 1), NAN),
}
ODD_BIPARTITE = {
    "one cell, a link": np.ones((1, 1)),
    "one row": np.array([[1.0, 0.0, NAN, 1.0]]),
    "one column": np.array([[1.0], [0.0], [NAN], [1.0]]),
    "all ones": np.ones((3, 6)),
    "a row and a column unseen": np.where(np.add.outer(range(4), range(5)) % 2, 1.0, 0.0)
    + np.where((np.arange(4)[:, None] == 1) | (np.arange(5) == 2), NAN, 0.0),
}


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_odd_relations_fit_without_nan(kind, inference):
    odd = ODD | (ODD_BIPARTITE if kind == "bipartite" else {})
    for name, X in odd.items():
        for settings in ({}, {"max_clusters": 3, "hyperparameters": "fixed-point"}):
            model = IRM(kind, inference=inference, max_iter=12, random_state=0, **settings).fit(X)
            for attribute in ARRAYS:
                assert np.isfinite(getattr(model, attribute)).all(), (name, attribute)
            assert np.isfinite([list(sweep.values()) for sweep in model.trace_]).all(), name
            assert_allclose(model.row_membership_.sum(axis=1), 1.0)
            assert (np.bincount(model.row_labels_) > 0).all()
            p = model.link_probability(*np.indices(X.shape))
            assert ((p > 0.0) & (p < 1.0)).all(), name
            assert np.isfinite(model.predict_membership(X)).all(), name
            assert model.summary()


@pytest.mark.parametrize("inference", DETERMINISTIC)
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_odd_relations_fit_with_a_prior_per_block(inference):
    for X in (ODD | ODD_BIPARTITE).values():
        model = IRM(inference=inference, prior="per-block", max_iter=12, random_state=0).fit(X)
        assert np.isfinite(model.block_probability_).all()
        assert np.isfinite(model.block_prior_).all()
