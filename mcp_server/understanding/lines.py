"""Builds the text of an item (its line), which quotes the sentences that state the item.

A decision of the agent is quoted with the user's answer, a short answer with the question: "How many copies should it
keep? (answer: ten)".
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mcp_server.understanding.cues import cues, subject_stems
from mcp_server.understanding.features import Features, Message, line_features
from mcp_server.understanding.judging import (
    Found,
    ItemKind,
    Judged,
    as_found,
    chosen_options,
    clean,
    joined,
    likeliest,
    option_of,
    text_of,
)
from mcp_server.understanding.replies import (
    ACCEPTS,
    ADDS,
    AMENDS,
    LONGEST,
    LONGEST_ANSWER,
    PLAIN_ANSWER,
    REFUSES,
    begins_with_yes,
    has_new_number,
    is_change,
    is_refusal,
    only_agrees,
    refers,
    with_answer,
)
from mcp_server.understanding.sentences import Part, answers_by_number, clipped_at_clause, is_question

LEFT_OPEN, POSTPONES = 0.2, 2.0
"""An answer postpones a proposal if an open item among its sentences is at least as likely as `LEFT_OPEN`, and
acceptance, amendment and directive together are less likely than it is, times `POSTPONES`: "I have to think about
that"."""

PROPOSES = 0.4
"""A message makes a proposal if the probability is at least this, whatever its words are."""


WHOLE_ANSWER = 100
"""An answer of at most this many characters is never shortened: "tue ok. skip 50" says two things in few words."""

WHOLE_MESSAGE = 240
"""Of a user's message of at most this many characters, an item quotes every sentence except questions and sentences of
other items: "One thing: secrets. I'd rather have them in Vault." """

GAP = 120
"""Most characters of a sentence of the user that is quoted because it is between two quoted ones: "Grinding costs
7,400." explains the "has to be" after it."""

SHORT = 200
"""Characters. A longer decision is shortened to the sentences that settle it."""

SETTLES, AMENDING, LISTED = 0.5, 0.3, 0.2
"""A sentence settles a decision if its probability is at least this share of the likeliest sentence's: `SETTLES` in a
statement, `AMENDING` in an answer that is quoted with a proposal, `LISTED` in a list, whose points stay together."""

JOINS = 0.1
"""The likeliest sentence of an item of the user is quoted with an earlier one only if that one is at least this share
as likely. Of 135 earlier sentences of `train/` that are less likely, readers called 9 needed and 111 out of place."""

CLEAR = 3
"""A decision of the user with at least this many words about its subject is quoted without the agent's words."""

ASKED = 0.05
"""A sentence of the agent is quoted with a short answer if the probability of a decision is at least this."""

SHORT_ANSWER = 5
"""An answer with at most this many words about its subject can only be understood with the message before it."""

LONG_ANSWER = 10
"""An answer with more words about its subject than this can be understood without the question."""

SHORT_CHOICE = 4
"""Most words of an answer that only says which option is chosen."""

_POINTS_BACK = re.compile(
    r"(?:\S+ ){0,3}?(?:(?:he|she|they|his|her|their|him|them|these|those|both|it|its)\b"
    r"|(?:this|that)(?=['’]s\b|[.,;!]| (?:is|was|will|would|means|makes|gives|goes|has|needs)\b))",
    re.IGNORECASE,
)
"""The beginning of a sentence about something that the sentence before it names: "I would throttle it during the
day."."""

_DEPENDS = re.compile(
    r"(?:or|nor|but|because|as|which|who|whom|whose|where|than|though|although|unless|until|that|not|so)\b"
)
"""The beginning of a clause that depends on the one before it."""

_WANTS = re.compile(r"\b(?:what|which|who|whom|whose|when|where|why|how|or)\b", re.IGNORECASE)
"""A word of a question that asks for more than yes or no: "Which cluster?", "The floor or the wall?"."""

_PERSON = re.compile(r"(?:and |but |so )?(?:he|she|his|her|him)\b", re.IGNORECASE)
_NAME = re.compile(r"(?<=[a-zà-ž,;:] )[A-ZÀ-Ž][\w-]+")
_DAYS = frozenset((*calendar.day_name, *calendar.month_name))

_PRONOUN = re.compile(r"\b(?:s?he|it|its|they|them|their|his|hers?|him|this|that|these|those)\b", re.IGNORECASE)
_CLAUSE_END = re.compile("[,;:]")

APART: Mapping[str, float] = {"open": 0.6, "decision": 0.5}
"""A sentence may be an item of its own beside that of the sentence before if its probability is at least this."""

NAMED_BEFORE = 3
"""Number of messages before a pronoun in which the person's name is looked for."""

MAX_GAP = 3
"""Greatest distance, in sentences, between neighboring sentences of one item."""


@dataclass(frozen=True, slots=True)
class Line:
    """The text of an item: `group` are the sentences of the message that states it, `settled` is the place of the
    message that settles it, `quotes` are the places of all quoted sentences, each with its message. `short` is the text
    without the sentences that only explain a decision."""

    text: str
    group: Sequence[Found]
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


def postpones(messages: Sequence[Message], place: int, of: Callable[[int], Judged]) -> bool:
    """Returns whether message number `place` of the user postpones the agent's proposal before it: it states an open
    item rather than a decision, and accepts nothing ("I should not like to decide that over her head.")."""
    answer = messages[place]
    if answer.role != "user" or not place or "decision" not in of(place - 1).found:
        return False
    if answer.choice.options and messages[place - 1].has_options:
        return False
    takes = answer.acts.get("accept", 0.0) + answer.acts.get("amend", 0.0) + answer.acts.get("directive", 0.0)
    left_open = likeliest(of(place), "open")
    return left_open >= LEFT_OPEN and left_open > likeliest(of(place), "decision") and takes < POSTPONES * left_open


def decision_lines(
    messages: Sequence[Message], place: int, of: Callable[[int], Judged]
) -> Iterator[tuple[Line, Features]]:
    """Yields the lines of decisions of message number `place`, each with the features by which it is judged."""
    for line in _decisions(messages, place, of):
        said = [messages[at] for at in line.places]
        shares = [of(at).shares[sentence] for at, sentence in line.quotes]
        likeliest = max(one.probability for one in line.group)
        yield line, line_features(line.text, said, shares, likeliest)


def _decisions(messages: Sequence[Message], place: int, of: Callable[[int], Judged]) -> list[Line]:
    """Returns the decisions that message number `place` states or proposes."""
    return (_proposed if messages[place].role == "agent" else _stated)(messages, place, of)


def _proposed(messages: Sequence[Message], place: int, of: Callable[[int], Judged]) -> list[Line]:
    """Returns the decisions that a message of the agent proposes or states.

    They are settled by the user's answer, which is quoted with them, unless it only says yes. If there are several, an
    answer that changes nothing is quoted with the last one, and with lists, whose points it may choose.
    """
    found, answered = of(place).found["decision"], place + 1 < len(messages) and messages[place + 1].role == "user"
    only_chooses = bool(chosen_options(messages[place])) and len(messages[place + 1].words) <= SHORT_CHOICE
    if only_chooses:  # then what is said after the options is not quoted: "Before choosing I would time one."
        options = [one.place for one in found if option_of(messages[place], messages[place].sentences[one.place])]
        found = [one for one in found if one.place <= max(options, default=one.place)]
    groups = [_without_repeated(group, messages, place) for group in groups_of(found, "decision")]
    if not answered:
        return [Line(joined(group), group, place, _at(place, group), joined(_settling(group))) for group in groups]
    reply, answer = messages[place + 1], _answer(messages, place, of)
    if parts := _parts(messages, place, of):
        return [_of_part(part, messages, place, of) for part in parts]
    lines: list[Line] = []
    goes_on = not answer and "decision" in of(place + 1).found  # the rest is about something else
    begins = clean(reply.sentences[0].text) if goes_on else _beginning(reply)
    says_yes = (begins_with_yes(reply) and not has_new_number(reply)) or only_agrees(reply, begins)
    states_rule = any(one.place == 0 for one in of(place + 1).found.get("rule", []))
    changes_subject = len(subject_stems(begins)) >= CLEAR and (
        not refers(reply, messages[place], begins)
        or (states_rule and not answer and reply.acts.get("accept", 0.0) < ACCEPTS)
    )
    meant = _meant(groups, answer)
    if answer and is_refusal(reply):
        groups = [group for group in groups if group is meant or group[0].labeled]
    for group in groups:
        is_last, settling = group is groups[-1], _settling(group)
        question = _last_question(messages[place])
        if _answers_only(reply, messages[place], group):
            lines.append(Line(joined(group), group, place + 1, _at(place, group), joined(settling)))
            continue
        if question and is_last and group[-1].place < question.place and not group[0].labeled:
            group, settling = [*group, question], [*settling, question]
        text, short, quotes = joined(group), joined(settling), _at(place, group)
        if group[0].labeled:
            lines.append(Line(text, group, place, quotes, short))
            continue
        if only_chooses and not any(map(str.isalpha, subject_stems(reply.content))):
            pass  # "2" says no more than the chosen option
        elif answer and (group[0] is meant[0] or is_change(reply)):
            least = AMENDING * max(one.probability for one in answer)
            whole = joined(answer)
            if is_refusal(reply):
                about = subject_stems(whole)
                refused = [one for one in group if not about.isdisjoint(subject_stems(one.text))]
                text = short = joined(refused or settling)
            said = [one for one in answer if one.probability >= least and subject_stems(one.text)] or answer
            told = whole if len(whole) <= WHOLE_ANSWER else joined(said)
            text, short = with_answer(text, whole, reply), with_answer(short, told, reply)
            quotes = (*quotes, *_at(place + 1, answer))
        elif (
            begins  # empty if the reply is only code
            and not changes_subject
            and (is_question(text) or ((is_last or group[0].listed) and not (only_chooses or says_yes)))
        ):
            text, short = (with_answer(one, begins, reply) for one in (text, short))
        lines.append(Line(text, group, place + 1, quotes, short))
    return lines


def _meant(groups: Sequence[list[Found]], answer: Sequence[Found]) -> list[Found]:
    """Returns the proposal of several that an answer means: the last one, unless another one shares more words about
    the subject with it ("yes, decimetres")."""
    said = subject_stems(joined(answer))
    shared = [len(said & subject_stems(joined(group))) for group in groups]
    best = max(range(len(groups)), key=lambda at: (shared[at], at))
    return groups[best] if shared[best] > shared[-1] + 1 else groups[-1]


def _stated(messages: Sequence[Message], place: int, of: Callable[[int], Judged]) -> list[Line]:
    """Returns the decisions that a message of the user states, without those that are quoted with the agent's proposal.
    A short one is quoted with what the agent said before, if it replies to that."""
    after_agent = place > 0 and messages[place - 1].role == "agent"
    parts = _parts(messages, place - 1, of) if after_agent else []
    quoted = _answer(messages, place - 1, of) if after_agent and not parts else []
    taken = {at for part in parts for at in part.places}
    left = [
        one
        for one in of(place).found["decision"]
        if one.place not in taken and (not quoted or one.place > quoted[-1].place)
    ]
    lines: list[Line] = []
    for group in groups_of(left, "decision"):
        text, short, quotes = joined(group), joined(_settling(_likely(group))), _at(place, group)
        replies = after_agent and not quoted and not group[0].labeled and not _adds(group[0].text)
        is_short = replies and len(subject_stems(text)) <= SHORT_ANSWER
        if is_short and of(place - 1).found.get("decision"):
            continue  # it only chooses what the message before proposes
        if is_short and (_replies(messages, place, text) or messages[place - 1].acts.get("propose", 0.0) >= PROPOSES):
            asked = _asked(messages[place - 1], of(place - 1).shares)
            told = clipped_at_clause(joined(as_found(messages[place - 1], at) for at in asked), LONGEST // 2)
            if subject_stems(told) and len(subject_stems(short)) < CLEAR:
                short = f"{told} {short}".lstrip()
            text, quotes = f"{told} {text}".lstrip(), (*((place - 1, at) for at in asked), *quotes)
        lines.append(Line(text, group, place, quotes, short))
    return lines


def _parts(messages: Sequence[Message], place: int, of: Callable[[int], Judged]) -> list[Part]:
    """Returns the parts of the user's answer to the agent's message number `place`, if it answers the numbered points
    of that message one by one ("1 yes. 2 no."). Parts whose point neither proposes nor asks anything are left out."""
    if place + 1 >= len(messages) or messages[place].role != "agent" or messages[place + 1].role != "user":
        return []
    before, shares = messages[place], of(place).shares
    open_points = {
        one.option
        for one, share in zip(before.sentences, shares, strict=False)
        if share["decision"] >= ASKED or is_question(one.text)
    }
    parts = answers_by_number(messages[place + 1].sentences, before.sentences)
    return [part for part in parts if part.number in open_points]


def _of_part(part: Part, messages: Sequence[Message], place: int, of: Callable[[int], Judged]) -> Line:
    """Returns the line of a numbered point of the agent's message, with the part of the answer that belongs to it."""
    before, shares = messages[place], of(place).shares
    group = [
        replace(as_found(before, at), probability=shares[at]["decision"])
        for at, one in enumerate(before.sentences)
        if one.option == part.number
    ]
    point, said = clipped_at_clause(joined(_settling(group)), LONGEST // 2), clean(part.text)
    verdict = cues(messages[place + 1].in_english(said.partition(" ")[0]))
    if "no" in verdict and not is_question(point):
        text = f"{said} (refused: {point})"
    elif "yes" in verdict and not subject_stems(said) and not is_question(point):
        text = point
    else:
        text = f"{point} (answer: {said})"
    return Line(text, group, place + 1, (*_at(place, group), *((place + 1, at) for at in part.places)))


def _last_question(message: Message) -> Found | None:
    """Returns the question at the end of a message, which the answer refers to, if it says what it is about."""
    text = message.sentences[-1].text if message.sentences else ""  # a message may be only code
    return Found(len(message.sentences) - 1, text, 0.0) if is_question(text) and subject_stems(text) else None


def told(
    messages: Sequence[Message], place: int, group: Sequence[Found], kind: ItemKind, of: Callable[[int], Judged]
) -> Line:
    """Returns the line of an item that is not a decision. If it has few words about its subject, the sentence before it
    is quoted, too ("One last thing: dates. Always with the weekday."), or the proposal that it postpones."""
    group = _likely(group) if messages[place].role == "user" else group
    around = group if group[0].labeled else _with_context(group, messages[place], kind, of(place))
    text, quotes = joined(around), _at(place, group)
    if group[0].labeled or len(subject_stems(text)) > SHORT_ANSWER or (kind == "open" and _adds(text)):
        return Line(text, group, place, quotes)
    at, sentence = place, around[0].place - 1
    if kind == "open" and postpones(messages, place, of):
        at, sentence = place - 1, max(of(place - 1).found["decision"], key=lambda one: one.probability).place
    elif sentence < 0 and kind == "open" and (_replies(messages, place, text) or _points_back(messages, place, text)):
        at, sentence = place - 1, len(messages[place - 1].sentences) - 1
    if sentence >= 0:
        first, said = sentence, [as_found(messages[at], one) for one in range(sentence + 1)]
        while at != place and first and len(subject_stems(joined(said[first:]))) < CLEAR:
            first -= 1
        told = joined(said[first:])
        if not _says_nothing(told):
            text = f"{clipped_at_clause(told, LONGEST // 2)} {text}"
            quotes = (*((at, one) for one in range(first, sentence + 1)), *quotes)
    return Line(text, group, place, quotes)


def completed(line: Line, message: Message, judged: Judged) -> Line:
    """Returns the line of a decision with the sentences of its message that belong to it (`_with_context`)."""
    group = _with_context(line.group, message, "decision", judged)
    if line.labeled or len(group) == len(line.group):
        return line
    settling = _settling(_likely(line.group) if message.role == "user" else line.group)
    leading = _leading(message, {one.place for one in settling})
    added = [one for one in group if one not in line.group]
    if len(joined([*settling, *added])) > SHORT:
        added = [one for one in group if one.place in leading and one not in settling]
    kept = sorted([*settling, *added], key=lambda one: one.place)
    short = line.short.replace(joined(settling), joined(kept))
    return replace(line, text=line.text.replace(joined(line.group), joined(group)), short=short)


def _with_context(group: Sequence[Found], message: Message, kind: ItemKind, judged: Judged) -> Sequence[Found]:
    """Returns the sentences of an item with further ones of the same message, so that the item can be understood alone:
    the sentences of a short message of the user, but before a rule and after any item only those that share a word
    about their subject with it; of a longer one the short sentences between the first and the last sentence of the
    item; of the agent's message only short points of a list between these. Questions, options that were
    not chosen and sentences of other items are left out, but a fact is added to an item with few words about its
    subject ("make it 15"), and what a sentence needs before it (`_leading`), in the agent's messages, too."""
    by_user = message.role == "user"
    places = {one.place for one in group}
    subject = subject_stems(joined(group))
    is_clear = sum(map(str.isalpha, subject)) >= CLEAR
    apart = (kind for kind in judged.found if kind != "report" and (is_clear or kind != "fact"))
    others = {one.place for kind in apart for one in judged.found[kind]} - places
    named = _leading(message, places)
    if is_short := by_user and len(message.content) <= WHOLE_MESSAGE:
        around = range(len(message.sentences))
    else:
        around = range(min(places | named), max(places))
    added = []
    for at in around:
        sentence = message.sentences[at]
        listed = sentence.layout in ("bullet", "row")
        if at in places | (others - named) or judged.rejected[at] or not (by_user or listed or at in named):
            continue
        if is_question(sentence.text) or _says_nothing(sentence.text):
            continue
        may_be_apart = is_short and (kind == "rule" or at > max(places)) and at not in named
        if may_be_apart and subject.isdisjoint(subject_stems(sentence.text)):
            continue
        if is_short or len(sentence.text) <= GAP:
            added.append(as_found(message, at))
    return sorted([*group, *added], key=lambda one: one.place)


def _leading(message: Message, places: Collection[int]) -> set[int]:
    """Returns the places of the sentences without which the ones at `places` are not understood: the one before a
    pronoun, and the earlier clauses of a sentence before one that depends on them ("or not only, but because …")."""
    found: set[int] = set()
    for at in places:
        while at > 0 and at - 1 not in (*places, *found):
            one, before = message.sentences[at], message.sentences[at - 1].text
            depends = _DEPENDS.match(one.text) and not one.apart and before[-1] not in ".!?:…"
            if not (depends or (at in places and _POINTS_BACK.match(one.text))):
                break
            at -= 1
            found.add(at)
    return found


def named(line: Line, messages: Sequence[Message], place: int) -> Line:
    """Returns the line of a user's message. If it begins with a pronoun for a person, the person's name is put in front
    ("Tomasz: His number is …"). This is done only if exactly one name is both in the agent's answer and in one of the
    messages before, and the line does not have it."""
    answered = place + 1 < len(messages) and messages[place + 1].role == "agent"
    if line.labeled or not answered or not _PERSON.match(line.text):
        return line
    before = frozenset().union(*(_names(one.content) for one in messages[max(0, place - NAMED_BEFORE) : place]))
    both = before & _names(messages[place + 1].content)
    if len(both) != 1 or not both.isdisjoint(line.text.split()):
        return line
    (name,) = both
    return replace(line, text=f"{name}: {line.text}", short=f"{name}: {line.short}" if line.short else "")


def with_question(line: Line, messages: Sequence[Message], place: int) -> Line:
    """Returns a line with the agent's question before the user's answer: "What is the router? (answer: A DrayTek Vigor
    2862.)". This is done if the line begins the answer to the question at the end of the agent's message, or to one
    of its numbered questions, and has few words about its subject, and the question asks for more than yes or no, or
    the line begins with a pronoun ("It has a ring above the u.")."""
    if line.labeled or not place or messages[place - 1].role != "agent":
        return line
    asked = _question_before(messages, place, min(line.quotes))
    is_understood_alone = len(subject_stems(line.text)) > LONG_ANSWER
    if asked is None or is_understood_alone or _says_nothing(asked.text):
        return line
    if not (_WANTS.search(asked.text) or _POINTS_BACK.match(line.text)):
        return line
    text, short = (f"{clean(asked.text)} (answer: {one})" if one else "" for one in (line.text, line.short))
    return replace(line, text=text, short=short, quotes=((place - 1, asked.place), *line.quotes))


def _question_before(messages: Sequence[Message], place: int, first: tuple[int, int]) -> Found | None:
    """Returns the question of the agent that the sentence `first` of the user's message number `place` answers."""
    before = messages[place - 1]
    parts = answers_by_number(messages[place].sentences, before.sentences)
    if not parts:
        return _last_question(before) if first == (place, 0) else None
    numbers = [part.number for part in parts if first[1] == part.places[0]] if first[0] == place else []
    asked = (at for at, one in enumerate(before.sentences) if one.option in numbers and is_question(one.text))
    return next((as_found(before, at) for at in asked), None)


def _names(text: str) -> frozenset[str]:
    """Returns the words with a capital letter inside of sentences, without days and months."""
    return frozenset(_NAME.findall(text[:LONGEST_ANSWER])) - _DAYS


def _replies(messages: Sequence[Message], place: int, text: str) -> bool:
    """Returns whether a text of the user replies to the last sentence of the agent: it is a question, or both share a
    word about their subject."""
    if not place or messages[place].role != "user" or messages[place - 1].role != "agent":
        return False
    last = [sentence.text for sentence in messages[place - 1].sentences[-1:]]
    return any(is_question(one) or not subject_stems(one).isdisjoint(subject_stems(text)) for one in last)


def _says_nothing(text: str) -> bool:
    """Returns whether a sentence has no word about a subject: "That's enough for today."."""
    return all("'" in stem for stem in subject_stems(text))


def _points_back(messages: Sequence[Message], place: int, text: str) -> bool:
    """Returns whether a text of the user says nothing without the agent's message before it: "I'll sleep on it."."""
    after_agent = place > 0 and messages[place - 1].role == "agent"
    return after_agent and sum(map(str.isalpha, subject_stems(text))) <= 1


def _answers_only(reply: Message, before: Message, group: Sequence[Found]) -> bool:
    """Returns whether the agent's message ends with a question about something else than its proposal `group`, and the
    reply only answers that: "The insurance goes to Helvar. And the electrician?", "1,720 for the spots."."""
    question = _last_question(before)
    if question is None or group[0].labeled or group[-1].place >= question.place or chosen_options(before):
        return False
    accepts, amends, refuses = (reply.acts.get(act, 0.0) for act in ("accept", "amend", "refuse"))
    if accepts + amends >= AMENDS or refuses >= REFUSES:
        return False
    asked = subject_stems(question.text)
    has_subject = len(asked) >= CLEAR or ADDS.match(question.text)  # not "How many would be sensible?"
    return bool(has_subject) and asked.isdisjoint(subject_stems(joined(group)))


def _at(place: int, sentences: Iterable[Found]) -> tuple[tuple[int, int], ...]:
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


def groups_of(sentences: Sequence[Found], kind: ItemKind) -> list[list[Found]]:
    """Joins neighboring sentences of one message that fit into one item of this kind."""
    groups: list[list[Found]] = []
    for one in sentences:
        if (
            groups
            and not one.labeled
            and not groups[-1][0].labeled
            and one.place - groups[-1][-1].place <= MAX_GAP
            and sum(len(other.text) for other in groups[-1]) + len(one.text) <= LONGEST
            and not _is_further_item(one, groups[-1][-1], kind)
        ):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [_without_heading_at_end(group) for group in groups]


def _without_heading_at_end(group: list[Found]) -> list[Found]:
    """Returns a group without sentences at its end that only announce the next one: "Retention:"."""
    end = len(group)
    while end > 1 and group[end - 1].text.endswith(":"):
        end -= 1
    return group[:end]


def _without_repeated(group: list[Found], messages: Sequence[Message], place: int) -> list[Found]:
    """Returns a proposal of the agent without its first sentence, if this only repeats what was just agreed: "Cutover
    10 November, 06:00 UTC. As a criterion I'd use the row count."."""
    known = subject_stems(" ".join(one.content for one in messages[max(0, place - 2) : place]))
    first = subject_stems(group[0].text)
    repeats = group[0].place == 0 and not is_question(group[0].text) and len(first) >= CLEAR and first <= known
    adds = len(group) > 1 and not subject_stems(joined(group[1:])) <= known
    return group[1:] if repeats and adds and not group[0].labeled else group


def _is_further_item(one: Found, before: Found, kind: ItemKind) -> bool:
    """Returns whether a sentence adds an item of the same kind to that of the sentence before: of two tasks each can be
    done without the other."""
    likely = kind in APART and min(one.probability, before.probability) >= APART[kind]
    return likely and not before.text.endswith(",") and _adds(one.text)


def _adds(text: str) -> bool:
    """Returns whether a sentence adds something that is understood without the sentence before: "And somebody has to
    renew the certificate.", not "And he has to sign it."."""
    points_back = _PRONOUN.search(_CLAUSE_END.split(text, 1)[0])
    return bool(ADDS.match(text)) and not points_back and sum(map(str.isalpha, subject_stems(text))) >= CLEAR


def _answer(messages: Sequence[Message], place: int, of: Callable[[int], Judged]) -> list[Found]:
    """Returns the user's sentences that are quoted with the agent's proposal, message number `place`.

    A plain acceptance ("No objections.") adds nothing to it and is not quoted, unless it shares a word with the
    proposal ("Grafana."). Sentences about something else are not quoted either: they share no word with the proposal,
    and the message does not accept, change or refuse it, or does so in a sentence before them ("Perfect. And the backup
    from last time: …"), or they begin as an addition ("By the way, …").
    """
    if place + 1 >= len(messages) or messages[place].role != "agent" or messages[place + 1].role != "user":
        return []
    before = subject_stems(messages[place].content)
    decided = of(place + 1).found.get("decision", [])
    added = (
        at
        for at, one in enumerate(decided)
        if at and _is_further_item(one, decided[at - 1], "decision") and before.isdisjoint(subject_stems(one.text))
    )
    answer = decided[: next(added, len(decided))]
    said = joined(answer)
    if not of(place).found.get("decision") or not subject_stems(said) or len(said) > LONGEST_ANSWER:
        return []
    plainly = len(said.split()) <= PLAIN_ANSWER and messages[place + 1].acts.get("accept", 0.0) >= ACCEPTS
    if (plainly and before.isdisjoint(subject_stems(said))) or not refers(messages[place + 1], messages[place], said):
        return []
    if _answers_only(messages[place + 1], messages[place], groups_of(of(place).found["decision"], "decision")[-1]):
        return []
    subject = subject_stems(said)
    goes_on = answer[0].place > 0 and len(subject) >= CLEAR and not chosen_options(messages[place])
    return [] if goes_on and subject.isdisjoint(before) else [*_verdict(messages[place + 1], answer), *answer]


def _verdict(reply: Message, answer: Sequence[Found]) -> list[Found]:
    """Returns the first sentence of a reply if it is short and comes before the quoted ones: "No.", "Bells."."""
    first = clean(reply.sentences[0].text)
    is_quoted = answer[0].place == 0 or len(first.split()) > SHORT_CHOICE or is_question(first)
    return [] if is_quoted else [Found(0, first, 0.0)]


def _beginning(message: Message) -> str:
    """Returns all of a short message, or the first sentence of a longer one."""
    whole = text_of(message)
    first = message.sentences[0].text if message.sentences else ""
    return whole if len(whole) <= WHOLE_ANSWER else clipped_at_clause(clean(first), LONGEST_ANSWER)


def _likely(group: Sequence[Found]) -> list[Found]:
    """Returns the sentences of an item of the user without the unlikely ones (`JOINS`) before the likeliest one."""
    likeliest = max(group, key=lambda one: one.probability)
    least = JOINS * likeliest.probability
    return [one for one in group if one.place >= likeliest.place or one.probability >= least]


def _settling(group: Sequence[Found]) -> list[Found]:
    """Returns the sentences of a decision that settle it, without those that only explain it or say nothing. The least
    likely ones are removed until the rest is short. The points of a list are removed together, and a clause is never
    removed alone."""
    most = max(one.probability for one in group)
    least = SETTLES * most
    counts = [one for one in group if one.probability >= least or subject_stems(one.text)]
    keeps_list = any(one.listed and one.probability >= LISTED * most for one in counts)
    for one in sorted(counts, key=lambda one: one.probability):
        if one.probability >= least or len(joined(counts)) <= SHORT:
            break
        if one.listed and not keeps_list:
            counts = [other for other in counts if not other.listed]
        elif not one.listed and one.text[-1] in ".!?:…":
            counts.remove(one)
    return _without_heading_at_end(counts)
