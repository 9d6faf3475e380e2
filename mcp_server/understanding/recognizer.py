"""Reads a conversation message by message and finds its items: decisions, rules, facts, open items, reports.

Three steps, all linear and all in the weights file: the dialogue acts of each message (does it propose, accept, refuse,
amend, direct, …), then for each sentence whether it states an item, given its words, its place, and the acts of its
message and of those before and after. A sentence of a proposal becomes a decision because the next message accepts it.
The sentences of an exchange that may state a decision form one line; the third step judges the line as a whole.

An item quotes the sentences that state it. What a program wrote under the role of the user is skipped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import pairwise
from typing import Literal

from mcp_server.model import Turn
from mcp_server.text.forgotten import MARK
from mcp_server.text.prose import is_injected
from mcp_server.text.words import languages_of
from mcp_server.understanding.cues import cues, word_list
from mcp_server.understanding.features import (
    READ,
    Features,
    Message,
    content_stems,
    line_features,
    message_features,
    sentence_features,
    subject_stems,
)
from mcp_server.understanding.model import Logistic, Model
from mcp_server.understanding.sentences import MAX_MESSAGE, Sentence, only_options, options_in
from mcp_server.understanding.settling import CHANGEABLE

ItemKind = Literal["decision", "rule", "fact", "open", "report"]

LEAST: Mapping[ItemKind, float] = {"decision": 0.05, "rule": 0.15, "fact": 0.12, "open": 0.25, "report": 0.04}
"""The least probability of a sentence that states an item, by kind (`benchmarks understand`, left-out writers).

It is low for decisions and reports, which are judged once more: decisions as a line, reports with the open item that
they may close."""

LEAST_OPEN_OF_AGENT = 0.4
"""The least probability of an open item that the agent states. Below it the agent mostly explains what such a case
demands: two of ten such lines were right (conversations that the weights had not seen)."""

LEAST_LINE = 0.35
"""The least probability that the quoted sentences together state a decision."""

LEFT_OPEN, POSTPONES = 0.2, 0.4
"""An answer postpones a proposal if an open item among its sentences is at least as likely as `LEFT_OPEN`, and
acceptance, amendment and directive together are less likely than this share of it: "I have to think about that"."""

LEAST_PLAIN = 0.15
"""`LEAST_LINE` for a proposal that the user plainly accepts: "yes, go with that"."""

SHORT_ACCEPTANCE, CUE_HEAD = 6, 40
"""Words of a plain acceptance, and characters in which it says yes."""

PROPOSES = 0.4
"""The probability of a proposal from which on a message makes one, whatever its words."""

AMENDS = 0.3
"""The probability of acceptance plus amendment from which on an answer takes the proposal, changed or not."""

AGREES = 8
"""An answer changes nothing if acceptance is at least this many times as likely as amendment and as refusal."""

REFUSES = 0.5
"""The probability of a refusal from which on an answer counts as a refusal of the proposal."""

CHANGES = 0.5
"""The probability of amendment plus refusal from which on an answer is quoted with each part of the proposal. Less is
enough if acceptance is even less likely."""

LONGEST_ANSWER = 240
"""Characters of an answer that is quoted with the proposal; a longer one is an item of its own."""

WHOLE_ANSWER = 100
"""Characters of an answer that is never shortened: "tue ok. skip 50" says two things in few words."""

LONGEST = 480
"""Characters of an item's text."""

SHORT = 200
"""Characters. A longer decision is shortened to the sentences that settle it."""

SETTLES, AMENDING = 0.5, 0.3
"""A sentence settles a decision if its probability is at least this share of the likeliest sentence's: `SETTLES` in a
statement, `AMENDING` in an answer that is quoted with a proposal."""

CLEAR = 3
"""A decision of the user with at least this many words about its subject is quoted without the agent's words."""

NEIGHBOR: Mapping[ItemKind, float] = {"decision": 0.5, "rule": 0.2, "fact": 0.2, "open": 0.25, "report": 0.2}
"""A sentence next to one that counts joins it from this share of the least probability on."""

ASKED = 0.05
"""The probability of a decision from which on a sentence of the agent is quoted with a short answer."""

LASTING: tuple[ItemKind, ...] = ("decision", "rule", "open")
LIKELY = 0.1
"""The probability of one of these kinds from which on a sentence may state it, whether an item quotes it or not."""

PROGRAM = 0.5
"""The probability from which on a message of the user is taken for a program's and skipped."""

SECOND: Mapping[ItemKind, float] = {"decision": 0.3, "rule": 0.5, "fact": 0.5, "open": 0.5, "report": 0.15}
"""A sentence counts for its likeliest kind, and for others from this share of that probability on."""

MIN_WORDS = 2
"""Words that say what an item is about, at least, unless it has a label: "No objections." alone is none."""

SHORT_ANSWER = 5
"""Words that say what an answer is about: with so many or fewer, only the message before it explains it."""

PLANS = 0.8
"""The probability of a proposal from which on the points of a list are a plan, not options."""

LONGEST_CHOICE = 12
"""Words of a sentence that may name an option of a list."""

SHORT_CHOICE = 4
"""Words of an answer that only says which option is chosen."""

PLAIN_ANSWER, ACCEPTS = 3, 0.5
"""Words of an answer that only accepts, and the probability of acceptance from which on it does."""

MAX_GAP = 3
"""Sentences of one item stand at most so far apart."""

HEARD = 600
"""Characters of a message in which the words of a replaced item are looked for."""

AHEAD, BEHIND = 3, 4
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

_NAME_ENDS = re.compile(r"[:;|(–—]|\s-\s|\.\s")
"""Ends the name of an option: "Stripe: best documentation"."""

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


@dataclass(frozen=True, slots=True)
class _Found:
    """A sentence that states an item of one kind. `listed`: it is a point of a list, or a row of a table."""

    place: int
    text: str
    probability: float
    labeled: bool = False
    listed: bool = False


_ByKind = dict[ItemKind, list[_Found]]


@dataclass(frozen=True, slots=True)
class _Judged:
    """A message's sentences: the probability of each kind, and those that state an item."""

    shares: Sequence[Mapping[str, float]]
    found: _ByKind


@dataclass(frozen=True, slots=True)
class _Line:
    """The text of an item: `group` are the sentences of the message that states it, `settled` is the place of the
    message that settles it, `quotes` are the places of all quoted sentences, each with its message. `short` is the text
    without the sentences that only explain a decision."""

    text: str
    group: Sequence[_Found]
    settled: int
    quotes: tuple[tuple[int, int], ...]
    short: str = ""

    @property
    def labeled(self) -> bool:
        return self.group[0].labeled

    @property
    def places(self) -> list[int]:
        """The messages that state and settle the item, oldest first."""
        return sorted({self.settled, *(at for at, _ in self.quotes)})


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
    messages = _linked(real)
    for message in messages:
        judge = model.user_acts if message.role == "user" else model.agent_acts
        message.acts = judge.probabilities(message_features(message))
    of = judging(messages, model.items)

    items: list[Item] = []
    likely: list[Likely] = []
    for place, turn in enumerate(real):
        if turn.number < first or (last is not None and turn.number > last):
            continue
        items += _items(real, messages, place, of, model)
        chosen = _chosen(messages[place])
        likely += [
            Likely(clean(sentence.text), turn.number, probability)
            for sentence, shares in zip(messages[place].sentences, of(place).shares, strict=False)
            if (probability := max(shares[kind] for kind in LASTING)) >= LIKELY
            and not (chosen and _option(messages[place], sentence) not in (0, *chosen))
            and not is_question(sentence.text)
            and len(sentence.text.split()) > SHORT_CHOICE
            and len(subject_stems(sentence.text)) >= MIN_WORDS
        ]
    return items, likely


def real_turns(turns: Iterable[Turn]) -> list[Turn]:
    """Returns the turns that a person or the agent wrote, as far as their marks tell."""
    said = [turn for turn in turns if turn.role != "system" and turn.content.strip()]
    injected = map(is_injected, [turn.content for turn in said])
    return [turn for turn, is_programs in zip(said, list(injected), strict=True) if not is_programs]


def is_real(turn: Turn) -> bool:
    """Returns whether a person or the agent wrote a turn, as far as its marks tell."""
    return bool(real_turns([turn]))


def _linked(turns: Sequence[Turn]) -> list[Message]:
    messages: list[Message] = []
    for turn, language in zip(turns, languages_of([turn.content[:READ] for turn in turns]), strict=True):
        before = messages[-1] if messages else None
        message = Message(turn.role, turn.content, bool(turn.tool_calls), before, language=language)
        if messages:
            messages[-1].next = message
        messages.append(message)
    return messages


def judging(messages: Sequence[Message], items: Logistic) -> Callable[[int], _Judged]:
    """Returns a function that judges the sentences of a message, given its place; it judges each message once."""

    @cache
    def of(place: int) -> _Judged:
        return _judged(messages[place], items)

    return of


def _judged(message: Message, items: Logistic) -> _Judged:
    if message.acts.get("program", 0.0) >= PROGRAM:
        return _Judged((), {})
    shares = [items.probabilities(sentence_features(message, place)) for place in range(len(message.sentences))]
    labels = [_labeled(sentence, message.role == "user") for sentence in message.sentences]
    clauses = {place: _clauses_after(message, place) for place, label in enumerate(labels) if label}
    labeled = {at for places in clauses.values() for at in places}
    chosen = _chosen(message)
    rejected = [bool(chosen) and _option(message, one) not in (0, *chosen) for one in message.sentences]
    found: _ByKind = {}
    for kind, least in LEAST.items():
        if kind == "open" and message.role == "agent":
            least = LEAST_OPEN_OF_AGENT
        left = [
            share[kind] if _may_state(kind, sentence, share, out, message.role == "agent") else 0.0
            for share, sentence, out in zip(shares, message.sentences, rejected, strict=True)
        ]
        for place, share in enumerate(left):
            if place in labeled:
                continue
            if label := labels[place]:
                if label[0] == kind:
                    text = " ".join((label[1], *(message.sentences[at].text for at in clauses[place])))
                    found.setdefault(kind, []).append(_Found(place, text, 1.0, labeled=True))
                continue
            beside = max(left[max(0, place - 1) : place + 2]) >= least and share >= NEIGHBOR[kind] * least
            if share >= least or beside:
                one = message.sentences[place]
                listed = one.layout in ("bullet", "row")
                text = only_options(one.text, chosen) if kind == "decision" and one.layout != "row" else one.text
                found.setdefault(kind, []).append(_Found(place, text, share, listed=listed))
    return _Judged(shares, found)


def is_question(text: str) -> bool:
    """Returns whether a text ends with a question mark."""
    return text.rstrip("*_ ").endswith("?")


def _may_state(
    kind: ItemKind, sentence: Sentence, shares: Mapping[str, float], is_rejected: bool, by_agent: bool
) -> bool:
    """Returns whether a sentence can state an item of this kind. `is_rejected`: it belongs to an option that was not
    chosen.

    A question states nothing, but an agent may put a proposal as a question, and a user a rule: "Could you always …?"
    """
    if kind == "decision" and is_rejected:
        return False
    if kind != "open" and is_question(sentence.text):
        may_ask = kind == ("decision" if by_agent else "rule")
        if not may_ask or len(subject_stems(sentence.text)) < MIN_WORDS:
            return False
    return shares[kind] >= SECOND[kind] * max(shares.values())


def _chosen(message: Message) -> tuple[int, ...]:
    """Returns the numbers of the listed options that the next message chooses, by number or by name."""
    if message.next is None:
        return ()
    picks = message.next.choice.options
    if not picks:
        return _named(message, message.next)
    options = {number for one in message.sentences for number in (_option(message, one), *options_in(one.text))}
    return picks if options.issuperset(picks) else ()


def _named(message: Message, answer: Message) -> tuple[int, ...]:
    """Returns the option that the beginning of an answer names ("stripe, yes"), if it names one only. The points of a
    plan are no options: "logs 14 days" changes one of them."""
    first = answer.sentences[0].text if answer.sentences else ""
    if message.acts.get("propose", 0.0) >= PLANS or is_question(first) or len(first.split()) > LONGEST_CHOICE:
        return ()
    names: dict[int, frozenset[str]] = {}
    for one in message.sentences:
        named = subject_stems(_NAME_ENDS.split(clean(one.text), 1)[0])
        names.setdefault(_option(message, one), frozenset(stem for stem in named if stem.isalpha()))
    names.pop(0, None)
    of_one = {stem for stem, count in Counter(stem for stems in names.values() for stem in stems).items() if count == 1}
    said = [subject_stems(word) & of_one for word in first.split()]
    chosen = tuple(number for number, stems in names.items() if any(stems & one for one in said))
    if len(chosen) != 1 or len(names) < 2:
        return ()
    around = first.split()[: said.index(next(filter(None, said))) + 2]
    return () if "no" in cues(" ".join(around)) else chosen


def _option(message: Message, sentence: Sentence) -> int:
    """Returns the option that a sentence belongs to, or 0. A list without numbers has options if the next message
    chooses by order ("the second one") or by name; a table only if it chooses by name."""
    if message.has_options or message.next is None:
        return sentence.option
    choice = message.next.choice
    if choice.by_order:
        return sentence.point if sentence.layout == "bullet" else 0
    return sentence.option if choice.options else sentence.point


def _labeled(sentence: Sentence, by_user: bool) -> tuple[ItemKind, str] | None:
    """Returns the kind that a sentence says it is, and its text without the label."""
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


def _items(
    turns: Sequence[Turn], messages: Sequence[Message], place: int, of: Callable[[int], _Judged], model: Model
) -> list[Item]:
    items: list[Item] = []
    for kind, sentences in of(place).found.items():
        if kind == "decision":
            lines = [
                (line, model.lines.probabilities(features)["decision"])
                for line, features in decision_lines(messages, place, of)
            ]
        else:
            lines = [
                (_told(messages, place, group, kind, of), max(one.probability for one in group))
                for group in _groups(sentences)
            ]
        for line, probability in lines:
            if line.labeled:
                probability = 1.0
            elif kind == "decision" and (
                probability < _least_of_line(line, messages)
                or (line.settled > place and _postpones(messages, line.settled, of))
            ):
                continue
            if len(subject_stems(line.text.replace(MARK, " "))) < (1 if line.labeled else MIN_WORDS):
                continue
            spoken, settled = messages[line.settled], turns[line.settled]
            items.append(
                Item(
                    kind,
                    clipped(line.text.rstrip(" ,;"), LONGEST),
                    settled.number,
                    settled.at,
                    tuple(turns[at].number for at in line.places),
                    messages[place].role,
                    probability,
                    probability if kind == "report" else spoken.acts.get("revise", 0.0),
                    _heard(spoken, line.text) if kind in CHANGEABLE else (),
                    clipped(line.short.rstrip(" ,;"), LONGEST) if line.short != line.text else "",
                    clean(max(line.group, key=lambda one: one.probability).text),
                )
            )
    decided = {item.text: item.probability for item in items if item.kind == "decision"}
    # One sentence stands on the page once: as a decision, unless it is likelier a rule or a fact.
    return [
        item for item in items if item.kind not in ("rule", "fact") or item.probability > decided.get(item.text, 0.0)
    ]


def _least_of_line(line: _Line, messages: Sequence[Message]) -> float:
    """Returns the least probability of a decision's line: a lower one if the user plainly accepts a proposal."""
    first, last = messages[line.places[0]], messages[line.settled]
    says_yes = last is not first and len(last.words) <= SHORT_ACCEPTANCE and "yes" in cues(last.english[:CUE_HEAD])
    accepts = says_yes and last.acts.get("accept", 0.0) >= last.acts.get("refuse", 0.0)  # "sure", not "not sure"
    proposes = first.acts.get("propose", 0.0) >= PROPOSES or {"propose", "choice"} & set(cues(line.text))
    return LEAST_PLAIN if accepts and proposes else LEAST_LINE


def _postpones(messages: Sequence[Message], place: int, of: Callable[[int], _Judged]) -> bool:
    """Returns whether message number `place` of the user postpones the agent's proposal before it: it states an open
    item rather than a decision, and takes nothing ("I should not like to decide that over her head.")."""
    answer = messages[place]
    if answer.role != "user" or not place or "decision" not in of(place - 1).found:
        return False
    if answer.choice.options and messages[place - 1].has_options:
        return False
    takes = answer.acts.get("accept", 0.0) + answer.acts.get("amend", 0.0) + answer.acts.get("directive", 0.0)
    left_open = _likeliest(of(place), "open")
    return left_open >= LEFT_OPEN and left_open > _likeliest(of(place), "decision") and takes < POSTPONES * left_open


def _likeliest(judged: _Judged, kind: ItemKind) -> float:
    """Returns the probability of the sentence of a message that states an item of this kind most likely."""
    return max((share[kind] for share in judged.shares), default=0.0)


def decision_lines(
    messages: Sequence[Message], place: int, of: Callable[[int], _Judged]
) -> Iterator[tuple[_Line, Features]]:
    """Yields the lines of decisions of message number `place`, each with the features by which it is judged."""
    for line in _decisions(messages, place, of):
        said = [messages[at] for at in line.places]
        shares = [of(at).shares[sentence] for at, sentence in line.quotes]
        likeliest = max(one.probability for one in line.group)
        yield line, line_features(line.text, said, shares, likeliest)


def _decisions(messages: Sequence[Message], place: int, of: Callable[[int], _Judged]) -> list[_Line]:
    """Returns the decisions that message number `place` states or proposes."""
    return (_proposed if messages[place].role == "agent" else _stated)(messages, place, of)


def _proposed(messages: Sequence[Message], place: int, of: Callable[[int], _Judged]) -> list[_Line]:
    """Returns the decisions that a message of the agent proposes or states.

    They are settled by the user's answer, which is quoted with them, unless it only says yes. If there are several, an
    answer that changes nothing is quoted with the last one, and with lists, whose points it may choose.
    """
    groups = _groups(of(place).found["decision"])
    if place + 1 >= len(messages) or messages[place + 1].role != "user":
        return [_Line(_joined(group), group, place, _at(place, group), _joined(_settling(group))) for group in groups]
    lines: list[_Line] = []
    reply, answer = messages[place + 1], _answer(messages, place, of)
    only_chooses = (
        bool(_chosen(messages[place])) and len(reply.words) <= SHORT_CHOICE
    )  # then only that option is quoted
    for group in groups:
        is_last, settling = group is groups[-1], _settling(group)
        question = _last_question(messages[place])
        if question and is_last and group[-1].place < question.place and not group[0].labeled:
            group, settling = [*group, question], [*settling, question]
        text, short, quotes = _joined(group), _joined(settling), _at(place, group)
        if group[0].labeled:
            lines.append(_Line(text, group, place, quotes, short))
            continue
        if answer and (is_last or _changes(reply)):
            least = AMENDING * max(one.probability for one in answer)
            whole = _joined(answer)
            said = [one for one in answer if one.probability >= least and subject_stems(one.text)] or answer
            told = whole if len(whole) <= WHOLE_ANSWER else _joined(said)
            text, short = _with_answer(text, whole, reply), _with_answer(short, told, reply)
            quotes = (*quotes, *_at(place + 1, answer))
        elif is_question(text) or ((is_last or group[0].listed) and not (only_chooses or _begins_with_yes(reply))):
            text, short = (_with_answer(one, _beginning(reply), reply) for one in (text, short))
        lines.append(_Line(text, group, place + 1, quotes, short))
    return lines


def _stated(messages: Sequence[Message], place: int, of: Callable[[int], _Judged]) -> list[_Line]:
    """Returns the decisions that a message of the user states. A short one is quoted with what the agent said before,
    if it replies to that."""
    after_agent = place > 0 and messages[place - 1].role == "agent"
    if after_agent and _answer(messages, place - 1, of):
        return []  # quoted with the proposal
    lines: list[_Line] = []
    for group in _groups(of(place).found["decision"]):
        text, short, quotes = _joined(group), _joined(_settling(group)), _at(place, group)
        is_short = after_agent and not group[0].labeled and len(subject_stems(text)) <= SHORT_ANSWER
        if is_short and of(place - 1).found.get("decision"):
            continue  # it only chooses what the message before proposes
        if is_short and (_replies(messages, place, text) or messages[place - 1].acts.get("propose", 0.0) >= PROPOSES):
            before = messages[place - 1].sentences
            asked = _asked(messages[place - 1], of(place - 1).shares)
            told = clipped(" ".join(clean(before[at].text) for at in asked), LONGEST // 2)
            if subject_stems(told) and len(subject_stems(short)) < CLEAR:
                short = f"{told} {short}".lstrip()
            text, quotes = f"{told} {text}".lstrip(), (*((place - 1, at) for at in asked), *quotes)
        lines.append(_Line(text, group, place, quotes, short))
    return lines


def _last_question(message: Message) -> _Found | None:
    """Returns the question at the end of a message, which the answer refers to, if it says what it is about."""
    place = len(message.sentences) - 1
    text = message.sentences[place].text
    return _Found(place, text, 0.0) if is_question(text) and subject_stems(text) else None


def _told(
    messages: Sequence[Message], place: int, group: Sequence[_Found], kind: ItemKind, of: Callable[[int], _Judged]
) -> _Line:
    """Returns the line of an item that is no decision. If it has few words about its subject, the sentence before it is
    quoted, too ("One last thing: dates. Always with the weekday."), or the proposal that it postpones."""
    text, quotes = _joined(group), _at(place, group)
    if group[0].labeled or len(subject_stems(text)) > SHORT_ANSWER:
        return _Line(text, group, place, quotes)
    at, sentence = place, group[0].place - 1
    if kind == "open" and _postpones(messages, place, of):
        at, sentence = place - 1, max(of(place - 1).found["decision"], key=lambda one: one.probability).place
    elif sentence < 0 and kind == "open" and _replies(messages, place, text):
        at, sentence = place - 1, len(messages[place - 1].sentences) - 1
    if sentence >= 0:
        told = clipped(clean(messages[at].sentences[sentence].text), LONGEST // 2)
        text, quotes = f"{told} {text}", ((at, sentence), *quotes)
    return _Line(text, group, place, quotes)


def _replies(messages: Sequence[Message], place: int, text: str) -> bool:
    """Returns whether a text of the user replies to the last sentence of the agent: it is a question, or both share a
    word about their subject."""
    if not place or messages[place].role != "user" or messages[place - 1].role != "agent":
        return False
    last = [sentence.text for sentence in messages[place - 1].sentences[-1:]]
    return any(is_question(one) or not subject_stems(one).isdisjoint(subject_stems(text)) for one in last)


def _at(place: int, sentences: Iterable[_Found]) -> tuple[tuple[int, int], ...]:
    return tuple((place, one.place) for one in sentences)


def _asked(message: Message, shares: Sequence[Mapping[str, float]]) -> list[int]:
    """Returns the sentences of an agent's message that a short answer refers to: the likeliest decision and a question
    at the end, or else the last sentence."""
    last = len(message.sentences) - 1
    if not shares:
        return []
    likeliest = max(range(last + 1), key=lambda at: shares[at]["decision"])
    asked = {likeliest} if shares[likeliest]["decision"] >= ASKED else set()
    if not asked or is_question(message.sentences[last].text):
        asked.add(last)
    return sorted(asked)


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
            and not groups[-1][0].labeled
            and one.place - groups[-1][-1].place <= MAX_GAP
            and sum(len(other.text) for other in groups[-1]) + len(one.text) <= LONGEST
        ):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _answer(messages: Sequence[Message], place: int, of: Callable[[int], _Judged]) -> list[_Found]:
    """Returns the user's sentences that are quoted with the agent's proposal, message number `place`.

    A plain acceptance ("No objections.") adds nothing to it and is not quoted. Neither are sentences about something
    else: they share no word with the proposal, and the message does not take, change or refuse it.
    """
    if place + 1 >= len(messages) or messages[place].role != "agent" or messages[place + 1].role != "user":
        return []
    answer = of(place + 1).found.get("decision", [])
    said = _joined(answer)
    if not of(place).found.get("decision") or not subject_stems(said) or len(said) > LONGEST_ANSWER:
        return []
    acts, words = messages[place + 1].acts, len(said.split())
    plainly = words <= PLAIN_ANSWER and acts.get("accept", 0.0) >= ACCEPTS
    replies = acts.get("accept", 0.0) + acts.get("amend", 0.0) >= AMENDS or acts.get("refuse", 0.0) >= REFUSES
    related = replies or is_question(messages[place].sentences[-1].text)
    related = related or not subject_stems(said).isdisjoint(subject_stems(messages[place].content))
    return [] if plainly or not related else answer


def _changes(answer: Message) -> bool:
    """Returns whether an answer changes or refuses a part of a proposal."""
    changes = answer.acts.get("amend", 0.0) + answer.acts.get("refuse", 0.0)
    return changes >= min(CHANGES, answer.acts.get("accept", 0.0))


def _with_answer(proposal: str, said: str, answer: Message) -> str:
    """Returns a proposal with the user's words; the words go first if they refuse the proposal."""
    left = clipped(proposal, LONGEST - len(said) - 12)
    accepts, amends, refuses = (answer.acts.get(act, 0.0) for act in ("accept", "amend", "refuse"))
    if refuses >= max(REFUSES, accepts + amends) and not _begins_with_yes(answer):
        return f"{said} (refused: {left})"
    word = (
        "answer" if accepts + amends < AMENDS else "agreed" if accepts >= AGREES * max(amends, refuses) else "amended"
    )
    return f"{left} ({word}: {said})"


def _begins_with_yes(answer: Message) -> bool:
    """Returns whether the first sentence takes the proposal: "Sounds right. Without Netlify, though."."""
    first = cues(answer.in_english(answer.sentences[0].text)) if answer.sentences else []
    return "yes" in first and "no" not in first


def _beginning(message: Message) -> str:
    """Returns a short message whole, of a longer one the first sentence."""
    whole = clean(message.content)
    first = message.sentences[0].text if message.sentences else ""
    return whole if len(whole) <= WHOLE_ANSWER else clipped(clean(first), LONGEST_ANSWER)


def _settling(group: Sequence[_Found]) -> list[_Found]:
    """Returns the sentences of a decision that settle it, without those that only explain it or say nothing. The least
    likely ones go until the rest is short. The points of a list go together, and a clause never goes alone."""
    least = SETTLES * max(one.probability for one in group)
    counts = [one for one in group if one.probability >= least or subject_stems(one.text)]
    is_listed = any(one.listed and one.probability >= least for one in counts)
    for one in sorted(counts, key=lambda one: one.probability):
        if one.probability >= least or len(_joined(counts)) <= SHORT:
            break
        if not is_listed if one.listed else one.text[-1] in ".!?:…":
            counts.remove(one)
    return counts


def _joined(sentences: Iterable[_Found]) -> str:
    """Returns sentences as one text. A semicolon separates the points of a list, a period ends the list."""
    text, before = "", False
    for one in sentences:
        if before and text[-1] not in ".!?:;,…":
            text += ";" if one.listed else "."
        text, before = f"{text} {clean(one.text)}", one.listed
    return text.lstrip()


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
