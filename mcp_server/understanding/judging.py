"""Judges which items each sentence may state: by the weights, by labels, and by the options that are chosen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Literal

from mcp_server.understanding.cues import cues, subject_stems, word_list
from mcp_server.understanding.features import Message
from mcp_server.understanding.model import Model
from mcp_server.understanding.sentences import (
    MAX_MESSAGE,
    Sentence,
    choice_of,
    is_question,
    only_options,
    options_in,
)

ItemKind = Literal["decision", "rule", "fact", "open", "report"]

LEAST: Mapping[ItemKind, float] = {"decision": 0.05, "rule": 0.27, "fact": 0.22, "open": 0.38, "report": 0.02}
"""The least probability of a sentence that states an item, by kind (`benchmarks understand`, left-out writers).

It is low for decisions and reports, which are judged once more: decisions as a line, reports with the open item that
they may close."""

NEIGHBOR: Mapping[ItemKind, float] = {"decision": 0.5, "rule": 0.2, "fact": 0.2, "open": 0.25, "report": 0.2}
"""A sentence next to one that counts is added to it if it has at least this share of the least probability."""

PROGRAM = 0.3
"""A message of the user is taken for a program's and skipped if the probability is at least this, unless it begins with
a label ("Decision: two caches"). In held-out conversations 82 of 86 program messages without a marker reach it by their
words alone, and none of 3,542 messages of people."""

SECOND: Mapping[ItemKind, float] = {"decision": 0.3, "rule": 0.5, "fact": 0.35, "open": 0.5, "report": 0.15}
"""A sentence counts for its likeliest kind, and for other kinds with at least this share of that probability."""

MIN_WORDS = 2
"""Least words about the subject of an item without a label: "No objections." alone is not an item."""

PLANS = 0.8
"""The points of a list are a plan, not options, if the probability of a proposal is at least this."""

LONGEST_CHOICE = 12
"""Most words of a sentence that may name an option of a list."""

_WORDS: Mapping[ItemKind, str] = {
    "decision": r"(?:final )?decision|decided|entscheidung|odluka",
    "rule": r"(?:standing )?rule|regel|pravilo",
    "open": r"to[- ]?do|open item|action item",
    "report": r"done|fixed|erledigt|završeno",
}

LABELS: Mapping[ItemKind, re.Pattern[str]] = {
    kind: re.compile(rf"[*_]*(?:{words})[*_]*\s*:[*_]*\s+(?=\S)", re.IGNORECASE) for kind, words in _WORDS.items()
}
"""Labels that say what a sentence is. A sentence with a label or a task box counts whatever the model's estimate is."""

_NAME_ENDS = re.compile(r"[:;|(–—]|\s-\s|\.\s")
"""Ends the name of an option: "Stripe: best documentation"."""

_EMPHASIS = re.compile(r"(`+[^`]+`+)|(?<!/)\*\*(?!/)|(?<![\w/])(?:__|\*)(?=[^\s/.)*])|(?<=[^\s(/])(?:__|\*)(?![\w/])")
"""Matches an emphasis mark; in its group, code, whose asterisks are none: `count(*)`, `*.tmp`."""

POSTPONED = 0.2
"""The least probability of an open item in a sentence of the user that plainly postpones something."""

_POSTPONES = re.compile(r"\b(?:sleep on (?:it|that)|think (?:about (?:it|that)|it over|that over))\b", re.IGNORECASE)

_ON_LIST = re.compile(
    r"(?<!you )(?<!\bu )(?<!they )(?<!we )\b(?:put|leave|keep|stick|goes|park)\b[^.!?\n]{0,40}"
    r"\bon (?:the|your|my|our|that) (?:list|pile|to-?do)\b",
    re.IGNORECASE,
)
"""Words that put something on a list of things to do: "Leave it on the pile."."""

_LASTING = frozenset({"must", "no"})
"""Cues of an instruction that holds beyond its task."""

_ONCE = re.compile(
    r"\b(?:(?:only|just|for) (?:once|today|now)|(?:only|just|for) this (?:one|once|time)|this (?:once|time)|diesmal)\b",
    re.IGNORECASE,
)
"""Words of an instruction that holds once: "only in English this time"."""

_DECIDED = re.compile(r"(?:I|we)(?:['’]ve| have)? (?:just |now |finally )?decided (?:to|on|against)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A sentence that states an item of one kind, or is quoted with it.

    `listed`: it is a point of a list, or a row of a table. `apart`: it begins a line, and does not continue the
    sentence of the line before.
    """

    place: int
    text: str
    probability: float
    labeled: bool = False
    listed: bool = False
    apart: bool = False


_ByKind = dict[ItemKind, list[Found]]


@dataclass(frozen=True, slots=True)
class Judged:
    """A message's sentences: the probability of each kind, those that state an item, and whether each belongs to an
    option that the next message does not choose."""

    shares: Sequence[Mapping[str, float]]
    found: _ByKind
    rejected: Sequence[bool] = ()


def as_found(message: Message, place: int) -> Found:
    """Returns a sentence of a message that is quoted with an item, without a probability."""
    one = message.sentences[place]
    return Found(place, one.text, 0.0, listed=one.layout in ("bullet", "row"), apart=one.apart)


def judging(messages: Sequence[Message], model: Model) -> Callable[[int], Judged]:
    """Returns a function that judges the sentences of a message, given its place; it judges each message once."""

    @cache
    def of(place: int) -> Judged:
        return _judged(messages[place], model)

    return of


def _judged(message: Message, model: Model) -> Judged:
    labels = [_labeled(sentence, message.role == "user") for sentence in message.sentences]
    if message.acts.get("program", 0.0) >= PROGRAM and not any(labels[:1]):
        return Judged((), {})
    shares = model.shares(message)
    clauses = {place: _clauses_after(message, place) for place, label in enumerate(labels) if label}
    labeled = {at for places in clauses.values() for at in places}
    chosen = chosen_options(message)
    rejected = [bool(chosen) and _is_of_another(message, one, chosen) for one in message.sentences]
    on_list = _put_on_list(message)
    found: _ByKind = {}
    for kind, least in LEAST.items():
        left = [
            share[kind] if _may_state(kind, message, sentence, share, out) else 0.0
            for share, sentence, out in zip(shares, message.sentences, rejected, strict=True)
        ]
        for place in on_list if kind in ("open", "decision") else ():
            left[place] = max(left[place], least) if kind == "open" else 0.0
        if kind == "rule" and left and _ONCE.search(message.sentences[left.index(max(left))].text):
            left = [0.0] * len(left)  # what else the message says explains it
        for place, share in enumerate(left):
            if place in labeled:
                continue
            if label := labels[place]:
                if label[0] == kind:
                    text = " ".join((label[1], *(message.sentences[at].text for at in clauses[place])))
                    found.setdefault(kind, []).append(Found(place, text, 1.0, labeled=True))
                continue
            beside = max(left[max(0, place - 1) : place + 2]) >= least and share >= NEIGHBOR[kind] * least
            postpones = kind == "open" and share >= POSTPONED and _POSTPONES.search(message.sentences[place].text)
            if share >= least or beside or (postpones and message.role == "user"):
                one = as_found(message, place)
                text, layout = one.text, message.sentences[place].layout
                text = f"{text}:" if layout == "heading" and text[-1].isalnum() else text
                if kind == "decision" and message.next is not None and layout != "row":
                    text = only_options(text, chosen, message.next.choice.lettered)
                found.setdefault(kind, []).append(replace(one, text=text, probability=share))
    return Judged(shares, found, rejected)


def _put_on_list(message: Message) -> list[int]:
    """Returns the sentences of a user's message about something that is put on a list of things to do: "The van's door
    jams. Put it on the list."."""
    found: list[int] = []
    for place, one in enumerate(message.sentences if message.role == "user" else ()):
        if _ON_LIST.search(one.text):
            found.append(place if place == 0 or len(subject_stems(one.text)) > MIN_WORDS else place - 1)
    return found


def _may_state(
    kind: ItemKind, message: Message, sentence: Sentence, shares: Mapping[str, float], is_rejected: bool
) -> bool:
    """Returns whether a sentence of a message can state an item of this kind. `is_rejected`: it belongs to an option
    that was not chosen.

    A question states nothing, but an agent may put a proposal as a question, and a user a rule: "Could you always …?"
    A message that is a task rather than a rule states one only with a word like "always" or "never".
    """
    if kind == "decision" and is_rejected:
        return False
    is_task = message.acts.get("task", 0.0) > message.acts.get("rule", 0.0)
    if kind == "rule" and is_task and _LASTING.isdisjoint(cues(sentence.text)):
        return False
    if kind != "open" and is_question(sentence.text):
        may_ask = kind == ("decision" if message.role == "agent" else "rule")
        if not may_ask or len(subject_stems(sentence.text)) < MIN_WORDS:
            return False
    return shares[kind] >= SECOND[kind] * max(shares[other] for other in SECOND)


def chosen_options(message: Message) -> tuple[int, ...]:
    """Returns the numbers of the listed options that the next message chooses, by number or by name."""
    if message.next is None:
        return ()
    picks = message.next.choice.options
    if not picks:
        return _named(message, message.next)
    lettered = message.next.choice.lettered
    options = {
        number for one in message.sentences for number in (option_of(message, one), *options_in(one.text, lettered))
    }
    return picks if options.issuperset(picks) else ()


def _named(message: Message, answer: Message) -> tuple[int, ...]:
    """Returns the option that the beginning of an answer names ("stripe, yes"), if it names one only. The points of a
    plan are not options: "logs 14 days" changes one of them."""
    first = answer.sentences[0].text if answer.sentences else ""
    if message.acts.get("propose", 0.0) >= PLANS or is_question(first) or len(first.split()) > LONGEST_CHOICE:
        return ()
    names: dict[int, frozenset[str]] = {}
    for one in message.sentences:
        named = subject_stems(_NAME_ENDS.split(clean(one.text), 1)[0])
        names.setdefault(option_of(message, one), frozenset(stem for stem in named if stem.isalpha()))
    names.pop(0, None)
    of_one = {stem for stem, count in Counter(stem for stems in names.values() for stem in stems).items() if count == 1}
    said = [subject_stems(word) & of_one for word in first.split()]
    chosen = tuple(number for number, stems in names.items() if any(stems & one for one in said))
    if len(chosen) != 1 or len(names) < 2:
        return ()
    around = first.split()[: said.index(next(filter(None, said))) + 2]
    return () if "no" in cues(" ".join(around)) else chosen


def option_of(message: Message, sentence: Sentence) -> int:
    """Returns the option that a sentence belongs to, or 0. A list without numbers has options if the next message
    chooses by order ("the second one") or by name; a table only if it chooses by name."""
    if message.next is None:
        return sentence.option
    choice = message.next.choice
    if message.has_options:
        return sentence.option if choice.lettered in (None, sentence.lettered) else 0
    if choice.by_order:
        return sentence.point if sentence.layout == "bullet" else 0
    return sentence.option if choice.options else sentence.point


def _is_of_another(message: Message, sentence: Sentence, chosen: Collection[int]) -> bool:
    """Returns whether a sentence belongs to an option that was not chosen, or recommends one: "I'd take the second". A
    row of a table that compares the options of a list belongs to none."""
    option = option_of(message, sentence)
    if option:
        of_option = (one.layout for one in message.sentences if one.option == option)
        only_compares = sentence.layout == "row" and any(layout != "row" for layout in of_option)
        return option not in chosen or only_compares
    text = message.in_english(sentence.text)
    advised = choice_of(text, word_list(text), [text], 0).options if "propose" in cues(text) else ()
    return bool(advised) and not set(advised) & set(chosen)


def _labeled(sentence: Sentence, by_user: bool) -> tuple[ItemKind, str] | None:
    """Returns the kind that a sentence's label, task box or beginning says, and its text without the label; None if it
    says none."""
    text = sentence.text
    if is_question(text):
        return None
    if sentence.box:
        return ("open" if sentence.box == "open" else "report"), text
    for kind, label in LABELS.items():
        if found := label.match(text):
            return kind, text[found.end() :]
    return ("decision", text) if by_user and _DECIDED.match(text) else None


def _clauses_after(message: Message, place: int) -> list[int]:
    """Returns the places of the further clauses of a sentence: a long sentence is cut where they begin."""
    found: list[int] = []
    content = message.content[:MAX_MESSAGE]
    for at, (one, following) in enumerate(pairwise(message.sentences[place:]), place + 1):
        if one.text.endswith((".", "!", "?", "…", ":")) or f"{one.text} {following.text}" not in content:
            break
        found.append(at)
    return found


def likeliest(judged: Judged, kind: ItemKind) -> float:
    """Returns the highest probability with which a sentence of a message states an item of this kind."""
    return max((share[kind] for share in judged.shares), default=0.0)


def clean(text: str) -> str:
    """Returns a sentence on one line, without emphasis marks. Those inside a name stay ("stg_adt__movements"), and
    asterisks of code."""
    return " ".join(_EMPHASIS.sub(lambda found: found[1] or "", text).split())


def joined(sentences: Iterable[Found]) -> str:
    """Returns sentences as one text. A semicolon separates the points of a list, and lines that end without a mark, a
    period ends the list."""
    text, before = "", False
    for one in sentences:
        if text and text[-1] not in ".!?:;,…" and (before or one.apart):
            text += "." if before and not one.listed else ";"
        text, before = f"{text} {clean(one.text)}", one.listed
    return text.lstrip()


def text_of(message: Message) -> str:
    """Returns all sentences of a message as one text."""
    return joined(as_found(message, place) for place in range(len(message.sentences)))
