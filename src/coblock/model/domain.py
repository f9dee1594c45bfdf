"""A set of objects that are clustered together (RELATIONS 1)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Domain:
    """Objects of one kind: users, tags, countries."""

    size: int
    names: tuple[str, ...] | None = None
