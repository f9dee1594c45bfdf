"""What runs on workers in a fit of several relations: shares of a domain, and tasks on them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from coblock.distributed.replication import writable
from coblock.kernels import Floats, Indices, Offsets, gain_list
from coblock.kernels.tensor_shares import add_listed_gains, list_blocks, set_sums
from coblock.kernels.tensor_sweeps import score_batch
from coblock.kernels.tensors import Flags, Layout, State
from coblock.model.dataset import offsets
from coblock.model.likelihoods import Likelihood
from coblock.model.multi_batches import Batch
from coblock.model.multi_partition import make_tables

NOT_SENT = ("label", "first_row", "factor", "n_rows", "key", "first_stat", "s")  # of a state
Listing: TypeAlias = list[tuple[Offsets, Offsets]]  # blocks by cluster, of each relation listed
ZeroGains: TypeAlias = tuple[Indices, Floats, Floats]  # of clusters: a new object, a member


class Sent:
    """A message of named arrays; what a worker computes from it once is not sent on."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Frame(Sent):
    """All relations without their cells."""

    layout: Layout
    likelihoods: tuple[Likelihood, ...]

    @classmethod
    def of(cls, layout: Layout, likelihoods: tuple[Likelihood, ...]) -> "Frame":
        """Return the relations of a layout; exposures count only where zeros do, and are left out.

        Those of a relation whose other cells are unseen are part of its statistics.
        """
        cells = ("coordinate", "value", "start", "cell", "exposure")
        nothing = {name: getattr(layout, name)[:0] for name in cells}
        without = np.full_like(layout.first_exposure, -1)
        return cls(layout._replace(**nothing, first_exposure=without), likelihoods)

    @cached_property
    def gains(self) -> Any:
        """The gains of all relations, compiled."""
        return gain_list(each.gain for each in self.likelihoods)

    @cached_property
    def writable_layout(self) -> Layout:
        """The layout as kernels read it."""
        return Layout(*(writable(array) for array in self.layout))

    def listed(self, d: int) -> list[int]:
        """Return the relations of a domain whose zeros are counted by block."""
        layout = self.layout
        return np.flatnonzero((layout.incidence[:, d] >= 0) & layout.filled).tolist()


@dataclass(frozen=True)
class Share(Sent):
    """The cells of consecutive objects of one domain.

    Objects of this domain are numbered from the first one of the share on, and those before it
    come last: offsets of cells are needed for the objects of the share only.
    """

    d: int
    first: int
    count: int
    cells: dict[str, Any]  # arrays of a layout

    @classmethod
    def of(cls, layout: Layout, d: int, objects: range) -> "Share":
        """Return the share of these objects; their cells are in the order of the layout."""
        size, parts = int(layout.first_object[d + 1] - layout.first_object[d]), []
        incidence, rows, entries = np.full_like(layout.incidence, -1), 0, 0
        for r in range(layout.filled.size):
            part = _cells_of(layout, r, d, objects, size)
            if layout.incidence[r, d] >= 0:
                incidence[r, d] = rows
                part["start"] += entries
                rows, entries = rows + part["start"].size, entries + part["cell"].size
            parts.append(part)
        joined = {
            name: np.concatenate([part[name].ravel() for part in parts])
            for name in ("coordinate", "value", "start", "cell")
        }
        first_value = offsets([part["value"].size for part in parts])[:-1]
        first = {"first_coordinate": offsets([part["coordinate"].size for part in parts])}
        cells = joined | first | {"first_value": first_value, "incidence": incidence}
        return cls(d, objects.start, len(objects), cells)

    def layout(self, frame: Frame) -> Layout:
        """Return all relations with the cells of the share."""
        return frame.writable_layout._replace(**self._writable)

    @cached_property
    def _writable(self) -> dict[str, Any]:
        return {name: writable(array) for name, array in self.cells.items()}

    def state(self, frame: Frame, state: State) -> State:
        """Return a state in which objects are numbered as in the share."""
        begin, end = frame.layout.first_object[self.d : self.d + 2]
        label = state.label.copy()
        label[begin:end] = np.roll(label[begin:end], -self.first)
        return state._replace(label=label)

    def __sizeof__(self) -> int:
        return sum(array.nbytes for array in self.cells.values())


def _cells_of(layout: Layout, r: int, d: int, objects: range, size: int) -> dict[str, Any]:
    """Return the cells of objects of domain ``d`` in relation ``r``, numbered from 0."""
    places = slice(*layout.first_place[r : r + 2])
    arity, S, row = len(layout.domain[places]), layout.n_stats[r], layout.incidence[r, d]
    if row < 0:
        nothing = {"coordinate": layout.coordinate[:0], "value": layout.value[:0]}
        return nothing | {"start": layout.start[:0], "cell": layout.cell[:0]}
    start = layout.start[row + objects.start : row + objects.stop + 1]
    known, cell = np.unique(layout.cell[start[0] : start[-1]], return_inverse=True)
    at, end = layout.first_coordinate[r : r + 2]
    coordinate = layout.coordinate[at:end].reshape(-1, arity)[known]
    own = layout.domain[places] == d
    coordinate[:, own] = (coordinate[:, own] - objects.start) % size
    at = layout.first_value[r]
    value = layout.value[at : at + (end - layout.first_coordinate[r]) // arity * S]
    return {
        "coordinate": coordinate,
        "value": value.reshape(-1, S)[known],
        "start": start - start[0],
        "cell": cell.astype(np.int32),
    }


@dataclass(frozen=True)
class BatchState(Sent):
    """The state from which a batch is scored: its blocks, and labels that differ from earlier ones.

    The earlier labels are a message of their own.
    """

    d: int
    objects: Indices  # of all domains, whose labels differ,
    labels: Indices  # and their labels
    numbers: dict[str, Any]  # arrays of the state
    blocks: list[tuple[Offsets, Floats]]  # stored blocks of each relation, and their sums
    clusters: Indices  # that are scored
    allowed: Flags
    opens: bool
    zeros: tuple[Floats, Floats]  # gains of zeros as if nothing were stored

    @classmethod
    def of(cls, batch: Batch, before: Indices) -> "BatchState":
        """Return the state of a batch, given labels that have been sent before."""
        layout, state, d = batch.layout, batch.state, batch.d
        changed, blocks = np.flatnonzero(state.label != before).astype(np.int32), []
        for r in range(layout.filled.size):
            keys = state.key[state.first_row[r] : state.first_row[r + 1]]
            used = np.flatnonzero(keys >= 0) if layout.incidence[r, d] >= 0 else np.arange(0)
            S, at = layout.n_stats[r], state.first_stat[r]
            sums = state.s[at : at + keys.size * S].reshape(-1, S)[used]
            blocks.append((keys[used], sums.ravel()))
        numbers = {
            name: array.copy() for name, array in state._asdict().items() if name not in NOT_SENT
        }
        return cls(
            d=d,
            objects=changed,
            labels=state.label[changed],
            numbers=numbers,
            blocks=blocks,
            clusters=batch.clusters,
            allowed=batch.allowed.copy(),
            opens=batch.opens,
            zeros=batch.empty_gains(),
        )

    def state(self, frame: Frame, before: Indices) -> State:
        """Return the state; it is made once on each worker."""
        found: State | None = self.__dict__.get("_state")
        if found is None:
            found = self._unpack(frame, before)
            self.__dict__["_state"] = found
        return found

    def _unpack(self, frame: Frame, before: Indices) -> State:
        layout, label = frame.writable_layout, before.copy()
        label[self.objects] = self.labels
        numbers = {name: writable(array) for name, array in self.numbers.items()}
        entries = [keys.size for keys, _ in self.blocks]
        tables = make_tables(entries, numbers["n_blocks"].tolist(), layout.n_stats)
        state = State(label=label, **numbers, **tables)
        for r, (keys, sums) in enumerate(self.blocks):
            set_sums(layout, state, r, writable(keys), writable(sums))
        return state


def list_share(share: Share, frame: Frame, before: Indices, sent: BatchState) -> Listing:
    """Return the blocks that hold cells of the members of each cluster that a batch scores."""
    state = share.state(frame, sent.state(frame, before))
    begin = frame.layout.first_object[share.d]
    label = state.label[begin : begin + share.count]
    place = np.full(state.m.shape[1], -1)
    place[sent.clusters] = np.arange(sent.clusters.size)
    place = place[label]
    member = np.argsort(place, kind="stable")[np.count_nonzero(place < 0) :].astype(np.int32)
    start = offsets(np.bincount(place[place >= 0], minlength=sent.clusters.size))
    layout, d = share.layout(frame), share.d
    return [list_blocks(layout, state, r, d, start, member) for r in frame.listed(d)]


def add_zeros(
    part: slice, frame: Frame, before: Indices, sent: BatchState, listings: Sequence[Listing]
) -> ZeroGains:
    """Return what stored blocks change for an object without cells, for some of the clusters.

    The shares are in the order of their objects.
    """
    state, layout, d = sent.state(frame, before), frame.writable_layout, sent.d
    clusters, (stored, own) = writable(sent.clusters[part]), np.zeros((2, state.m.shape[1]))
    for number, r in enumerate(frame.listed(d)):
        lists = [listing[number] for listing in listings]
        begin = offsets([blocks.size for _, blocks in lists])[:-1]
        first = np.stack([first for first, _ in lists]) + begin[:, None]
        first = np.ascontiguousarray(first[:, part.start : part.start + clusters.size + 1])
        table = (clusters, np.concatenate([blocks for _, blocks in lists]), first, stored, own)
        add_listed_gains(layout, state, frame.gains, r, d, *table)
    return clusters, stored[clusters], own[clusters]


def score_share(
    share: Share,
    frame: Frame,
    before: Indices,
    sent: BatchState,
    objects: Indices,
    uniform: Floats,
    zeros: Sequence[ZeroGains],
) -> Indices:
    """Return the new labels of objects of a share, which are numbered from its first one."""
    state = share.state(frame, sent.state(frame, before))
    base, own = (gains.copy() for gains in sent.zeros)
    for clusters, stored, stored_own in zeros:
        base[clusters] += stored
        own[clusters] += stored_own
    label = np.empty(objects.size, np.int32)
    table = (writable(objects), writable(uniform), writable(sent.allowed), sent.opens)
    layout = share.layout(frame)
    score_batch(layout, state, frame.gains, share.d, *table, base, own, label)
    return label
