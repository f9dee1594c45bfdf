"""The tests of the estimator's contract, run with the data on a cluster."""

import logging
import pickle
import tempfile
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

pytest.importorskip("distributed")

from distributed import Client, LocalCluster

import test_estimator as contract
from coblock.distributed import DistributedIRM
from coblock.inference import search


class OnCluster(DistributedIRM):
    """Writes the arrays of the contract's tests to a folder and fits them from there."""

    def fit(self, X, y=None, *, unseen=None):
        rows, columns = (
            axis.ravel() for axis in np.indices(X.shape)
        )  # so that names are numbered in this order
        values = pl.Series(X.ravel(), nan_to_null=True)
        with tempfile.TemporaryDirectory() as folder:
            frame = pl.DataFrame({"row": rows, "column": columns, "value": values})
            frame.write_parquet(Path(folder, "edges.parquet"))
            super().fit(folder, y, unseen=unseen)
        return self


def make(relation="bipartite", **parameters):
    return OnCluster(relation=relation, value="value", **{"batch_size": 12} | parameters)


@pytest.fixture(scope="module", autouse=True)
def cluster(short_chains_in_file):
    """Start two workers in this process: the tests concern the interface, not processes."""
    options = {"processes": False, "n_workers": 2, "threads_per_worker": 1}
    options |= {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with (
        LocalCluster(**options) as running,
        Client(running) as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(search, "SEARCH", replace(search.SEARCH, most_failures=4))
        patch.setattr(contract, "IRM", make)
        patch.setattr(contract, "fit", partial(contract.fit, max_iter=15))
        patch.setattr(contract, "fitted", cache(contract.fit))
        best = partial(contract.fit, inference="acvb0", n_init=2)
        patch.setattr(contract, "best", cache(best))
        yield client


@pytest.mark.parametrize("inference", ["acvb0", "cvb0"])
@pytest.mark.parametrize(
    "check",
    [
        contract.test_attributes_have_their_shapes_and_types,
        contract.test_labels_are_the_most_probable_clusters,
        contract.test_blocks_are_the_counts_of_the_memberships,
        contract.test_log_evidence_is_above_the_joint_at_any_hyperparameters,
        contract.test_trace_has_a_record_of_every_sweep,
        contract.test_same_seed_gives_same_bits,
        contract.test_new_rows_get_the_update_with_all_counts_fixed,
        contract.test_link_probabilities_equal_the_definition,
    ],
)
def test_attributes_of_every_fit(check, inference):
    check("bipartite", inference)


@pytest.mark.parametrize(
    "check",
    [
        contract.test_another_seed_gives_another_trace,
        contract.test_fit_without_warm_start_ignores_the_last_fit,
        contract.test_callback_is_called_once_for_each_sweep,
        contract.test_callback_can_stop_the_fit,
        contract.test_tolerance_zero_ends_with_the_posterior_average,
        contract.test_fit_that_ends_at_max_iter_warns_with_advice,
        contract.test_score_is_the_mean_log_probability,
    ],
)
def test_course_and_end_of_a_fit(check):
    check("acvb0")


def test_tolerance_zero_runs_all_sweeps_of_a_plain_method():
    check = contract.test_tolerance_zero_runs_all_sweeps_without_a_warning
    check("acvb0", contract.PLAIN)


@pytest.mark.parametrize(
    "check",
    [
        contract.test_biclusters_are_the_blocks,
        contract.test_planted_blocks_are_found,
        contract.test_new_row_without_observed_cells_gets_the_prior,
        contract.test_new_rows_do_not_depend_on_each_other_or_change_the_model,
    ],
)
def test_results_of_a_good_fit(check):
    check("bipartite")


@pytest.mark.parametrize(
    "check",
    [
        contract.test_counting_unseen_cells_as_zeros_gives_other_blocks,
        contract.test_parameters_are_kept_as_given,
        contract.test_constructor_does_not_validate_or_fit,
        contract.test_list_of_two_numbers_of_clusters_is_a_pair,
        contract.test_warm_start_continues_from_the_last_fit,
        contract.test_training_rows_are_predicted_to_be_in_their_clusters,
        contract.test_unseen_cells_of_new_rows_are_left_out,
        contract.test_relation_of_new_rows_must_have_the_fitted_columns,
        contract.test_positions_are_broadcast,
        contract.test_empty_positions_give_empty_probabilities,
        contract.test_score_without_cells_is_refused,
    ],
)
def test_parts_without_parameters(check):
    check()


@pytest.mark.parametrize("method", ["predict", "predict_membership", "summary"])
def test_methods_need_a_fitted_model(method):
    contract.test_methods_need_a_fit(method)


def test_verbose_writes_a_line_for_each_sweep_to_standard_error(capsys):
    contract.test_verbose_writes_a_line_for_each_sweep_to_standard_error(capsys)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_model_with_a_client_is_cloned_and_pickled(cluster):
    model = make(client=cluster, max_iter=2, random_state=0).fit(contract.planted("bipartite"))
    twin = clone(model)
    assert twin.client is cluster
    assert not hasattr(twin, "row_labels_")
    again = pickle.loads(pickle.dumps(model))
    contract.assert_same_bits(again, model)
    assert again.client == cluster.scheduler.address
    assert again.summary() == model.summary()


def test_the_warning_points_at_the_users_line(tmp_path):
    pl.DataFrame({"row": [0, 0, 1, 2], "column": [0, 1, 1, 0]}).write_csv(tmp_path / "edges.csv")
    with pytest.warns(ConvergenceWarning) as caught:
        DistributedIRM(max_iter=1, random_state=0, batch_size=2).fit(tmp_path)
    assert [warning.filename for warning in caught] == [__file__]
