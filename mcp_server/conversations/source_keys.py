"""Source keys: recognize a turn that arrives twice, without taking two equal messages for one.

Every turn has two keys: `(session, turn_id)` if the client gave an id, and `(session, role, SHA-256 of the redacted
content, nth)`; `nth` is the number of earlier identical turns of the session.
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
    """Returns the SHA-256 of a redacted content as hex. Accepts lone surrogates."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def counts_of(keys: Iterable[TurnKey]) -> Counter[tuple[Role, str]]:
    """Returns how often each role and content occurs."""
    return Counter((key.role, key.sha) for key in keys)


def keys_of(turns: Iterable[Turn], recorded: Mapping[tuple[Role, str], int] | None = None) -> list[TurnKey]:
    """Returns the keys of `turns`. `recorded` counts the earlier turns of the session (`counts_of`)."""
    seen = Counter(recorded)
    keys: list[TurnKey] = []
    for turn in turns:
        sha = content_sha(turn.content)
        keys.append(TurnKey(turn.number, turn.role, sha, seen[turn.role, sha], turn.turn_id))
        seen[turn.role, sha] += 1
    return keys


def repeated(recorded: Sequence[TurnKey], role: Role, sha: str, turn_id: str | None) -> TurnKey | None:
    """Returns the recorded turn that an arriving one repeats, or None if it is new.

    A turn with the same id is a repeat. If one side has no id, a turn repeats the session's last turn with equal role
    and content: nothing was said in between, so it is a retry.
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
    """Returns the positions in an imported sequence of `(role, sha, turn_id)` that are not recorded yet.

    The content key counts `nth` within the imported sequence. It is used only if one side has no id: two turns with
    different ids are different.
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
    """The recorded part of an arriving sequence: the ids, the number of each `(role, sha)`, and the numbers of those
    turns that have no id. `elsewhere` are ids that another session has recorded."""

    ids: frozenset[str] = frozenset()
    counts: Mapping[tuple[Role, str], int] = field(default_factory=dict)
    nameless: Mapping[tuple[Role, str], tuple[int, ...]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()


def sort_out(known: Known, sequence: Sequence[tuple[Role, str, str]]) -> tuple[list[int], list[tuple[int, str]]]:
    """Returns the positions of the new turns of any part of a sequence in which every turn has an id, and the new ids
    of recorded turns (number and id). A turn that was recorded without an id gets the id of the first arriving turn
    with equal role and content."""
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
    return new, named
