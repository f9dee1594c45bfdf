"""Calibration of default fits, and their predictions beside long Gibbs chains: docs/quality.md."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from time import process_time

import numpy as np
from data import Trial

from coblock import IRM

BINS = 10  # of equal count
PICKS = 20  # samples that stand for the truth
SHAPE = (120, 100)  # of relations drawn from the model
PRIOR = (4.0, 12.0)  # a and b of their blocks
GIBBS_SWEEPS = 3000
SIMULATIONS = 20  # of outcomes that are drawn with the predicted probabilities
MONTHS = ("enron156_200106", "enron156_200108", "enron156_200110", "enron156_200112")
CELLS = (*MONTHS, "lastfm_userxuser", "lastfm_artistxtag")


def pairs(draws: int, _: list[str]) -> Iterator[str]:
    """Compare said and true co-memberships on relations drawn from the model itself.

    So few relations have an error even if the posterior is exact. The column after the error is
    its mean if the truth is one of the samples, drawn for each relation.
    """
    yield "| method | calibration error | with a sample as the truth | said | true | CPU seconds |"
    yield "|---|---|---|---|---|---|"
    methods = {"default": {}, "Gibbs, 2,000 sweeps": {"inference": "gibbs", "max_iter": 2000}}
    for name, settings in methods.items():
        said, true, drawn, seconds = [], [], [], 0.0
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            labels = [draw_crp(size, rng) for size in SHAPE]
            theta = rng.beta(*PRIOR, SHAPE)[np.ix_(*labels)]
            X = (rng.random(SHAPE) < theta).astype(float)
            began = process_time()
            model = IRM(random_state=seed, **settings).fit(X)
            seconds += (process_time() - began) / draws
            samples = model.result_.samples
            picks = [samples[at].labels for at in rng.integers(len(samples), size=PICKS)]
            for d, label in enumerate(labels):
                one, other = np.triu_indices(label.size, 1)
                said.append(model.same_cluster_probability(one, other, columns=d == 1))
                true.append(label[one] == label[other])
                drawn.append(np.array([pick[d][one] == pick[d][other] for pick in picks]))
        p, t = np.concatenate(said), np.concatenate(true).astype(float)
        error = calibration_error(p, t)
        exact = np.mean([calibration_error(p, pick) for pick in np.concatenate(drawn, axis=1)])
        yield (
            f"| {name} | {error:.3f} | {exact:.3f} | {p.mean():.3f} | {t.mean():.3f} | "
            f"{seconds:.1f} |"
        )


def chains(draws: int, names: list[str]) -> Iterator[str]:
    """Compare held-out cells by default fits and by long Gibbs chains: scores and calibration."""
    yield (
        "| relation | default | Gibbs, 3,000 sweeps | ratio of the losses | samples | calibration "
        "error by base rate, default | Gibbs | if calibrated | CPU seconds, default | Gibbs |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name in [name for name in MONTHS if name in names]:
        ours, gibbs = (
            [predict_cells(name, seed, inference) for seed in range(draws)]
            for inference in ("acvb0", "gibbs")
        )
        scores = [np.mean([one.score for one in some]) for some in (ours, gibbs)]
        errors, floor = [relative_error(some) for some in (ours, gibbs)], error_if_calibrated(ours)
        seconds = [np.mean([one.seconds for one in some]) for some in (ours, gibbs)]
        yield (
            f"| {name} | {scores[0]:.5f} | {scores[1]:.5f} | {scores[0] / scores[1]:.3f} | "
            f"{np.mean([one.samples for one in ours]):.0f} | {errors[0]:.3f} | {errors[1]:.3f} | "
            f"{floor:.3f} | {seconds[0]:.1f} | {seconds[1]:.1f} |"
        )


def cells(draws: int, names: list[str]) -> Iterator[str]:
    """Compare predicted and true rates of links among held-out cells.

    So few links have an error even if every probability is right. The column after the error is its
    mean over outcomes that are drawn with the predicted probabilities.
    """
    yield "| relation | links | base rate | calibration error by base rate | if calibrated |"
    yield "|---|---|---|---|---|"
    for name in [name for name in CELLS if name in names]:
        fits = [predict_cells(name, seed) for seed in range(draws)]
        true = np.concatenate([one.true for one in fits])
        yield (
            f"| {name} | {true.sum():.0f} | {true.mean():.4f} | {relative_error(fits):.3f} | "
            f"{error_if_calibrated(fits):.3f} |"
        )


@dataclass(frozen=True)
class PredictedCells:
    """Probabilities of held-out cells by one fit, and their values."""

    said: np.ndarray
    true: np.ndarray
    score: float
    samples: int
    seconds: float  # CPU time of the fit


@cache
def predict_cells(name: str, seed: int, inference: str = "acvb0") -> PredictedCells:
    """Fit without a tenth of the cells and predict them."""
    trial = Trial.draw(name, seed)
    began = process_time()
    sweeps = {"max_iter": GIBBS_SWEEPS} if inference == "gibbs" else {}
    model = IRM(inference=inference, random_state=seed, **sweeps)
    model.fit(trial.X, unseen=trial.unseen)
    seconds, score = process_time() - began, model.score_links(*trial.cells)
    said = model.link_probability(trial.rows, trial.columns)
    samples = len(model.result_.samples)
    return PredictedCells(said, trial.values.astype(float), score, samples, seconds)


def relative_error(fits: list[PredictedCells]) -> float:
    """Return the calibration error of the cells of all fits together, by the rate of links."""
    said, true = (np.concatenate([getattr(one, name) for one in fits]) for name in ("said", "true"))
    return calibration_error(said, true) / true.mean()


def error_if_calibrated(fits: list[PredictedCells]) -> float:
    """Return the mean error if links are drawn with the predicted probabilities."""
    rng, errors = np.random.default_rng(0), []
    for _ in range(SIMULATIONS):
        drawn = [replace(one, true=rng.random(one.said.size) < one.said) for one in fits]
        errors.append(relative_error(drawn))
    return float(np.mean(errors))


def calibration_error(said: np.ndarray, true: np.ndarray) -> float:
    """Return the mean difference of said and true rates in bins of equal count."""
    bins = np.array_split(np.argsort(said, kind="stable"), BINS)
    return float(np.mean([abs(said[some].mean() - true[some].mean()) for some in bins]))


def draw_crp(objects: int, rng: np.random.Generator) -> np.ndarray:
    """Return labels drawn from a Chinese restaurant process with concentration 1."""
    label = np.zeros(objects, dtype=int)
    for i in range(1, objects):
        earlier = rng.integers(i + 1)  # an earlier object, or a new cluster
        label[i] = label[earlier] if earlier < i else label[:i].max() + 1
    return label
