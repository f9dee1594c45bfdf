"""The benchmark of clusters: its cost model and its page."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from scale import Run, page
from scale_model import STEPS, Cost, Model, graph_size

COPIED = 2e-9  # seconds of a worker for each object of the relation
SHAPES = [(32_768, 30_000), (32_768, 2_000_000), (800_000, 800_000)]


def costs(link=1e-7, per_object=0.0):
    """Return costs of a cluster whose links and objects cost so many seconds each."""
    found = []
    for kind in ("label", "soft"):
        for objects, links in SHAPES:
            for workers in (1, 2, 4, 8):
                tasks, messages = graph_size(workers)
                scheduler = 0.01 + STEPS * (1e-4 * tasks + 1e-5 * messages)
                computing = 0.001 * STEPS + link * links / workers
                exchange = 0.002 * STEPS + COPIED * objects
                size, client = (objects, links, workers), per_object * objects
                found.append(Cost(kind, *size, scheduler, client, computing, exchange))
    return found


def test_the_model_finds_the_costs_it_is_fitted_to():
    model = Model.fit("label", costs(per_object=2e-9))
    assert model.link == pytest.approx(1e-7, rel=0.05)
    assert model.client_object == pytest.approx(2e-9, rel=0.05)
    assert model.copied == pytest.approx(COPIED, rel=0.05)
    ratio = model.seconds(1e9, 5e7, 64) / model.seconds(1e9, 5e7, 8)
    assert 1 / 8 < ratio < 0.2
    slow = Model.fit("label", costs(per_object=1e-6))  # what one process does cannot be shared
    assert slow.seconds(1e9, 5e7, 64) / slow.seconds(1e9, 5e7, 8) > 0.5


def test_workers_of_large_clusters_get_few_messages():
    assert graph_size(1) == (1, 1)
    assert graph_size(4) == (4, 16)
    tasks, messages = graph_size(64)
    assert tasks < 80
    assert messages < 64 * 64 / 8


def test_the_page_has_the_ratio_and_the_memory_of_the_client():
    runs = [Run("r", "plain", 10**6, 10**5, w, 1.0, 0.9, 1e6, 1e6, 2e8 / w) for w in (1, 2)]
    text = page(runs, {10**6: 6 * 10**7, 10**7: 7 * 10**7}, costs(), "scale.py", 1.0)
    assert "| 10,000,000 | 70 MB |" in text
    line = next(line for line in text.splitlines() if "64 workers \u00f7 8 workers" in line)
    assert "label 0." in line
    assert "soft 0." in line
