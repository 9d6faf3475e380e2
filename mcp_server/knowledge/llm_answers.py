"""Requests to an LLM about a conversation, and the checks of its answers. Nothing that an LLM invents reaches a page.

Extraction: the LLM lists lines. A line is accepted if its turn was shown, its kind is known, and the turn has most of
its words. For a refused line the extractors' lines are kept.

Review: the LLM drops, rewords, settles or adds items. One part of the answer that does not hold (an unknown id, a quote
that no message has, a name that is lost) refuses the whole answer. At most a third of the items may be dropped or
settled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, get_args

from mcp_server.conversations.authorship import is_injected
from mcp_server.knowledge.duplicates import NEGATIONS, is_duplicate
from mcp_server.knowledge.extractors import USER, Context
from mcp_server.model import Turn
from mcp_server.text.derived_lines import Line, LineKind
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import clipped
from mcp_server.text.words import content_words
from mcp_server.understanding.features import content_stems, word_list
from mcp_server.understanding.recognizer import LONGEST, Item, ItemKind, is_real

ANSWER_TOKENS = 1_500
MESSAGES = 40
"""Messages that one request shows."""

LONGEST_MESSAGE = 800
"""Characters of a message that are shown, and in which a quote may be."""

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)


def _shown(turn: Turn, context: Context) -> str:
    """Returns a message as a request shows it, safe for a prompt."""
    who = turn.name or {"user": "The user", "agent": "The assistant"}.get(turn.role, "System")
    said = neutralise(clipped(turn.content, LONGEST_MESSAGE))
    return f"[{turn.number}] {neutralise(who)}, {context.day_of(turn.at)}: {said}"


def _parsed(answer: str) -> Any:
    """Returns the JSON value of an answer, with or without a fence. Raises ValueError or RecursionError."""
    fenced = _FENCED.fullmatch(answer)
    return json.loads(fenced[1] if fenced else answer)


# ---------------------------------------------------------------- extraction

LONGEST_LINE = 300
SUPPORTED_LINE = 0.4
"""Share of a line's content words that its turn must have."""

WEIGHT = 2.5


def requests(template: str, turns: Sequence[Turn], context: Context) -> list[str]:
    """Returns the prompts for a conversation, each with at most `MESSAGES` of its messages."""
    shown = [_shown(turn, context) for turn in turns if turn.content.strip() and not is_injected(turn.content)]
    windows = [shown[start : start + MESSAGES] for start in range(0, len(shown), MESSAGES)]
    return [template.replace("{messages}", "\n".join(window)) for window in windows]


@dataclass(frozen=True, slots=True)
class Answer:
    """The accepted lines of an answer, and the turn of each refused line (None if it names none that was shown)."""

    lines: tuple[Line, ...] = ()
    refused: tuple[int | None, ...] = ()

    def unanswered(self, turns: Sequence[Turn]) -> frozenset[int]:
        """Returns the turns for which the rules' lines stand: those of refused lines and, if any line was refused, all
        turns without an accepted line."""
        if not self.refused:
            return frozenset()
        answered = {line.turn for line in self.lines} - set(self.refused)
        return frozenset(turn.number for turn in turns) - answered


def read(answer: str, turns: Sequence[Turn], context: Context) -> Answer | None:
    """Returns the lines of an answer; None if the answer is no JSON array."""
    try:
        value = _parsed(answer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list):
        return None
    by_number = {turn.number: turn for turn in turns}
    lines: list[Line] = []
    refused: list[int | None] = []
    for one in value:
        line = _line(one, by_number, context)
        if line is not None:
            lines.append(line)
        else:
            number = one.get("turn") if isinstance(one, dict) else None
            refused.append(number if isinstance(number, int) and number in by_number else None)
    return Answer(tuple(lines), tuple(refused))


def _line(value: Any, turns: dict[int, Turn], context: Context) -> Line | None:
    if not isinstance(value, dict) or not isinstance(value.get("turn"), int) or not isinstance(value.get("text"), str):
        return None
    turn, text = turns.get(value["turn"]), clipped(neutralise(value["text"]), LONGEST_LINE)
    kind = next((kind for kind in get_args(LineKind) if kind == value.get("kind")), None)
    if turn is None or kind is None or "[src:" in text or not _supported(text, turn):
        return None
    person = value.get("person")
    said = context.day_of(turn.at)
    return Line(
        kind,
        text,
        _day(value.get("day")) or said,
        turn.number,
        context.path,
        person=person if isinstance(person, str) and person in context.speakers else None,
        said=said,
        weight=WEIGHT,
        project=context.project,
        file=text.partition(":")[0] if kind == "procedure" else "",
    )


def _day(value: object) -> str | None:
    try:
        return date.fromisoformat(value).isoformat() if isinstance(value, str) else None
    except ValueError:
        return None


def _supported(text: str, turn: Turn) -> bool:
    names = content_words(f"{turn.name or ''} {USER}")
    said = content_words(text, names)
    known = set(content_words(turn.content))
    return bool(said) and sum(word in known for word in said) >= SUPPORTED_LINE * len(said)


# ---------------------------------------------------------------- review

LEAST_QUOTE = 3
"""Words of a quote."""

MOST_REMOVED = 1 / 3
"""Share of the shown items that one answer may drop or settle."""

MOST_ADDED = 3
"""Items that one answer may add, or half as many as there are."""

SUPPORTED = 0.6
"""Share of the content words of a rewording that its messages must say."""

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(
    r"[^\W_]*(?:[a-z][A-Z]|[A-Z]{2}|[^\W\d]\d|\d[^\W\d]|\w[_./]\w)[\w./-]*\w|(?<=[a-z,;] )[A-ZČĆŠŽĐÄÖÜ][\w-]+"
)
"""Identifiers (fooBar, HTTP2, a_b, a/b.c) and, inside a sentence, words with a capital letter."""

_KINDS: Mapping[str, ItemKind] = {"decision": "decision", "rule": "rule", "fact": "fact", "open": "open"}
"""The kinds that an LLM may add."""

_SETTLES: Mapping[ItemKind, tuple[ItemKind, ...]] = {"decision": ("decision",), "open": ("report", "decision", "fact")}
"""By kind of item, the kinds that can replace or close it."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The items after the review. `settled` says by its item which turn replaced or closed it. `refused` counts the
    answers that changed nothing because they could not be used."""

    items: tuple[Item, ...]
    settled: Mapping[Item, int] = field(default_factory=dict)
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a conversation that one request shows: its messages, and its items by their ids."""

    turns: tuple[Turn, ...]
    items: Mapping[str, Item]

    def prompt(self, template: str, context: Context) -> str:
        """Returns the request."""
        items = [
            f"{name} ({one.kind}, message {one.sources[0]}): {neutralise(one.text)}" for name, one in self.items.items()
        ]
        messages = [_shown(turn, context) for turn in self.turns]
        values = {"items": "\n".join(items) or "(none)", "messages": "\n".join(messages)}
        return re.sub(r"\{(items|messages)\}", lambda place: values[place[1]], template)


def windows(turns: Sequence[Turn], items: Sequence[Item]) -> Iterator[Window]:
    """Yields the conversation in parts of at most `MESSAGES` messages."""
    real = [turn for turn in turns if is_real(turn)]
    for start in range(0, len(real), MESSAGES):
        part = tuple(real[start : start + MESSAGES])
        numbers = {turn.number for turn in part}
        inside = {f"i{place}": one for place, one in enumerate(items, 1) if one.sources[0] in numbers}
        yield Window(part, inside)


def reviewed(window: Window, answer: str, before: Reviewed) -> Reviewed:
    """Returns the items after one answer; if it cannot be used, only `refused` has changed."""
    try:
        return _applied(window, _object(answer), before)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return replace(before, refused=before.refused + 1)


def _object(answer: str) -> dict[str, list[Any]]:
    value = _parsed(answer)
    known = {"drop", "reword", "settle", "add"}
    if not isinstance(value, dict) or not set(value) <= known:
        raise ValueError("not the object that was asked for")
    if not all(isinstance(one, list) for one in value.values()):
        raise ValueError("not lists")
    return {name: value.get(name, []) for name in known}


def _applied(window: Window, asked: Mapping[str, list[Any]], before: Reviewed) -> Reviewed:
    texts = {turn.number: turn.content for turn in window.turns}
    dropped = {window.items[name] for name in asked["drop"]}
    pairs = {window.items[one["id"]]: window.items[one["by"]] for one in asked["settle"]}
    for old, new in pairs.items():
        _check(new.kind in _SETTLES.get(old.kind, ()) and new.turn > old.turn and not {old, new} & dropped)
    _check(all(one.probability < 1 for one in dropped))  # a label always counts
    _check(len(dropped) + len(pairs) <= MOST_REMOVED * len(window.items))
    worded: dict[Item, Item] = {}
    for one in asked["reword"]:
        item = window.items[one["id"]]
        _check(item not in dropped)
        worded[item] = replace(item, text=_reworded(item, one["text"], texts), short="")
    added = [_added(one, window) for one in asked["add"]]
    _check(len(added) <= max(MOST_ADDED, len(window.items) // 2))
    items = [worded.get(one, one) for one in before.items if one not in dropped]
    items += [
        one for one in added if not any(one.kind == old.kind and is_duplicate(one.text, old.text) for old in items)
    ]
    settled = {worded.get(old, old): turn for old, turn in before.settled.items()}
    settled.update({worded.get(old, old): new.turn for old, new in pairs.items()})
    return Reviewed(tuple(sorted(items, key=lambda one: one.sources[0])), settled, before.refused)


def _check(holds: bool) -> None:
    if not holds:
        raise ValueError("a part of the answer does not hold")


def _reworded(item: Item, text: str, texts: Mapping[int, str]) -> str:
    """Returns a rewording that keeps every name, number and negation, and says nothing that its messages do not say."""
    text = " ".join(neutralise(text).split())
    said = " ".join([item.text, *(texts.get(number, "") for number in item.sources)])
    stems, known = content_stems(word_list(text)), content_stems(word_list(said))
    _check(bool(text) and len(text) <= LONGEST and "[src:" not in text)
    _check(set(_NUMBER.findall(item.text)) <= set(_NUMBER.findall(text)) <= set(_NUMBER.findall(said)))
    _check(all(name in text for name in _NAME.findall(item.text)))
    _check(all(name in said for name in _NAME.findall(text)))
    _check(bool(_words(text) & NEGATIONS) == bool(_words(item.text) & NEGATIONS))
    _check(bool(stems) and len(stems & known) >= SUPPORTED * len(stems))
    _check(2 * len(stems & content_stems(word_list(item.text))) >= len(content_stems(word_list(item.text))))
    return text


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))


def _added(one: Any, window: Window) -> Item:
    """Returns an item that quotes a message word for word."""
    turn = next((turn for turn in window.turns if turn.number == one["turn"]), None)
    quote = " ".join(one["quote"].split())
    kind = _KINDS[one["kind"]]
    if turn is None or quote not in " ".join(turn.content.split()):
        raise ValueError("no message has this quote")
    _check(len(quote.split()) >= LEAST_QUOTE and len(quote) <= LONGEST and "[src:" not in quote)
    return Item(kind, quote, turn.number, turn.at, (turn.number,), turn.role, probability=0.5)
