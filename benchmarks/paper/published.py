"""The values printed in the paper, by the LaTeX labels of its tables (published.csv)."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LOG_LIKELIHOOD = "tab:results_loglk_K{}"
CPU_TIME = "tab:results_CPUtime_K{}"
LARGE = "tab:large_data_result"
SIZES = "tab:datasize"
RUNS = 20  # per experiment


@dataclass(frozen=True)
class Value:
    """One cell of a table: mean, standard deviation, bold print, and the mark of significance."""

    mean: float
    deviation: float | None
    bold: bool
    marked: bool


@cache
def values() -> dict[tuple[str, str, str, int], Value]:
    """Return all values by source, relation, method and K."""
    with Path(__file__).with_suffix(".csv").open(newline="") as file:
        return {
            (row["source"], row["relation"], row["method"], int(row["K"])): Value(
                float(row["mean"]),
                float(row["deviation"]) if row["deviation"] else None,
                row["bold"] == "1",
                row["marked"] == "1",
            )
            for row in csv.DictReader(file)
        }


def value(source: str, relation: str, method: str, K: int) -> Value | None:
    """Return one value, or None if the paper does not contain it."""
    return values().get((source.format(K), relation, method, K))


def best(relation: str, K: int) -> tuple[str, Value] | None:
    """Return the method with the largest mean likelihood on a relation."""
    source = LOG_LIKELIHOOD.format(K)
    found = {key[2]: one for key, one in values().items() if key[:2] == (source, relation)}
    return max(found.items(), key=lambda item: item[1].mean) if found else None


def size(relation: str) -> tuple[int, int, int] | None:
    """Return rows, columns and links of a relation of the paper."""
    found = [value(SIZES, relation, name, 0) for name in ("rows", "columns", "links")]
    rows, columns, links = (None if one is None else int(one.mean) for one in found)
    if rows is None or columns is None or links is None:
        return None
    return rows, columns, links


def misprinted_bold() -> list[tuple[str, int]]:
    """Return the relations and K whose bold value is not the largest of its row."""
    wrong = []
    for (source, relation, method, K), one in values().items():
        if source == LOG_LIKELIHOOD.format(K) and one.bold:
            largest = best(relation, K)
            if largest is not None and largest[0] != method and largest[1].mean > one.mean:
                wrong.append((relation, K))
    return wrong
