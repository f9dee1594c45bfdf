"""The bundled relations have the documented contents."""

import csv
import dataclasses
from collections import Counter
from importlib.resources import files

import numpy as np
import pytest

from coblock import Relation, read
from coblock.datasets import load_senate, senate_file


@pytest.fixture(scope="module")
def senate():
    return load_senate()


def raw_lines():
    text = (files("coblock.datasets") / "senate109.csv").read_text(encoding="ascii")
    return list(csv.reader(text.splitlines()))[1:]


def test_every_row_and_column_has_a_name(senate):
    assert senate.values.shape == (102, 645)
    assert senate.values.dtype == np.float64
    assert len(senate.senators) == len(set(senate.senators)) == 102
    assert len(senate.votes) == len(set(senate.votes)) == 645
    assert (senate.votes[0], senate.votes[-1]) == ("vote 1", "vote 645")


def test_numbers_of_votes_are_the_published_ones(senate):
    assert np.count_nonzero(senate.values == 1) == 40207
    assert np.count_nonzero(senate.values == 0) == 22650
    assert np.count_nonzero(np.isnan(senate.values)) == 102 * 645 - 40207 - 22650


def test_unseen_cells_are_blank(senate):
    blank = np.array([[cell == "" for cell in line[1:]] for line in raw_lines()])
    np.testing.assert_array_equal(np.isnan(senate.values), blank)
    assert set(np.unique(senate.values[~blank])) == {0.0, 1.0}


def test_the_file_is_read_as_a_table_without_options(senate):
    relation = read(senate_file()).relation
    assert relation.row_names == tuple(senate.senators)
    built = Relation.build(senate.values)
    assert (relation.n_links, relation.n_unseen) == (built.n_links, built.n_unseen)
    assert relation.column_names == tuple(senate.votes)


def test_parties_agree_with_the_names(senate):
    assert Counter(senate.parties) == {"R": 56, "D": 45, "I": 1}
    assert all(
        f"({party}-" in name for name, party in zip(senate.senators, senate.parties, strict=True)
    )
    assert senate.parties[senate.senators.index("Jeffords (I-VT)")] == "I"


def test_each_state_has_two_seats(senate):
    states = Counter(name.rsplit("-", 1)[1].rstrip(")") for name in senate.senators)
    assert states.pop("USA") == 1  # the president
    assert states.pop("NJ") == 3  # a seat changed hands
    assert len(states) == 49
    assert set(states.values()) == {2}


def test_two_senators_of_one_seat_never_vote_together(senate):
    """Menendez succeeded Corzine, so no roll call has votes of both."""
    left, came = (
        senate.values[senate.senators.index(name)] for name in ("Corzine (D-NJ)", "Menendez (D-NJ)")
    )
    assert np.all(np.isnan(left) | np.isnan(came))
    assert np.flatnonzero(~np.isnan(left)).max() < np.flatnonzero(~np.isnan(came)).min()


def test_parties_differ_more_than_members_of_one_party(senate):
    """A shuffled or transposed table would fail."""
    parties = np.array(senate.parties)
    republicans, democrats = senate.values[parties == "R"], senate.values[parties == "D"]
    gap = np.abs(np.nanmean(republicans, axis=0) - np.nanmean(democrats, axis=0))
    half = np.abs(np.nanmean(republicans[::2], axis=0) - np.nanmean(republicans[1::2], axis=0))
    assert np.nanmean(gap) > 5 * np.nanmean(half)


def test_votes_cannot_be_replaced(senate):
    with pytest.raises(dataclasses.FrozenInstanceError):
        senate.values = None


def test_each_load_returns_a_copy(senate):
    other = load_senate()
    other.values[:] = 0
    assert np.isnan(senate.values).any()
