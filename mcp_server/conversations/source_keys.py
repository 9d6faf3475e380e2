"""Source keys: how a turn that arrives twice is recognised, and two honest "continue" are not mistaken for one (SPEC
§2).

Every turn has two keys: `(session, turn_id)` if the client gave an id, and `(session, role, SHA-256 of the redacted
content, nth)`, `nth` counting the earlier identical turns of the session.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mcp_server.model import Role, Turn


@dataclass(frozen=True, slots=True)
class TurnKey:
    """Both keys of one turn within its session, and the turn's number."""

    number: int
    role: Role
    sha: str
    nth: int
    turn_id: str | None = None


def content_sha(content: str) -> str:
    """SHA-256 of a redacted content, as hex; lone surrogates count as what they are."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def keys_of(turns: Iterable[Turn], recorded: Sequence[TurnKey] = ()) -> list[TurnKey]:
    """The keys of `turns`, which follow the already `recorded` ones of the same session."""
    seen = Counter((key.role, key.sha) for key in recorded)
    keys: list[TurnKey] = []
    for turn in turns:
        sha = content_sha(turn.content)
        keys.append(TurnKey(turn.number, turn.role, sha, seen[turn.role, sha], turn.turn_id))
        seen[turn.role, sha] += 1
    return keys


def repeated(recorded: Sequence[TurnKey], role: Role, sha: str, turn_id: str | None) -> TurnKey | None:
    """The recorded turn that an arriving one repeats, or None if it is new.

    It repeats a turn with the same id. If one side has no id, it repeats the session's last turn when role and content
    are equal: with nothing said in between, that is a retry.
    """
    if turn_id is not None:
        for key in recorded:
            if key.turn_id == turn_id:
                return key
    if recorded:
        last = recorded[-1]
        if (last.role, last.sha) == (role, sha) and (turn_id is None or last.turn_id is None):
            return last
    return None


def missing(recorded: Sequence[TurnKey], sequence: Sequence[tuple[Role, str, str | None]]) -> list[int]:
    """Which items of an imported sequence of `(role, sha, turn_id)` are not recorded yet, by position.

    The content key counts `nth` within the imported sequence. It speaks only where one side has no id: two turns with
    different ids are different turns.
    """
    by_id = {key.turn_id for key in recorded if key.turn_id is not None}
    by_content = {(key.role, key.sha, key.nth): key for key in recorded}
    seen: Counter[tuple[Role, str]] = Counter()
    new: list[int] = []
    for position, (role, sha, turn_id) in enumerate(sequence):
        same = by_content.get((role, sha, seen[role, sha]))
        seen[role, sha] += 1
        if turn_id is not None and turn_id in by_id:
            continue
        if same is not None and (turn_id is None or same.turn_id is None):
            continue
        new.append(position)
    return new


@dataclass(frozen=True, slots=True)
class Known:
    """What a session has recorded of an arriving sequence: the ids, how often each `(role, sha)`, and the numbers of
    the turns among those that have no id. `elsewhere` are ids that another session has recorded."""

    ids: frozenset[str] = frozenset()
    counts: Mapping[tuple[Role, str], int] = field(default_factory=dict)
    nameless: Mapping[tuple[Role, str], tuple[int, ...]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SortedOut:
    """Which of an arriving sequence are new, by position, and the ids that recorded turns now have, by number."""

    new: tuple[int, ...]
    named: tuple[tuple[int, str], ...]


def sort_out(known: Known, sequence: Sequence[tuple[Role, str, str]]) -> SortedOut:
    """As `missing`, for any part of a sequence whose every turn has an id: a turn that was recorded without one is
    taken for the first arriving turn of equal role and content, and bears its id from then on."""
    ids = known.ids | known.elsewhere
    nameless = {key: list(numbers) for key, numbers in known.nameless.items()}
    new: list[int] = []
    named: list[tuple[int, str]] = []
    seen: set[str] = set()
    for position, (role, sha, turn_id) in enumerate(sequence):
        if turn_id in ids or turn_id in seen:
            continue
        seen.add(turn_id)
        if numbers := nameless.get((role, sha)):
            named.append((numbers.pop(0), turn_id))
        else:
            new.append(position)
    return SortedOut(tuple(new), tuple(named))
