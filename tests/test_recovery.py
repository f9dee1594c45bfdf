"""Planted blocks are found, and none where there are none; fixed thresholds, several seeds."""

import numpy as np
import pytest

from coblock import IRM
from coblock.analysis.evaluation import hold_out
from coblock.generate import synth1, synth2

SEEDS = range(5)
PAPER = {"init": "random", "max_clusters": 20}


def gap_to_truth(draw, seed: int, **parameters) -> float:
    """Return the held-out log likelihood per cell minus that of the true model."""
    drawn = draw(seed)
    held = hold_out(drawn.X, 0.1, seed)
    model = IRM(random_state=seed, **parameters).fit(held.X, unseen=held.unseen)
    cells = (held.rows, held.columns, held.values)
    return model.score_links(*cells) - drawn.log_likelihood(*cells)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("draw", "inference", "seeds"),
    [(synth1, "acvb0", 5), (synth1, "acvb", 5), (synth2, "acvb0", 5), (synth2, "acvb", 2)],
    ids=["synth1-acvb0", "synth1-acvb", "synth2-acvb0", "synth2-acvb"],
)
def test_averaged_methods_are_within_0_005_of_the_true_model(draw, inference, seeds):
    gaps = [gap_to_truth(draw, seed, inference=inference, **PAPER) for seed in range(seeds)]
    assert np.mean(gaps) > -0.005


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("draw", "inference", "max_iter"),
    [(synth1, "vb", 500), (synth2, "vb", 500), (synth1, "gibbs", 300), (synth2, "gibbs", 60)],
    ids=["synth1-vb", "synth2-vb", "synth1-gibbs", "synth2-gibbs"],
)
def test_vb_and_gibbs_are_within_0_05_of_the_true_model(draw, inference, max_iter):
    gaps = [
        gap_to_truth(draw, seed, inference=inference, max_iter=max_iter, **PAPER) for seed in SEEDS
    ]
    assert np.mean(gaps) > -0.05


def test_shuffled_relation_is_far_from_the_true_model():
    """Negative control: the links of each row are shuffled, so no column clusters exist."""
    drawn = synth1(0)
    held = hold_out(drawn.X, 0.1, 0)
    rng = np.random.default_rng(0)
    shuffled = held.X.toarray()
    for row in shuffled:
        rng.shuffle(row)
    shuffled[held.unseen.toarray() > 0] = np.nan
    model = IRM(random_state=0, max_iter=50, tol=0, **PAPER).fit(shuffled)
    cells = (held.rows, held.columns, held.values)
    assert model.score_links(*cells) - drawn.log_likelihood(*cells) < -0.05


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("inference", ["acvb0", "acvb", "vb", "cvb0"])
@pytest.mark.parametrize("seed", [0, 1])
def test_random_links_give_one_cluster(inference, seed):
    X = (np.random.default_rng(seed).random((60, 80)) < 0.3).astype(float)
    model = IRM(inference=inference, random_state=seed, max_iter=300, **PAPER).fit(X)
    assert model.block_probability_.shape == (1, 1)
    assert model.block_probability_[0, 0] == pytest.approx(X.mean(), abs=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_link_probabilities_are_calibrated():
    """Of the cells predicted with probability p, the fraction p are links."""
    drawn = synth2(1)
    held = hold_out(drawn.X, 0.1, 1)
    model = IRM(random_state=1, max_iter=80, **PAPER).fit(held.X, unseen=held.unseen)
    p = model.link_probability(held.rows, held.columns)
    for low in np.arange(0.0, 1.0, 0.2):
        chosen = (p >= low) & (p < low + 0.2)
        if chosen.sum() > 500:
            assert held.values[chosen].mean() == pytest.approx(p[chosen].mean(), abs=0.03)
