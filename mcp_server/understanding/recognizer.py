"""Reads a conversation message by message and finds its items: decisions, rules, facts, open items, reports.

Two steps, both linear and both in the weights file: the dialogue acts of each message (does it propose, accept, refuse,
amend, direct, …), then for each sentence whether it states an item, given its words, its place, and the acts of its
message and of those before and after. A sentence of a proposal becomes a decision because the next message accepts it.

An item quotes the sentences that state it. What a program wrote under the role of the user is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Literal

from mcp_server.conversations.authorship import is_injected
from mcp_server.model import Turn
from mcp_server.text.forgotten import MARK
from mcp_server.understanding.features import (
    Message,
    content_stems,
    message_features,
    sentence_features,
    subject_stems,
    word_list,
)
from mcp_server.understanding.model import Model
from mcp_server.understanding.sentences import Sentence
from mcp_server.understanding.settling import CHANGEABLE

ItemKind = Literal["decision", "rule", "fact", "open", "report"]

LEAST: Mapping[ItemKind, float] = {"decision": 0.16, "rule": 0.15, "fact": 0.15, "open": 0.16, "report": 0.1}
"""The least probability of an item, by kind (`benchmarks understand`, left-out conversations)."""

AMENDS = 0.3
"""The probability of acceptance plus amendment from which on the user's sentences are told with the proposal."""

LONGEST_CHANGE = 140
"""Characters of an amendment that is told with the proposal; a longer one is an item of its own."""

LONGEST = 320
"""Characters of an item's text."""

NEIGHBOR = 0.5
"""A sentence next to one that counts joins it from this share of the least probability on."""

PROGRAM = 0.5
"""The probability from which on a message of the user is taken for a program's and skipped."""

SECOND = 0.5
"""A sentence counts for its likeliest kind, and for others from this share of that probability on."""

MIN_WORDS = 2
"""Words that say what an item is about, at least, unless it has a label: "No objections." alone is none."""

SHORT_ANSWER = 4
"""Words of an answer that only the message before it explains."""

MAX_GAP = 3
"""Sentences of one item stand at most so far apart."""

HEARD = 600
"""Characters of a message in which the words of a replaced item are looked for."""

AHEAD = BEHIND = 3
"""Messages after and before a message that can change its items."""

_WORDS: Mapping[ItemKind, str] = {
    "decision": r"(?:final )?decision|decided|entscheidung|odluka",
    "rule": r"(?:standing )?rule|regel|pravilo",
    "open": r"to[- ]?do|open item|action item",
    "report": r"done|fixed|erledigt|završeno",
}
LABELS: Mapping[ItemKind, re.Pattern[str]] = {
    kind: re.compile(rf"[*_]*(?:{words})[*_]*\s*:[*_]*\s+(?=\S)", re.IGNORECASE) for kind, words in _WORDS.items()
}
"""Labels that say what a sentence is: such a sentence counts whatever the model makes of it, and so does a task box."""

_DECIDED = re.compile(r"I(?:['’]ve| have)? (?:just |now |finally )?decided (?:to|on|against)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Item:
    """Something a conversation settled. `text` quotes it; `turn` is the number of the turn that settled it, `sources`
    those that are quoted; `probability` is the model's, 0 to 1."""

    kind: ItemKind
    text: str
    turn: int
    at: datetime
    sources: tuple[int, ...]
    role: str
    probability: float
    changes: float = 0.0
    """The probability that the message revises something settled, or for a report that something is done."""
    heard: tuple[str, ...] = ()
    """Further content stems of the message that settled a decision or fact: what it replaces may be named there."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A sentence that states an item of one kind."""

    place: int
    text: str
    probability: float
    labeled: bool = False


_ByKind = dict[ItemKind, list[_Found]]


def read(turns: Sequence[Turn], model: Model, first: int = 0, last: int | None = None) -> list[Item]:
    """Returns the items of a conversation, in order; only those of turns numbered `first` to `last`, if given.

    The turns around them are context: with BEHIND messages before `first` and AHEAD messages after `last` the result
    is final.
    """
    real = [turn for turn in turns if is_real(turn)]
    messages = _linked(real)
    for message in messages:
        judge = model.user_acts if message.role == "user" else model.agent_acts
        message.acts = judge.probabilities(message_features(message))

    @cache
    def of(place: int) -> _ByKind:
        return _found(messages[place], model)

    items: list[Item] = []
    for place, turn in enumerate(real):
        if turn.number < first or (last is not None and turn.number > last):
            continue
        items += _items(real, messages, place, of)
    return items


def probability_of(kind: ItemKind, quote: str, number: int, turns: Sequence[Turn], model: Model) -> float:
    """Returns the probability that a quote of turn `number` states an item of this kind: its likeliest sentence's."""
    real = [turn for turn in turns if is_real(turn)]
    messages = _linked(real)
    for message in messages:
        judge = model.user_acts if message.role == "user" else model.agent_acts
        message.acts = judge.probabilities(message_features(message))
    stems = content_stems(word_list(quote))
    return max(
        (
            model.items.probabilities(sentence_features(message, place))[kind]
            for turn, message in zip(real, messages, strict=True)
            if turn.number == number
            for place, sentence in enumerate(message.sentences)
            if 2 * len(stems & content_stems(word_list(sentence.text))) >= len(stems)
        ),
        default=0.0,
    )


def is_real(turn: Turn) -> bool:
    """Whether a person or the agent wrote a turn, as far as its marks tell."""
    return turn.role != "system" and bool(turn.content.strip()) and not is_injected(turn.content)


def _linked(turns: Iterable[Turn]) -> list[Message]:
    messages: list[Message] = []
    for turn in turns:
        message = Message(turn.role, turn.content, bool(turn.tool_calls), messages[-1] if messages else None)
        if messages:
            messages[-1].next = message
        messages.append(message)
    return messages


def _found(message: Message, model: Model) -> _ByKind:
    if message.acts.get("program", 0.0) >= PROGRAM:
        return {}
    shares = [model.items.probabilities(sentence_features(message, place)) for place in range(len(message.sentences))]
    labels = [_labeled(sentence, message.role == "user") for sentence in message.sentences]
    chosen = _chosen(message)
    found: dict[ItemKind, list[_Found]] = {}
    for kind, least in LEAST.items():
        left = [
            share[kind] if _may_state(kind, sentence, share, chosen) else 0.0
            for share, sentence in zip(shares, message.sentences, strict=True)
        ]
        for place, share in enumerate(left):
            if label := labels[place]:
                if label[0] == kind:
                    found.setdefault(kind, []).append(_Found(place, label[1], 1.0, labeled=True))
                continue
            beside = max(left[max(0, place - 1) : place + 2]) >= least and share >= NEIGHBOR * least
            if share >= least or beside:
                found.setdefault(kind, []).append(_Found(place, message.sentences[place].text, share))
    return found


def _may_state(kind: ItemKind, sentence: Sentence, shares: Mapping[str, float], chosen: int) -> bool:
    """Returns whether a sentence can state an item of this kind. `chosen` is the option that was chosen, or 0."""
    if kind == "decision" and chosen and sentence.option not in (0, chosen):
        return False
    if kind != "open" and sentence.text.rstrip("*_ ").endswith("?"):
        return False
    return shares[kind] >= SECOND * max(shares.values())


def _chosen(message: Message) -> int:
    """Returns the number of the only option that the next message chooses, or 0."""
    picked = message.next.picked if message.next is not None else 0
    options = {sentence.option for sentence in message.sentences}
    if picked not in options or message.next is None:
        return 0
    named = {int(word) for word in message.next.words[:12] if word.isdecimal()}
    return 0 if named & options - {picked} else picked


def _labeled(sentence: Sentence, by_user: bool) -> tuple[ItemKind, str] | None:
    """Returns the kind that a sentence says it is, and its text without the label."""
    text = sentence.text
    if text.rstrip("*_ ").endswith("?"):
        return None
    if sentence.box:
        return ("open" if sentence.box == "open" else "report"), text
    for kind, label in LABELS.items():
        if found := label.match(text):
            return kind, text[found.end() :]
    return ("decision", text) if by_user and _DECIDED.match(text) else None


def _items(turns: Sequence[Turn], messages: Sequence[Message], place: int, of: Callable[[int], _ByKind]) -> list[Item]:
    message, turn = messages[place], turns[place]
    items: list[Item] = []
    for kind, sentences in of(place).items():
        if kind == "decision" and message.role == "user" and place and _amended(messages, place - 1, of):
            continue  # told with the proposal that it changes
        groups = _groups(sentences)
        for group in groups:
            text = _joined(group)
            labeled = group[0].labeled
            sources: tuple[int, ...] = (turn.number,)
            settled = turn
            if kind == "decision" and message.role == "agent" and place + 1 < len(turns) and not labeled:
                if turns[place + 1].role == "user":
                    sources, settled = (turn.number, turns[place + 1].number), turns[place + 1]
                if _amended(messages, place, of) and group is groups[-1]:
                    change = _joined(of(place + 1)["decision"])
                    text = f"{clipped(text, LONGEST - len(change) - 12)} (amended: {change})"
            elif kind == "decision" and place and not labeled and _needs_question(text, messages[place - 1]):
                if of(place - 1).get("decision"):
                    continue  # it only chooses what the question before proposes
                text = f"{clean(messages[place - 1].sentences[-1].text)} {text}"
            if len(subject_stems(text.replace(MARK, " "))) < (1 if labeled else MIN_WORDS):
                continue
            probability = max(one.probability for one in group)
            spoken = messages[place + 1] if settled is not turn else message
            changes = probability if kind == "report" else spoken.acts.get("revise", 0.0)
            items.append(
                Item(
                    kind,
                    clipped(text, LONGEST),
                    settled.number,
                    settled.at,
                    sources,
                    message.role,
                    probability,
                    changes,
                    _heard(spoken, text) if kind in CHANGEABLE else (),
                )
            )
    return items


def _heard(message: Message, text: str) -> tuple[str, ...]:
    said = content_stems(word_list(message.content[:HEARD]))
    return tuple(sorted(said - content_stems(word_list(text))))


def _groups(sentences: Sequence[_Found]) -> list[list[_Found]]:
    """Joins neighboring sentences of one message that fit into one item."""
    groups: list[list[_Found]] = []
    for one in sentences:
        if (
            groups
            and not one.labeled
            and one.place - groups[-1][-1].place <= MAX_GAP
            and sum(len(other.text) for other in groups[-1]) + len(one.text) <= LONGEST
        ):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _amended(messages: Sequence[Message], place: int, of: Callable[[int], _ByKind]) -> bool:
    """Whether the user took the agent's proposal, message number `place`, with a change of his own."""
    if place + 1 >= len(messages) or messages[place].role != "agent" or messages[place + 1].role != "user":
        return False
    after = messages[place + 1]
    share = after.acts.get("accept", 0.0) + after.acts.get("amend", 0.0)
    if share < AMENDS or not of(place).get("decision"):
        return False
    change = _joined(of(place + 1).get("decision", ()))
    if not subject_stems(change) or len(change) > LONGEST_CHANGE:
        return False
    return not (_chosen(messages[place]) and len(change.split()) <= SHORT_ANSWER)  # it only says which option


def _joined(sentences: Sequence[_Found]) -> str:
    return " ".join(clean(one.text) for one in sentences)


def _needs_question(text: str, before: Message) -> bool:
    """Whether an answer is so short that only the question before it says what it is about."""
    return (
        len(text.split()) <= SHORT_ANSWER
        and bool(before.sentences)
        and before.sentences[-1].text.rstrip().endswith("?")
    )


def clean(text: str) -> str:
    """Returns a sentence on one line, without emphasis marks."""
    return " ".join(re.sub(r"\*\*|__|(?<!\w)\*(?=\S)|(?<=\S)\*(?!\w)", "", text).split())


def clipped(text: str, longest: int) -> str:
    """Returns a text of at most `longest` characters, cut at a clause border or a word, with an ellipsis."""
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    for mark in (". ", "; ", ", ", " "):
        cut = head.rfind(mark)
        if cut > longest // 2:
            return head[:cut].rstrip(" ,;.") + "…"
    return head + "…"
