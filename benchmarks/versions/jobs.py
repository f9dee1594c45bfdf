"""The measurements that compare two checkouts."""

from dataclasses import dataclass

HELD_OUT_SEEDS = {  # enron156_200110 has few cells: its score depends on which are held out
    "synth1": 5,
    "synth2": 5,
    "lastfm_userxuser": 5,
    "lastfm_artistxtag": 5,
    "enron156_200110": 20,
}
ROUNDS = {  # measurement -> relation -> number of seeds, or of repetitions with seed 0
    "evidence": dict.fromkeys(("lastfm_userxuser", "lastfm_artistxtag", "ml1m", "senate"), 3),
    "held-out": HELD_OUT_SEEDS,
    "planted": {"synth1": 20, "synth2": 20},
    "time": dict.fromkeys(("lastfm_userxuser", "lastfm_artistxtag", "ml1m", "200,000 x 20,000"), 3),
    "identity": {"lastfm_userxuser": 1},
    "size": {"source": 1},
}
NAMES = [*ROUNDS, *(f"{measure} {name}" for measure, names in ROUNDS.items() for name in names)]


@dataclass(frozen=True)
class Job:
    """One measurement of one relation, made in both checkouts."""

    measure: str
    relation: str
    round: int = 0  # the seed; of "time" the repetition

    @property
    def key(self) -> str:
        """Its name in the file of finished measurements."""
        return f"{self.measure} {self.relation} {self.round}"


def select_jobs(only: list[str], most_rounds: int | None = None) -> list[Job]:
    """Return the jobs of the named measurements, at most so many rounds of each.

    A name is that of a measurement, or of a measurement and a relation: an entry of ``NAMES``.
    """
    return [
        Job(measure, relation, number)
        for measure, relations in ROUNDS.items()
        for relation, rounds in relations.items()
        if measure in only or f"{measure} {relation}" in only
        for number in range(rounds if most_rounds is None else min(rounds, most_rounds))
    ]
