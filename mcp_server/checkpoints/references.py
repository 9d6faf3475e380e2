"""Compile inputs with references in the place of texts: a checkpoint need not hold a copy of what it was compiled from.

    "text": "…"                    →  "text": {"of": "knowledge/memory/MEMORY.md", "at": [120, 48]}
    {"number": 4, "content": …}    →  {"turn_of": "raw/conversations/….md#4"}

`of` names a file, or a turn of a transcript as `path#number`; `at` is where the text begins in it and how long it is,
in characters. A text that does not stand where it should, or is no longer than a reference, stays as it is. So
`resolved` gives back what `referring` was given, as long as files and turns are what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

WORTH_A_REFERENCE = 40
"""Characters; a shorter text says less than its reference."""

LAST_TURNS = 20
"""Among so many of the session's last turns the message is looked for."""

TextOf = Callable[[str], str | None]
"""The text of a file, or what was said in a turn (`path#number`); None for what is not there."""

TurnOf = Callable[[str], Mapping[str, Any] | None]
"""A turn (`path#number`) as JSON values; None for what is not there."""


def referring(document: Mapping[str, Any], text_of: TextOf, turn_of: TurnOf, place_of: Mapping[int, str]) -> Any:
    """Compile inputs as JSON, with references. `place_of` says in which transcript each turn of the session stands."""

    def named(number: int) -> str:
        return f"{place_of.get(number, '')}#{number}"

    def text(value: str, of: str) -> Any:
        if len(value) < WORTH_A_REFERENCE:
            return value
        start = (text_of(of) or "").find(value)
        return value if start < 0 else {"of": of, "at": [start, len(value)]}

    def turn(value: Mapping[str, Any], of: str) -> Any:
        return {"turn_of": of} if turn_of(of) == value else dict(value)

    def hit(value: Mapping[str, Any]) -> Any:
        found = value["hit"]
        passage = found["passage"]
        of = passage["path"] if passage["turn"] is None else f"{passage['path']}#{passage['turn']}"
        return {**value, "hit": {**found, "passage": {**passage, "text": text(passage["text"], of)}}}

    given = dict(document)
    given["files"] = [{**one, "text": text(one["text"], one["path"])} for one in document["files"]]
    given["hits"] = [hit(one) for one in document["hits"]]
    given["turns"] = [turn(one, named(one["number"])) for one in document["turns"]]
    for number in sorted(place_of, reverse=True)[:LAST_TURNS]:
        message = text(document["message"], named(number))
        if message != document["message"]:
            given["message"] = message
            break
    last = document.get("last_session")
    if last is not None:
        turns = [turn(one, f"{last['path']}#{one['number']}") for one in last["turns"]]
        given["last_session"] = {**last, "turns": turns}
    return given


def resolved(given: Any, text_of: TextOf, turn_of: TurnOf) -> Any:
    """The inputs with their texts fetched again. What is not there any more is an empty text, or no turn."""
    if isinstance(given, list):
        found = ((inner, resolved(inner, text_of, turn_of)) for inner in given)
        return [one for inner, one in found if one is not None or inner is None]
    if not isinstance(given, Mapping):
        return given
    if given.keys() == {"of", "at"}:
        start, length = given["at"]
        return (text_of(given["of"]) or "")[start : start + length]
    if given.keys() == {"turn_of"}:
        return turn_of(given["turn_of"])
    return {name: resolved(inner, text_of, turn_of) for name, inner in given.items()}


def sources(given: Any) -> frozenset[str]:
    """The files and turns that a document refers to, as `of` names them."""
    if isinstance(given, list):
        return frozenset().union(*(sources(inner) for inner in given))
    if not isinstance(given, Mapping):
        return frozenset()
    if given.keys() == {"of", "at"}:
        return frozenset((given["of"],))
    if given.keys() == {"turn_of"}:
        return frozenset((given["turn_of"],))
    return frozenset().union(*(sources(inner) for inner in given.values()))
