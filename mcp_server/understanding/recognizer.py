"""Reads a conversation message by message and finds its items: decisions, rules, facts, open items, reports.

Three steps, all linear and all in the weights file: the dialogue acts of each message (does it propose, accept, refuse,
amend, direct, …), then for each sentence whether it states an item (`judging.py`), given its words, its place, and the
acts of its message and of those before and after. A sentence of a proposal becomes a decision because the next message
accepts it. The sentences of an exchange that may state a decision form one line (`lines.py`); the third step judges the
line as a whole.

An item quotes the sentences that state it. Messages that a program wrote under the role of the user are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mcp_server.model import Turn
from mcp_server.text.forgotten import MARK
from mcp_server.text.prose import is_injected
from mcp_server.text.words import languages_of
from mcp_server.understanding import encoder
from mcp_server.understanding.cues import content_stems, cues, directs, subject_stems, word_list
from mcp_server.understanding.features import READ, Message
from mcp_server.understanding.judging import (
    MIN_WORDS,
    ItemKind,
    Judged,
    chosen_options,
    clean,
    judging,
)
from mcp_server.understanding.lines import (
    PROPOSES,
    SHORT_CHOICE,
    Line,
    completed,
    decision_lines,
    groups_of,
    named,
    postpones,
    told,
    with_question,
)
from mcp_server.understanding.model import Model
from mcp_server.understanding.replies import LONGEST
from mcp_server.understanding.sentences import clipped_at_clause, is_question
from mcp_server.understanding.settling import CHANGEABLE

LEAST_LINE = 0.5
"""The least probability that the quoted sentences together state a decision."""

LEAST_PLAIN = 0.15
"""`LEAST_LINE` for a proposal that the user plainly accepts: "yes, go with that"."""

LEAST_DIRECTED = 0.02
"""`LEAST_LINE` for a plain directive of the user: "let's take the electric oven". In 147 left-out conversations a limit
of .1 finds as many decisions, but it misses "Let's go with the blue logo" at the beginning of a conversation."""

LEAST_SHORT, SHORT_MESSAGE = 0.4, 14
"""The least probability of a decision that a short message of the user states ("We use PostgreSQL for the backend."),
and the most words of such a message."""

SHORTEST_RULE = 3
"""Least words of a rule."""

SHORT_ACCEPTANCE, CUE_HEAD = 6, 40
"""Most words of a plain acceptance, and characters at its beginning in which it says yes."""

BESIDE = 0.7
"""A further decision of a message of the agent counts if it has at least this share of the likeliest one's probability.
Less likely ones mostly explain the likeliest one: of 36 such lines in 45 conversations, 7 were decisions."""

ALWAYS = re.compile(r"\b(?:always|never|ever|immer|nie|uvek|nikad)\b", re.IGNORECASE)
"""A rule with such a word is one, even if it is likelier to be a decision."""

TASK = 0.5
"""A message gives the agent a task if the probability is at least this, and a directive is not likelier. In 45
conversations two decisions were recognized in such messages, and both were wrong."""

_OBJECTS = re.compile(
    r"\b(?:decided|agreed|settled)(?: \w+){0,2} (?:against|not|otherwise)\b"
    r"|\b(?:we|you)(?:['’](?:ve|d)| have| had)?(?: already)? (?:refused|rejected|ruled out|dropped)\b",
    re.IGNORECASE,
)

ANSWERING: tuple[ItemKind, ...] = ("decision", "fact", "open")
"""Kinds of items that are quoted with the question that they answer."""

LASTING: tuple[ItemKind, ...] = ("decision", "rule", "open")

LIKELY = 0.1
"""A sentence may state an item of these kinds if the probability of one of them is at least this, whether an item
quotes the sentence or not."""

HEARD = 600
"""Characters of a message in which the words of a replaced item are looked for."""

AHEAD, BEHIND = 3, 4
"""Messages after and before a message that can change its items."""


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
    """The probability that the message or a quoted sentence revises something settled, or for a report that something
    is done."""
    heard: tuple[str, ...] = ()
    """Further content stems of the message that settled a decision or fact: what it replaces may be named there."""
    short: str = ""
    """The text without the sentences that only explain the decision; empty if it has none."""
    core: str = ""
    """The sentence of the text that states the item most likely."""


@dataclass(frozen=True, slots=True)
class Likely:
    """A sentence that states a decision, a rule or an open item with this probability, 0 to 1."""

    text: str
    turn: int
    probability: float


def read(turns: Sequence[Turn], model: Model, first: int = 0, last: int | None = None) -> list[Item]:
    """Returns the items of a conversation, in order; only those of turns numbered `first` to `last`, if given.

    The turns around them are context: with BEHIND messages before `first` and AHEAD messages after `last` the result
    is final.
    """
    return read_with_sentences(turns, model, first, last)[0]


def read_with_sentences(
    turns: Sequence[Turn], model: Model, first: int = 0, last: int | None = None
) -> tuple[list[Item], list[Likely]]:
    """Returns what `read` returns, and the sentences that may state a decision, a rule or an open item."""
    real = real_turns(turns)
    messages = linked(real)
    encoder.read(messages)
    for message in messages:
        message.acts = model.acts(message)
    of = judging(messages, model)

    items: list[Item] = []
    likely: list[Likely] = []
    for place, turn in enumerate(real):
        if turn.number < first or (last is not None and turn.number > last):
            continue
        items += items_of(real, messages, place, of, model)
        if is_task(messages[place]):
            continue  # the agent does it at once
        judged = of(place)
        likely += [
            Likely(clean(sentence.text), turn.number, probability)
            for sentence, shares, rejected in zip(
                messages[place].sentences, judged.shares, judged.rejected, strict=False
            )
            if (probability := max(shares[kind] for kind in LASTING)) >= LIKELY
            and not rejected
            and not is_question(sentence.text)
            and len(sentence.text.split()) > SHORT_CHOICE
            and len(subject_stems(sentence.text)) >= MIN_WORDS
        ]
    return items, likely


def real_turns(turns: Iterable[Turn]) -> list[Turn]:
    """Returns the turns that a person or the agent wrote, judged by the markers of programs."""
    said = [turn for turn in turns if turn.role != "system" and turn.content.strip()]
    injected = map(is_injected, [turn.content for turn in said])
    return [turn for turn, is_programs in zip(said, list(injected), strict=True) if not is_programs]


def is_real(turn: Turn) -> bool:
    """Returns whether a person or the agent wrote a turn, judged by the markers of programs."""
    return bool(real_turns([turn]))


def linked(turns: Sequence[Turn]) -> list[Message]:
    """Returns the messages of turns, each with the one before and after it."""
    messages: list[Message] = []
    for turn, language in zip(turns, languages_of([turn.content[:READ] for turn in turns]), strict=True):
        before = messages[-1] if messages else None
        message = Message(turn.role, turn.content, bool(turn.tool_calls), before, language=language)
        if messages:
            messages[-1].next = message
        messages.append(message)
    return messages


def items_of(
    turns: Sequence[Turn], messages: Sequence[Message], place: int, of: Callable[[int], Judged], model: Model
) -> list[Item]:
    """Returns the items of message number `place`."""
    items: list[Item] = []
    for kind, sentences in of(place).found.items():
        if kind == "decision":
            lines = [
                (line, model.lines.probabilities(features)["decision"])
                for line, features in decision_lines(messages, place, of)
            ]
        else:
            lines = [
                (told(messages, place, group, kind, of), max(one.probability for one in group))
                for group in groups_of(sentences, kind)
            ]
        for line, probability in lines:
            if line.labeled:
                probability = 1.0
            elif kind == "decision" and (
                probability < _least_of_line(line, messages)
                or (line.settled > place and postpones(messages, line.settled, of))
                or (line.settled == place and (is_task(messages[place]) or _is_objected_to(messages[place])))
            ):
                continue
            if not _says_enough(line, kind):
                continue
            if kind == "decision":
                line = completed(line, messages[place], of(place))
            if messages[place].role == "user":
                line = named(line, messages, place)
                if kind in ANSWERING:
                    line = with_question(line, messages, place)
            spoken, settled = messages[line.settled], turns[line.settled]
            items.append(
                Item(
                    kind,
                    clipped_at_clause(line.text.rstrip(" ,;"), LONGEST),
                    settled.number,
                    settled.at,
                    tuple(turns[at].number for at in line.places),
                    messages[place].role,
                    probability,
                    probability if kind == "report" else _revises(line, spoken, of(line.settled)),
                    _heard(spoken, line.text) if kind in CHANGEABLE else (),
                    clipped_at_clause(line.short.rstrip(" ,;"), LONGEST) if line.short != line.text else "",
                    clean(max(line.group, key=lambda one: one.probability).text),
                )
            )
    return _each_once(items)


def _each_once(items: Sequence[Item]) -> list[Item]:
    """Returns the items of a message without repetitions: a page shows each sentence once.

    A rule or fact with the text of a decision is left out if the decision is likelier, but not a rule with "always" or
    "never", and a fact with the text of a rule. A decision with the main sentence of a rule is left out, and a fact
    with the main sentence of an open item. So are decisions of the agent that are much less likely than another one of
    the message (`BESIDE`)."""
    likeliest = max((one.probability for one in items if one.kind == "decision" and one.probability < 1), default=0.0)
    items = [
        one
        for one in items
        if not (one.kind == "decision" and one.role == "agent" and one.probability < BESIDE * likeliest)
    ]
    decided = {item.text: item.probability for item in items if item.kind == "decision"}
    ruled = {item.text for item in items if item.kind == "rule"}
    kept = [
        item
        for item in items
        if item.kind not in ("rule", "fact")
        or item.probability > decided.get(item.text, 0.0)
        or (item.kind == "rule" and ALWAYS.search(item.core))
        if item.kind != "fact" or item.text not in ruled
    ]
    told = {(item.kind, item.core) for item in kept}
    again = {"decision": "rule", "fact": "open"}
    return [item for item in kept if (again.get(item.kind), item.core) not in told]


def _says_enough(line: Line, kind: ItemKind) -> bool:
    """Returns whether the text of an item says what it is about. A rule may do so with common words alone: "Keep your
    answers short.". Sentences that are only quoted with the rule do not count."""
    text = line.text.replace(MARK, " ")
    if kind == "rule" and not line.labeled:
        return sum(len(one.text.replace(MARK, " ").split()) for one in line.group) >= SHORTEST_RULE
    return len(subject_stems(text)) >= (1 if line.labeled else MIN_WORDS)


def is_task(message: Message) -> bool:
    """Returns whether a message of the user only gives the agent something to do: "drop the second font"."""
    if message.role != "user" or any(directs(one.text) for one in message.sentences):
        return False
    return message.acts.get("task", 0.0) >= max(TASK, message.acts.get("directive", 0.0))


def _is_objected_to(message: Message) -> bool:
    """Returns whether the agent answers a wish of the user with an earlier decision: "We decided against a broker;
    LISTEN/NOTIFY does that."."""
    answer = message.next
    said = answer.sentences[0].text if answer is not None and answer.role == "agent" and answer.sentences else ""
    return message.role == "user" and _OBJECTS.search(said) is not None


def _least_of_line(line: Line, messages: Sequence[Message]) -> float:
    """Returns the least probability of a decision's line: a lower one if the user plainly accepts a proposal, chooses
    an option, directs something or says little else."""
    first, last = messages[line.places[0]], messages[line.settled]
    if last is first and first.role == "user":
        if any(directs(first.sentences[at].text) for _, at in line.quotes):
            return LEAST_DIRECTED
        return LEAST_SHORT if len(first.words) <= SHORT_MESSAGE else LEAST_LINE
    if first.role == "agent" and last is not first and len(last.words) <= SHORT_MESSAGE and chosen_options(first):
        return LEAST_SHORT
    says_yes = last is not first and len(last.words) <= SHORT_ACCEPTANCE and "yes" in cues(last.english[:CUE_HEAD])
    accepts = says_yes and last.acts.get("accept", 0.0) >= last.acts.get("refuse", 0.0)  # "sure", not "not sure"
    proposes = first.acts.get("propose", 0.0) >= PROPOSES or {"propose", "choice"} & set(cues(line.text))
    return LEAST_PLAIN if accepts and proposes else LEAST_LINE


def _revises(line: Line, spoken: Message, judged: Judged) -> float:
    """Returns the probability that the message that settles an item, or a quoted sentence of it, revises something."""
    quoted = (judged.shares[at]["revise"] for place, at in line.quotes if place == line.settled)
    return max(spoken.acts.get("revise", 0.0), *quoted, 0.0)


def _heard(message: Message, text: str) -> tuple[str, ...]:
    said = content_stems(word_list(message.content[:HEARD]))
    return tuple(sorted(said - content_stems(word_list(text))))
