"""Splits a message into sentences and records the layout of each: paragraph, list, table, heading. Finds the options
that an answer chooses of those in the message before it: "b", "option 2", "1 and 3", "1 to 4", "the last one"."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from mcp_server.text.prose import sentences as whole_sentences
from mcp_server.understanding.cues import cues, word_list

Layout = Literal["paragraph", "bullet", "row", "heading"]

MAX_LINE = 4_000
"""Characters. A longer line is data, not prose, and is skipped."""

MAX_MESSAGE = 20_000
"""Characters of a message that are read."""

WRAPPED = 60
"""Characters. A line of at least this length counts as wrapped if the next word would make it the longest line of the
message: the next line continues its sentence."""

LONG = 220
"""Characters. A longer sentence, as in dictated text, is cut where a new clause begins."""

_FENCE = re.compile(r"^\s*(?:>\s*)*(`{3,}|~{3,})")
_RULE = re.compile(r"[|:\-\s=*_]+")
_LOGGED = re.compile(
    r"\W{0,3}(?:\d{4}-\d\d-\d\d[T ]|[A-Z][a-z]{2} [ \d]\d |\d\d[/.]\w{2,3}[/.]\d{2,4}[: ])?\d\d:\d\d:\d\d(?!\d)"
    r"|[\w./-]+: (?:fatal|error|warning)\b[^:]*: "
)
"""Begins a line of a program's output, which nobody says: a time with seconds, with or without the day, or
"psql: error: …"."""
_BULLET = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-fA-F][.)])\s+(?:\[([ xX])\]\s+)?")
_NUMBERED = re.compile(r"^\s*\(?(\d\d?)[.)]\s", re.MULTILINE)
_HEADING = re.compile(r"#{1,6}\s+")
_OPTION = re.compile(
    r"\s*(?:#{1,6}\s+)?[-*+•|]*\s*\**\s*\(?"
    r"(?:option|variant|variante|plan|opcija|nr\.?|no\.?|#)?\s*([1-9]|[A-Fa-f])\s*(?:[.):|–-]\**|\*\*)\s",
    re.IGNORECASE,
)
_BOLD = re.compile(r"\*\*\(?[1-9A-Fa-f](?:[.):]?\*\*[.):]?\s+|[.):]\s+(?=\S))")
"""The mark of an option in bold letters: "**A** SQLite in one file", "**b) Redis.** It is fast"."""

_LISTED = re.compile(r"(?<![^\s(])\(?(?:option\s+)?([1-9A-Fa-f])([.):,])\s+(?=\S)", re.IGNORECASE)
"""The mark of an option within a line."""

_TOLD = re.compile(
    r"\**(?:(?:(?:the|option|number) )?(one|two|three|four|first|second|third|fourth)(?: (?:option|choice|one))?"
    r"|(?:option|possibility|variant|alternative|choice|way) ([A-D1-4]))(?:\**[,:]\**| is\b)",
    re.IGNORECASE,
)
"""The beginning of a sentence that names an option: "The second is polars.", "**Two**: …", "Possibility B is …"."""

_LAST_OR = re.compile(r"[\s,;](?:or|and|oder|und|ili)$", re.IGNORECASE)
"""Between two options of a line."""

_CLAUSE = re.compile(
    r"(?<=[,;])\s+|\s+(?=(?:and|but|so|because|well|ok|also|then|listen)\s+"
    r"(?:i|we|he|she|they|the|you|if|it|when|please|that|there|my|no)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a message. `option` is the number of the listed option that it belongs to (A counts as 1), or 0. If
    one list has letters and another one numbers, only the first list has options. `point` is the number of its point in
    a list without numbers, or of its row in a table (0 for the first one, which names the columns), else 0. `box` is
    "open" or "ticked" for the first sentence behind a task box. `lettered`: options have letters, not numbers. `apart`:
    it begins a line, and does not continue the sentence of the line before."""

    text: str
    layout: Layout
    option: int = 0
    box: str = ""
    point: int = 0
    lettered: bool = False
    apart: bool = False


def sentences(message: str) -> list[Sentence]:
    """Returns the sentences of a message in order, without code blocks, lines of logs, table rules and list marks."""
    found: list[Sentence] = []
    lines: list[int] = []
    fence = ""
    option = point = 0
    lettered: bool | None = None
    rows = message[:MAX_MESSAGE].split("\n")
    longest, before = max(len(row.strip()) for row in rows), ""
    numbers = {int(number) for number in _NUMBERED.findall(message[:MAX_MESSAGE])}
    for line in rows:
        lines.append(len(found))
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
            continue
        if mark:
            fence = mark[1]
            continue
        text = line.strip()
        with_next = len(before) + 1 + len(text.split(" ", 1)[0])
        apart, before = len(before) < WRAPPED or with_next <= longest, text
        if not text or _RULE.fullmatch(text) or len(text) > MAX_LINE or _LOGGED.match(text):
            continue
        layout: Layout = "paragraph"
        box = ""
        numbered = _OPTION.match(line)
        if numbered and lettered is None:
            lettered = numbered[1].isalpha()
        if numbered and lettered == numbered[1].isalpha():
            option = _number(numbered[1])
        elif not numbered and not line[0].isspace() and not text.startswith(("|", "-", "*")):
            option = 0
        if text.startswith("|"):
            cells = [cell.strip() for cell in text.strip("|").split("|")]
            row = found[-1].point + 1 if found and found[-1].layout == "row" else 0
            found.append(
                Sentence(" | ".join(cell for cell in cells if cell), "row", option, point=row, lettered=bool(lettered))
            )
            point = 0
            continue
        if heading := _HEADING.match(text):
            layout, text = "heading", text[heading.end() :]
        elif (bullet := _BULLET.match(text)) and not _is_answer(text, numbers):
            layout, text = "bullet", text[bullet.end() :]
            box = "" if bullet[1] is None else "open" if bullet[1] == " " else "ticked"
            point += not (option or line[0].isspace())
        if layout != "bullet" and not line[0].isspace():
            point = 0
        if numbered and (bold := _BOLD.match(text)):
            text = ("" if "**" in bold[0][2:] else "**") + text[bold.end() :]
        parts = _with_options(split(text), option)
        found += [
            Sentence(part, layout, of, "" if place else box, point, bool(lettered), apart and not place)
            for place, (part, of) in enumerate(parts)
        ]
    return found if lettered is not None or any(one.option for one in found) else _with_told_options(found, lines)


def _with_told_options(found: list[Sentence], lines: Sequence[int]) -> list[Sentence]:
    """Returns the sentences of a message with the numbers of the options that it names in running text: "The first is
    pandas. The second is polars, which is stricter." Marks like "Option two:" and "First," are removed. `lines` are the
    places at which lines begin. If several options stand in one line, the sentences after the last one are about all of
    them and belong to no option."""
    marks: dict[int, re.Match[str]] = {}
    for place, one in enumerate(found):
        mark = _TOLD.match(one.text)
        if mark and (_NUMBERS[mark[1].lower()] if mark[1] else _number(mark[2])) == len(marks) + 1:
            marks[place] = mark
    if len(marks) < 2:
        return found
    *_, one_before, last = marks
    end = next((place for place in lines if place > last), len(found))
    if set(range(one_before + 1, last + 1)).isdisjoint(lines):
        end = next((at + 1 for at in range(last, end) if found[at].text.endswith((".", "!", "?"))), end)
    told = list(found)
    for number, (first, following) in enumerate(pairwise((*marks, end)), 1):
        for place in range(first, following):
            lettered = (marks[first][2] or "").isalpha()
            told[place] = replace(told[place], option=number, lettered=lettered)
        if marks[first][0].rstrip("*").endswith((",", ":")):
            text = found[first].text[marks[first].end() :].lstrip()
            told[first] = replace(told[first], text=text or found[first].text)
    return told


def _with_options(parts: Sequence[str], option: int) -> list[tuple[str, int]]:
    """Returns the sentences of a line, each with its option. A line may list several: "1: arrows. 2: mouse."."""
    marks = [_LISTED.match(part) for part in parts]
    numbers = {_number(mark[1]) for mark in marks if mark}
    found: list[tuple[str, int]] = []
    for part, mark in zip(parts, marks, strict=True):
        if mark and _number(mark[1]) == option + 1 and numbers & {option, option + 2}:
            option, part = option + 1, part[mark.end() :]
        found.append((part, option))
    return found


def options_in(sentence: str, lettered: bool | None = None) -> dict[int, tuple[int, int, int]]:
    """Returns where the options of a sentence stand that lists at least two of them ("a) dawn, b) dusk"): each with the
    place of its mark, of its text, and of its end. With `lettered`, only a list with letters, or with numbers."""
    marks: list[re.Match[str]] = []
    for mark in _LISTED.finditer(sentence):
        if lettered not in (None, mark[1].isalpha()):
            continue
        if _number(mark[1]) == len(marks) + 1 and (not marks or mark[2] == marks[0][2]):
            marks.append(mark)
    ends = [*(mark.start() for mark in marks[1:]), len(sentence)]
    places = [(mark.start(), mark.end(), end) for mark, end in zip(marks, ends, strict=False)]
    return dict(enumerate(places, 1)) if len(marks) > 1 else {}


def only_options(sentence: str, chosen: Collection[int], lettered: bool | None = None) -> str:
    """Returns a sentence without the options that it lists and that were not chosen (`options_in`)."""
    places = options_in(sentence, lettered)
    if not places or not places.keys() & set(chosen):
        return sentence
    texts = [sentence[start:end] for number, (_, start, end) in places.items() if number in chosen]
    kept = [_LAST_OR.sub("", text.strip(" (,;.!?")).rstrip(" ,;") for text in texts]
    return f"{sentence[: places[1][0]].rstrip(' (')} {', '.join(kept)}.".lstrip()


def split(text: str) -> list[str]:
    """Returns the sentences of a line; a long one is cut at clause borders."""
    return [clause for part in whole_sentences(text) for clause in (_clauses(part) if len(part) > LONG else [part])]


def _clauses(text: str) -> list[str]:
    """Cuts a long sentence at clause borders into parts of at least LONG / 3 characters."""
    parts: list[str] = []
    for clause in _CLAUSE.split(text):
        if parts and len(parts[-1]) < LONG // 3:
            parts[-1] += " " + clause
        else:
            parts.append(clause)
    if len(parts) > 1 and len(parts[-1]) < LONG // 6:
        last = parts.pop()
        parts[-1] += " " + last
    return parts


def _is_answer(text: str, numbers: Container[int]) -> bool:
    """Returns whether a line begins with a number that does not count the points of a list, because no point has the
    number before it: "36. They load in the evening."."""
    number = _NUMBERED.match(text)
    return number is not None and len(number[1]) > 1 and int(number[1]) - 1 not in numbers


def _number(mark: str) -> int:
    return int(mark) if mark.isdigit() else ord(mark.lower()) - ord("a") + 1


MOST_SENTENCES, MOST_WORDS = 3, 12
"""Number of sentences of which each may name an option alone, and number of words at the beginning of a message that
may name one."""

LONGEST_BEGINNING = 500
"""Characters in which the end of the first sentence is looked for."""

_NUMBERS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "one": 1, "two": 2, "three": 3, "four": 4, "former": 1,
    "1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "prvo": 1, "prva": 1, "drugo": 2, "druga": 2, "erste": 1, "zweite": 2,
    "dritte": 3,
}  # fmt: skip
_MIDDLE = ("middle", "mittlere", "srednje", "srednja")
_LAST = ("last", "latter", "letzte", "letztere", "letzteres", "poslednje", "poslednja", "zadnje")
_BEFORE_OPTION = frozenset(
    ["option", "variant", "plan", "number", "with", "take", "go", "for", "yes", "ok", "nehme", "opcija", "no", "nr"]
)
_BEFORE_NUMBER = ("the", "to", "die", "das", "option", "number")
_AFTER_A = ("please", "then", "without", "with", "and", "but", "!", "is")
_CHAINING, _RANGE = ("and", "n", "plus", "both", "und", "i"), ("to", "through", "until", "bis", "do")
"""Words between two options that are chosen together, and between the first and the last of several."""

_MARKED_A = re.compile(r"\W*a[.,;:)!]", re.IGNORECASE)
_LETTER_A = re.compile(r"(?<![.!?]\s)(?<!^)\bA\b|\b[Aa][).]")
_REFUSES = re.compile(r"\W*\w\s+(?:never\b|not\b|no way\b|no\s*(?:[.!?]|$))", re.IGNORECASE)
_IT_IS = re.compile(r"\b([a-f1-7]) it is\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?…](?:\s|$)|\n")


@dataclass(frozen=True, slots=True)
class Choice:
    """The options that an answer chooses, counted from 1. `by_order`: the answer says "the second one", not "2".
    `lettered`: it says "b", not "2"; None if it names no option so."""

    options: tuple[int, ...] = ()
    by_order: bool = False
    lettered: bool | None = None


def choice_of(content: str, words: Sequence[str], sentences: Sequence[str], last: int) -> Choice:
    """Returns what an answer chooses.

    Args:
        content: the answer.
        words: its words, in English.
        sentences: its sentences.
        last: the number of the last option of the message before, or 0.
    """
    if found := _IT_IS.search(content[:LONGEST_BEGINNING]):  # "c is out of the question, so b it is"
        return Choice((_option(found[1].lower()),), lettered=found[1].isalpha())
    words = words[:MOST_WORDS]
    for place, word in enumerate(words):
        before, after = words[place - 1] if place else "", words[place + 1] if place + 1 < len(words) else ""
        after_then = before == "then" and word.isalpha() and word != "a"  # "then b, I think"
        names_option = before in _BEFORE_OPTION or after_then or (place == 0 and _is_option_alone(content, words, last))
        if _option(word) and names_option:
            if place == 0 and _REFUSES.match(content):  # "c never. b sounds good"
                rest = " ".join(sentences[1:])
                return choice_of(rest, word_list(rest), sentences[1:], last) if rest else Choice()
            return Choice(_chain(word, _rest_of_sentence(content, words, place), last), lettered=word.isalpha())
        stands_alone = word[0].isdigit() and after in ("", "one", "option")  # "yeah 2nd one", not "on the 2nd of May"
        if place and before not in _BEFORE_NUMBER and not stands_alone:
            continue
        if word in _NUMBERS:
            return Choice(_chain(word, _rest_of_sentence(content, words, place), last), by_order=True)
        if word in _MIDDLE and last % 2:
            return Choice((last // 2 + 1,), by_order=True)
        if word in _LAST and _named_number(after) < 2:  # not "the last two"
            return Choice((last,) if last else (), by_order=True)
    named = (_only_option(word_list(sentence)) for sentence in sentences[:MOST_SENTENCES])
    word = next(filter(None, named), "") or (_only_letter(content, words, sentences) if last else "")
    return Choice((_option(word),), lettered=word.isalpha()) if word else Choice()


def _only_letter(content: str, words: Sequence[str], sentences: Sequence[str]) -> str:
    """Returns the only letter from b to f among an answer's first words ("I lean towards b"), or "" if it asks or
    refuses. An answer that also speaks of "A" may choose it."""
    letters = [word for word in words if len(word) == 1 and "b" <= word <= "f"]
    if len(set(letters)) != 1 or _LETTER_A.search(content[:LONGEST_BEGINNING]) or is_question("".join(sentences[:1])):
        return ""
    return "" if "no" in cues(" ".join(words[: words.index(letters[0]) + 1])) else letters[0]


def _is_option_alone(content: str, words: Sequence[str], last: int) -> bool:
    """Returns whether a first word of one letter names an option: "B", "a.", "b please", but not "a table …"; after a
    list also "a obviously"."""
    return words[0] != "a" or len(words) <= 1 + bool(last) or words[1] in _AFTER_A or bool(_MARKED_A.match(content))


def _rest_of_sentence(content: str, words: Sequence[str], place: int) -> Sequence[str]:
    """Returns the words behind number `place` that are in the first sentence."""
    ends = len(word_list(_SENTENCE_END.split(content[:LONGEST_BEGINNING], 1)[0]))
    return words[place + 1 : max(ends, place + 1)]


def _chain(first: str, words: Sequence[str], last: int) -> tuple[int, ...]:
    """Returns the first option and those that the other words of its sentence add: "1 and 2", "b, c", "1 to 4". Returns
    nothing if they also name others ("1 today, 2 next"), unless they say no to them ("a, not c"). `last` is the number
    of the last option, or 0 if it is not known."""
    found, through, ended = [_named_number(first)], False, False
    for place, word in enumerate(words):
        number = _named_number(word) if word != "a" and _form(word) == _form(first) else 0
        number = 0 if last and number > last else number
        if ended and number and number not in found and "no" not in cues(words[place - 1]):
            return ()
        if not ended and number > found[-1]:
            found += range(found[-1] + 1, number + 1) if through else [number]
        elif word not in _CHAINING and word not in _RANGE:
            ended = True
        through = word in _RANGE
    return tuple(found)


_BY_NUMBER = re.compile(r"\(?([1-9])\)?[.:]?\s+(?=\S)")
_NEXT_NUMBER = re.compile(r"[,;]\s+(?=\(?[1-9]\)?:?\s+[^\W\d])")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an answer: the number of the point that it answers, its text without the number, and the places of its
    sentences."""

    number: int
    text: str
    places: tuple[int, ...]


def answers_by_number(answer: Sequence[Sentence], before: Sequence[Sentence]) -> list[Part]:
    """Returns the parts of a message that answers the numbered points of the message before one by one: "1 yes. 2 only
    for B7, 3 no.". Returns nothing if the answer does not begin with the number of a point, or names one point only
    ("3 weeks"), or takes two together ("1 and 2 as one")."""
    points = {one.option for one in before if one.option and not one.lettered}
    found: list[Part] = []
    for place, sentence in enumerate(answer):
        for text in _NEXT_NUMBER.split(sentence.text):
            mark = _BY_NUMBER.match(text)
            number = int(mark[1]) if mark else sentence.option if sentence.layout == "bullet" else 0
            said = text[mark.end() :] if mark else text
            if number in points and (not found or number > found[-1].number):
                if word_list(said)[:1] in (["and"], ["to"]):
                    return []
                found.append(Part(number, said, (place,)))
            elif not found:
                return []
            elif number > found[-1].number:  # a further point of the user's own
                return found if len(found) > 1 else []
            else:
                last = found[-1]
                found[-1] = Part(last.number, f"{last.text} {text}", tuple(dict.fromkeys((*last.places, place))))
    return found if len(found) > 1 else []


def _only_option(words: Sequence[str]) -> str:
    """Returns the word of a sentence that names an option and says nothing else ("2.", "then b"), or ""."""
    said = [word for word in words if word[0].isalnum()]
    if not said or len(said) > 2 or (len(said) == 2 and said[0].isdecimal()):
        return ""
    return said[-1] if _option(said[-1]) else ""


def _option(word: str) -> int:
    """Returns the option that a word names by a number from 1 to 7 or a letter from a to f, or 0."""
    if word.isdecimal():
        return int(word) if 0 < int(word) < 8 else 0
    return ord(word) - ord("a") + 1 if len(word) == 1 and "a" <= word <= "f" else 0


def _named_number(word: str) -> int:
    return _option(word) or _NUMBERS.get(word, 0)


def _form(word: str) -> str:
    return "number" if word.isdecimal() else "letter" if len(word) == 1 else "word"


_ASKS = re.compile(
    r"(?:(?:and|but|so|ok|hey|btw),? )?(?:how (?:many|much|often|long|far)\b"
    r"|(?:what|which|where|who|why|how|when)(?:['’]s| (?:is|are|was|were|do|does|did|should|can|could|will|would)) "
    r"|(?:how|which) \w+ (?:is|are|was|were|do|does|did|should|can|could|will|would) "
    r"|(?:is|are|was|were|does|did|should|shall|can|could|will|would) (?:i|we|they|he|she|it|there|the|that|this|our) "
    r"|(?:do|have) (?:i|we|they|you) )",
    re.IGNORECASE,
)
"""The beginning of a question: a question word with a verb ("how wide is the door"), or a verb before its subject."""


def is_question(text: str) -> bool:
    """Returns whether a text ends with a question mark, or begins as a question in English and ends without a mark, as
    people write who type fast."""
    text = text.rstrip("*_ ")
    return text.endswith("?") or (not text.endswith((".", "!", ":", ";", "…", ")")) and bool(_ASKS.match(text)))


def clipped_at_clause(text: str, longest: int) -> str:
    """Returns a text of at most `longest` characters, cut at a clause border or a word, with an ellipsis."""
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    for mark in (". ", "; ", ", ", " "):
        cut = head.rfind(mark)
        if cut > longest // 2:
            return head[:cut].rstrip(" ,;.") + "…"
    return head + "…"
