"""Results of several relations as tables: data frames, CSV, Parquet and JSON files."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coblock.io import refuse
from coblock.io.atomic import write_atomic
from coblock.io.export import make_frame, object_columns, to_csv
from coblock.model.likelihoods.categorical import Categorical
from coblock.model.multi_result import MultiResult, block_means

if TYPE_CHECKING:
    import polars as pl

RESERVED = ("blocks", "trace", "report", "model")  # names of other files of a result
LONGEST_STEM = 80  # characters of the name of a file


def file_stems(domain_names: tuple[str, ...]) -> list[str]:
    """Return a name of a file for each domain: no separators, none twice, none reserved.

    Examples
    --------
    >>> file_stems(("user", "../etc", "blocks", "User"))
    ['user', '_etc', 'blocks_2', 'User_2']
    """
    stems: list[str] = []
    taken = set(RESERVED)
    for name in domain_names:
        plain = re.sub(r"[^\w -]+", "_", name).strip()[:LONGEST_STEM] or "domain"
        stem, number = plain, 1
        while stem.lower() in taken:  # some file systems do not distinguish case
            number += 1
            stem = f"{plain}_{number}"
        taken.add(stem.lower())
        stems.append(stem)
    return stems


def domain_columns(result: MultiResult, domain: str) -> dict[str, Any]:
    """Return name, cluster and probability of the cluster of each object of a domain."""
    d = result.data.domain(domain)
    return object_columns(result.data.domains[d].names, result.labels[d], result.memberships[d])


def block_columns(result: MultiResult, relation: str) -> dict[str, Any]:
    """Return the blocks of a relation: a cluster for each place, statistics and mean.

    Categories have a line each, with the number of cells as the only statistic. Of very many
    blocks, those that hold no stored cells are left out.
    """
    r = result.relation_number(relation)
    table, clusters = result.data.tables[r], result.listed_blocks(r)
    mean = block_means(result, r, clusters)
    statistics = result.blocks.statistics_at(r, tuple(clusters.T))
    at = np.arange(len(clusters))
    categories: list[str] = []
    if isinstance(table.likelihood, Categorical):
        categories = [str(each) for each in table.likelihood.categories] * at.size
        at, statistics = np.repeat(at, mean.shape[1]), statistics.reshape(-1, 1)
    columns: dict[str, Any] = {
        f"{place}_cluster": clusters[at, p].astype(np.int64) for p, place in enumerate(table.places)
    }
    if categories:
        columns["category"] = categories
    for s in range(statistics.shape[-1]):
        columns[f"statistic_{s + 1}"] = statistics[:, s].copy()
    return columns | {"mean": mean.ravel()}


def multi_frame(result: MultiResult, domain: str | None, relation: str | None, library: str) -> Any:
    """Return the objects of a domain, or the blocks of a relation, as a data frame."""
    if (domain is None) == (relation is None):
        refuse("to_frame needs either domain= or relation=.")
    if domain is not None:
        return make_frame(domain_columns(result, domain), library)
    assert relation is not None
    return make_frame(block_columns(result, relation), library)


def multi_tables(result: MultiResult) -> "dict[str, pl.DataFrame]":
    """Return all tables of a result by the names of their files, without extensions."""
    import polars as pl

    data = result.data
    tables = {
        stem: make_frame(domain_columns(result, name))
        for stem, name in zip(file_stems(data.domain_names), data.domain_names, strict=True)
    }
    blocks = pl.concat(
        [
            make_frame(block_columns(result, table.name)).insert_column(
                0, pl.lit(table.name).alias("relation")
            )
            for table in data.tables
        ],
        how="diagonal",
    )
    first = [name for name in blocks.columns if name.endswith("_cluster")]
    tables["blocks"] = blocks.select("relation", *first, pl.exclude("relation", *first))
    trace = result.trace
    columns: dict[str, Any] = {
        name: [getattr(record, name) for record in trace]
        for name in ("sweep", "phase", "log_evidence", "moved", "change", "seconds")
    }
    for d, name in enumerate(data.domain_names):
        columns[f"{name}_clusters"] = [record.clusters[d] for record in trace]
    tables["trace"] = make_frame(columns)
    return tables


def write_multi_tables(
    result: MultiResult,
    folder: Path,
    *,
    kind: Literal["csv", "parquet"] = "csv",
    formulas: bool = False,
) -> None:
    """Write a table for each domain, the blocks and the trace, as CSV or Parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, frame in multi_tables(result).items():
        data = to_csv(frame, formulas=formulas) if kind == "csv" else frame.write_parquet
        write_atomic(folder / f"{stem}.{kind}", data)


def write_multi_json(result: MultiResult, path: Path) -> None:
    """Write one JSON object: a summary of the fit, the domains and the blocks of the relations."""
    data = result.data
    document = {
        "log_evidence": float(result.log_evidence),
        "converged": bool(result.converged),
        "sweeps": len(result.trace),
        "domains": {n: make_frame(domain_columns(result, n)).to_dicts() for n in data.domain_names},
        "relations": {
            table.name: {
                "places": {
                    place: data.domain_names[d]
                    for place, d in zip(table.places, table.domains, strict=True)
                },
                "likelihood": table.likelihood.name,
                "blocks": make_frame(block_columns(result, table.name)).to_dicts(),
            }
            for table in data.tables
        },
    }
    write_atomic(path, json.dumps(document, allow_nan=False, indent=1).encode())
