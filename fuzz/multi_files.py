"""Fuzz targets: models and checkpoints of several relations are refused, or fit for use."""

import random
import tempfile
import warnings
from pathlib import Path

import numpy as np
from checkpoint_file import SWEEPS, StopError, _stop
from model_file import resign

from coblock import MultiIRM, Relation, load, resume

SWEEPS_BEFORE = (1, 3, 12, 30)  # at which fits are stopped: starts, search, chain


def relations() -> dict[str, Relation]:
    """Return values of all likelihoods about the same objects; two, one and three places."""
    rng = np.random.default_rng(0)
    z = np.arange(6) % 2
    pairs = [(f"a{i}", f"a{j}") for i in range(6) for j in range(i) if z[i] == z[j]]
    values = [(f"a{i}", f"b{j}", float(rng.normal(z[i]))) for i in range(6) for j in range(3)]
    counts = [(f"a{i}", int(rng.poisson(1 + 4 * z[i]))) for i in range(6)]
    words = [(f"a{i}", f"b{j}", "xyz"[(i + j) % 3]) for i in range(6) for j in range(3)]
    triples = [(f"a{i}", f"b{j}", f"a{(i + 2) % 6}") for i in range(6) for j in range(2)]
    return {
        "pairs": Relation(pairs, {"x": "a", "y": "a"}, symmetric=True),
        "values": Relation(values, ["a", "b"], value=2, likelihood="normal"),
        "counts": Relation(counts, ["a"], value=1, likelihood="poisson"),
        "words": Relation(words, ["a", "b"], value=2, likelihood="categorical"),
        "triples": Relation(triples, {"x": "a", "y": "b", "z": "a"}),
    }


def model_seeds() -> list[bytes]:
    """Return model files of small fits."""
    found, tables = [], relations()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        for names in (("pairs", "counts"), ("values", "words"), ("triples",)):
            MultiIRM(random_state=0).fit({name: tables[name] for name in names}).save(path)
            found.append(path.read_bytes())
    return found


def checkpoint_seeds() -> list[bytes]:
    """Return checkpoints of small fits."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.checkpoint"
        for sweep in SWEEPS_BEFORE:
            model = MultiIRM(random_state=0, checkpoint=path, callback=_stop(sweep))
            try:
                model.fit(relations())
            except StopError:
                found.append(path.read_bytes())
                path.unlink()
    assert len(found) == len(SWEEPS_BEFORE), "a fit has ended before it could be stopped"
    return found


def read_model(path: Path, random_numbers: random.Random) -> None:
    """Load a file and use the model; three of four are forged or signed first."""
    resign(path, random_numbers)
    with np.errstate(all="ignore"):
        model = load(path)
        model.summary()
        if isinstance(model, MultiIRM):
            for table in model.result_.data.tables:
                first = [model.result_.data.domains[d].names[:2] for d in table.domains]
                if all(len(names) == 2 for names in first):
                    model.predict(table.name, **dict(zip(table.places, first, strict=True)))


def read_checkpoint(path: Path, random_numbers: random.Random) -> None:
    """Continue from a file for a few sweeps; three of four are forged or signed first."""
    resign(path, random_numbers)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            resume(path, callback=_stop(SWEEPS), keep=True)
        except StopError:
            return
