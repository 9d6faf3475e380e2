"""Which of the options before it an answer chooses: "b", "option 2", "1 and 3", "1 to 4", "the last one"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_server.understanding.cues import cues, word_list

MOST_SENTENCES, MOST_WORDS = 3, 12
"""Sentences of a message of which one alone may name an option, and words of its beginning that may."""

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
_BEFORE_NUMBER = ("the", "to", "die", "das", "option")
_AFTER_A = ("please", "then", "without", "with", "and", "but", "!", "is")
_CHAINING, _RANGE = ("and", "n", "plus", "both", "und", "i"), ("to", "through", "until", "bis", "do")
"""Words between two options that are chosen together, and between the first and the last of several."""

_MARKED_A = re.compile(r"\W*a[.,;:)!]", re.IGNORECASE)
_REFUSES = re.compile(r"\W*\w\s+(?:never\b|not\b|no way\b|no\s*(?:[.!?]|$))", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?…](?:\s|$)|\n")


@dataclass(frozen=True, slots=True)
class Choice:
    """The options that an answer chooses, counted from 1. `by_order`: the answer says "the second one", not "2"."""

    options: tuple[int, ...] = ()
    by_order: bool = False


def choice_of(content: str, words: Sequence[str], sentences: Sequence[str], last: int) -> Choice:
    """Returns what an answer chooses.

    Args:
        content: the answer.
        words: its words, in English.
        sentences: its sentences.
        last: the number of the last option of the message before, or 0.
    """
    words = words[:MOST_WORDS]
    for place, word in enumerate(words):
        before, after = words[place - 1] if place else "", words[place + 1] if place + 1 < len(words) else ""
        names_option = before in _BEFORE_OPTION or (place == 0 and _is_option_alone(content, words, last))
        if _option(word) and names_option:
            if place == 0 and _REFUSES.match(content):  # "c never. b sounds good"
                rest = " ".join(sentences[1:])
                return choice_of(rest, word_list(rest), sentences[1:], last) if rest else Choice()
            return Choice(_chain(word, _rest_of_sentence(content, words, place), last))
        stands_alone = word[0].isdigit() and after in ("", "one", "option")  # "yeah 2nd one", not "on the 2nd of May"
        if place and before not in _BEFORE_NUMBER and not stands_alone:
            continue
        if word in _NUMBERS:
            return Choice(_chain(word, _rest_of_sentence(content, words, place), last), by_order=True)
        if word in _MIDDLE and last % 2:
            return Choice((last // 2 + 1,), by_order=True)
        if word in _LAST and _number(after) < 2:  # not "the last two"
            return Choice((last,) if last else (), by_order=True)
    named = (_only_option(word_list(sentence)) for sentence in sentences[:MOST_SENTENCES])
    return Choice(next(((option,) for option in named if option), ()))


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
    found, through, ended = [_number(first)], False, False
    for place, word in enumerate(words):
        number = _number(word) if word != "a" and _form(word) == _form(first) else 0
        number = 0 if last and number > last else number
        if ended and number and number not in found and "no" not in cues(words[place - 1]):
            return ()
        if not ended and number > found[-1]:
            found += range(found[-1] + 1, number + 1) if through else [number]
        elif word not in _CHAINING and word not in _RANGE:
            ended = True
        through = word in _RANGE
    return tuple(found)


def _only_option(words: Sequence[str]) -> int:
    """Returns the option that a sentence names which says nothing else ("2.", "then b"), or 0."""
    said = [word for word in words if word[0].isalnum()]
    if not said or len(said) > 2 or (len(said) == 2 and said[0].isdecimal()):
        return 0
    return _option(said[-1])


def _option(word: str) -> int:
    """Returns the option that a word names by a number from 1 to 7 or a letter from a to f, or 0."""
    if word.isdecimal():
        return int(word) if 0 < int(word) < 8 else 0
    return ord(word) - ord("a") + 1 if len(word) == 1 and "a" <= word <= "f" else 0


def _number(word: str) -> int:
    return _option(word) or _NUMBERS.get(word, 0)


def _form(word: str) -> str:
    return "number" if word.isdecimal() else "letter" if len(word) == 1 else "word"
