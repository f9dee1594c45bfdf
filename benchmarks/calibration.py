"""Calibration of default fits, and their predictions beside long Gibbs chains: docs/quality.md."""

from collections.abc import Iterator
from time import process_time

import numpy as np
from data import Trial

from coblock import IRM

BINS = 10  # of equal count
PICKS = 20  # samples that stand for the truth
SHAPE = (120, 100)  # of relations drawn from the model
PRIOR = (4.0, 12.0)  # a and b of their blocks
GIBBS_SWEEPS = 3000
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
    """Compare held-out scores of default fits with those of long Gibbs chains."""
    yield (
        "| relation | default | Gibbs, 3,000 sweeps | ratio of the losses | samples | "
        "CPU seconds, default | Gibbs |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name in [name for name in MONTHS if name in names]:
        rows = []
        for seed in range(draws):
            trial = Trial.draw(name, seed)
            line = []
            for settings in ({}, {"inference": "gibbs", "max_iter": GIBBS_SWEEPS}):
                began = process_time()
                model = IRM(random_state=seed, **settings).fit(trial.X, unseen=trial.unseen)
                line += [model.score_links(*trial.cells), process_time() - began]
                line.append(len(model.result_.samples))
            rows.append(line)
        ours, seconds, samples, gibbs, of_gibbs, _ = np.mean(rows, axis=0)
        yield (
            f"| {name} | {ours:.5f} | {gibbs:.5f} | {ours / gibbs:.3f} | {samples:.0f} | "
            f"{seconds:.1f} | {of_gibbs:.1f} |"
        )


def cells(draws: int, names: list[str]) -> Iterator[str]:
    """Compare predicted and true rates of links among held-out cells."""
    yield "| relation | calibration error by base rate | base rate |"
    yield "|---|---|---|"
    for name in [name for name in CELLS if name in names]:
        said, true = [], []
        for seed in range(draws):
            trial = Trial.draw(name, seed)
            model = IRM(random_state=seed).fit(trial.X, unseen=trial.unseen)
            said.append(model.link_probability(trial.rows, trial.columns))
            true.append(trial.values)
        p, t = np.concatenate(said), np.concatenate(true).astype(float)
        yield f"| {name} | {calibration_error(p, t) / t.mean():.3f} | {t.mean():.4f} |"


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
