"""What each constant of the search is worth: evidence and time with other values.

    DATA=folder PYTHONPATH=benchmarks python -m search_settings [--seeds 3]

Every constant of :class:`coblock.inference.settings.SearchSettings` that changes a default fit is
given a smaller and a larger value, one at a time. Writes docs/search.md: the mean log evidence of
default fits and their CPU time, as differences and ratios to the defaults.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from data import load

from coblock import IRM
from coblock.inference.settings import SEARCH

RELATIONS = ("lastfm_userxuser", "lastfm_artistxtag")
VALUES: dict[str, tuple[float, float]] = {
    "start_clusters": (20, 80),
    "members_per_cluster": (2, 6),
    "sampled_sweeps": (1, 6),
    "merged_share": (0.05, 0.3),
    "round_gain": (5e-5, 1e-3),
    "perturbation_gain": (5e-5, 1e-3),
    "fewest_failures": (1, 3),
    "most_failures": (1, 6),
    "patience_objects": (3_000, 30_000),
    "split_seeds": (2, 10),
    "split_passes": (3, 20),
    "label_gain": (1e-7, 1e-4),
    "most_samples": (8, 64),
    "label_batches": (2, 16),
    "merge_neighbours": (4, 16),
}
PAGE = Path(__file__).parent.parent / "docs" / "search.md"
RUNS = Path(__file__).parent / "search_runs.jsonl"


def measure(relation: str, seeds: int) -> tuple[float, float]:
    """Return mean log evidence and mean CPU seconds of default fits."""
    X, evidence, seconds = load(relation), [], []
    for seed in range(seeds):
        began = time.process_time()
        model = IRM(random_state=seed).fit(X)
        seconds.append(time.process_time() - began)
        evidence.append(model.log_evidence_)
    return float(np.mean(evidence)), float(np.mean(seconds))


def finished(path: Path) -> dict[str, list[float]]:
    """Return the measurements that are there already."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: row["found"] for row in rows}


def run(seeds: int) -> dict[str, list[float]]:
    """Measure everything that has not been measured yet."""
    found = finished(RUNS)
    plan = [("default", 0.0, None)]
    plan += [(name, value, getattr(SEARCH, name)) for name in VALUES for value in VALUES[name]]
    for name, value, default in plan:
        for relation in RELATIONS:
            key = f"{name}={value:g} {relation} {seeds}"
            if key in found:
                continue
            if default is not None:  # one instance is shared by all modules
                object.__setattr__(SEARCH, name, type(default)(value))
            found[key] = list(measure(relation, seeds))
            if default is not None:
                object.__setattr__(SEARCH, name, default)
            with RUNS.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "found": found[key]}) + "\n")
    return found


def page(found: dict[str, list[float]], seeds: int) -> str:
    """Return docs/search.md."""
    lines = [
        "# Search settings",
        "",
        "Written by `benchmarks/search_settings.py`. Each constant of",
        "`coblock.inference.settings.SearchSettings` is changed alone. The table shows the change",
        f"of the mean log evidence of default fits (seeds: {seeds}), in nats, and the ratio of",
        "their CPU time to that of the defaults.",
        "",
        "| constant | default | value | " + " | ".join(RELATIONS) + " |",
        "|---|---|---|" + "---|" * len(RELATIONS),
    ]
    base = {relation: found[f"default=0 {relation} {seeds}"] for relation in RELATIONS}
    for name, values in VALUES.items():
        for value in values:
            cells = []
            for relation in RELATIONS:
                evidence, seconds = found[f"{name}={value:g} {relation} {seeds}"]
                gain, ratio = evidence - base[relation][0], seconds / base[relation][1]
                cells.append(f"{gain:+,.0f}, {ratio:.2f}")
            default = getattr(SEARCH, name)
            lines.append(f"| `{name}` | {default:g} | {value:g} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Defaults: "
        + "; ".join(
            f"{relation} {base[relation][0]:,.0f} in {base[relation][1]:.1f} s"
            for relation in RELATIONS
        )
        + ".",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    IRM(max_iter=5).fit(load(RELATIONS[0])[:1200, :200])  # compiles
    PAGE.write_text(page(run(seeds), seeds), encoding="utf-8")


if __name__ == "__main__":
    main()
