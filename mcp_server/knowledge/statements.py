"""Statements: what named people tell of themselves in a message of an imported chat, sentence by sentence.

A statement is a sentence in which its speaker tells something of the speaker, and that stands by itself. Left out are
questions, greetings, thanks, praise and sympathy, sentences to the other one ("you"), sentences that begin with
a pronoun or speak of something that only the sentence before names, and sentences of which no word says anything
definite. Rather a fact is missed than a line made of small talk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from mcp_server.conversations.authorship import is_injected
from mcp_server.knowledge.tidying import split, tidied
from mcp_server.text.dates import absolute
from mcp_server.text.derived_lines import LineKind
from mcp_server.text.prose import bare, prose
from mcp_server.text.words import ENGLISH_STOP_WORDS, content_words, stop_words, words
from mcp_server.understanding import statement_patterns

SHORTEST, LONGEST = 3, 60
"""Words of a sentence."""

SAMPLE = 2_000
"""Characters of a message by which its language is told: in Serbian, "I" begins many a sentence too."""

LONGEST_LINE = 4_000
"""Characters of a line that is read: a longer one is data."""

LONGEST_TEXT = 420
"""Characters of a statement."""

LATE = 30
"""Characters before a liking from which on the sentence says something else first."""

LEAST_DEFINITE = 2
"""Words of a sentence that say something definite."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence worth keeping, as it was said but for its dates, which are absolute; `day` is the one it names."""

    kind: LineKind
    text: str
    day: date | None
    weight: float


def statements(text: str, said: date, speakers: frozenset[str] = frozenset()) -> Iterator[Statement]:
    """The statements of a message, in order. `speakers` are the names of those who talk; `said` is its day."""
    if is_injected(text) or stop_words(words(text[:SAMPLE])) is not ENGLISH_STOP_WORDS:
        return
    for sentence in sentences(text, speakers):
        found = statement(sentence, said)
        if found is not None:
            yield found


def sentences(text: str, speakers: frozenset[str] = frozenset()) -> Iterator[str]:
    """The sentences of a message without what opens and ends them as talk does: interjections, names, questions."""
    calls = _calls(speakers)
    for line in prose(statement_patterns.ATTACHED.sub(" ", text)):
        if len(line) > LONGEST_LINE:
            continue
        for part in split(statement_patterns.ARROWS.sub("", bare(line).replace("**", ""))):
            sentence = " ".join(part.split())
            for _ in range(3):
                before = sentence
                sentence = statement_patterns.NEWS.sub(
                    "", statement_patterns.CONJUNCTION.sub("", statement_patterns.OPENING.sub("", sentence))
                )
                if calls is not None:
                    sentence = calls.sub("", sentence)
                if sentence == before:
                    break
            yield from map(tidied, _without_question(sentence))


def _without_question(sentence: str) -> Iterator[str]:
    if sentence.endswith("?"):
        tail = statement_patterns.QUESTION_TAIL.search(sentence)
        if tail is None:
            return
        sentence = sentence[: tail.start()].rstrip(" ,;-–—") + "."
    sentence = statement_patterns.REQUEST_TAIL.sub(".", sentence)
    if sentence and not sentence.endswith(":"):
        yield sentence


def _calls(speakers: frozenset[str]) -> re.Pattern[str] | None:
    """The other one's name at the beginning or the end of a sentence, also shortened ("Mel")."""
    first = {name.split()[0] for name in speakers if name.strip()}
    if not first:
        return None
    short = "|".join(
        re.escape(name[:3]) + "".join(f"(?:{re.escape(letter)}" for letter in name[3:]) + ")?" * len(name[3:])
        for name in sorted(first)
    )
    return re.compile(
        rf"^(?:(?:hey|hi|hello|thanks|wow|woah|whoa|omg|haha|yeah|yep|yes|no|oh|aw+|well|ok|okay"
        rf"|sure)\s+)?(?:{short})\b(?:[,!.:–—-]+\s*|\s+(?=I\b|I['’]))"
        rf"|,\s*(?:{short})(?=\s*[.!?]*$)",
        re.IGNORECASE,
    )


def statement(sentence: str, said: date) -> Statement | None:
    """Returns a sentence as a statement; None if it is talk, depends on other sentences, or is not of its speaker."""
    count = len(sentence.split())
    if not SHORTEST <= count <= LONGEST or len(sentence) > LONGEST_TEXT:
        return None
    if not (statement_patterns.SELF.search(sentence) or statement_patterns.ELLIPTIC.match(sentence)):
        return None
    if (
        statement_patterns.ASKING.match(sentence)
        or statement_patterns.DANGLING.match(sentence)
        or statement_patterns.YOU.search(sentence)
        or statement_patterns.TALK.search(sentence)
    ):
        return None
    if (
        statement_patterns.ENDS_OPEN.search(sentence)
        or statement_patterns.FRAGMENT.search(sentence)
        or statement_patterns.DEICTIC.search(sentence)
    ):
        return None
    if not (statement_patterns.SUBJECT.match(sentence) or statement_patterns.ELLIPTIC.match(sentence)):
        own_late = re.search(r"\b(?:I|my|we|our)\b", sentence)
        if own_late is None or own_late.start() > 60:
            return None
    if statement_patterns.ALL_OF_US.search(sentence) and not re.search(r"\bI\b|\b[Mm]y\b", sentence):
        return None
    dated = absolute(sentence, said)
    definite = [
        word
        for word in content_words(sentence)
        if word not in statement_patterns.VAGUE and word not in statement_patterns.TIME_WORDS
    ]
    proper, figures = (
        len(set(statement_patterns.PROPER.findall(sentence))),
        len(statement_patterns.FIGURE.findall(sentence)),
    )
    if not _stands_alone(sentence, definite):
        return None
    kind = _kind(sentence, dated.past, dated.future)
    timed = dated.past or dated.future or dated.day is not None
    weight = _weight(definite, proper, figures, timed)
    if statement_patterns.ASPIRING.search(sentence) and not (proper or figures or timed):
        return None
    if len(definite) < LEAST_DEFINITE or weight < _least(sentence, kind, timed):
        return None
    return Statement(kind, dated.text, dated.day, weight)


def _least(sentence: str, kind: LineKind, timed: bool) -> float:
    """Returns the least weight of a sentence of this kind. Sayings and "we" without a time tell nothing definite."""
    if statement_patterns.SAYING.search(sentence) and kind != "preference":
        return 2.5
    if statement_patterns.WE_ALONE.search(sentence) and not re.search(r"\bI\b|\bI['’]|\b[Mm][ye]\b", sentence):
        told = (
            timed
            or statement_patterns.PAST.search(sentence)
            or statement_patterns.PLAN.search(sentence)
            or statement_patterns.HABIT.search(sentence)
        )
        return 1.0 if told else 2.5  # between friends it is a saying
    if not statement_patterns.SUBJECT.match(sentence) and not statement_patterns.ELLIPTIC.match(sentence):
        return 1.75
    if kind == "about":
        return 0.5 if statement_patterns.ABOUT.search(sentence) else 1.25
    return 0.75 if kind in ("preference", "decision", "lesson") else 1.0


def _kind(sentence: str, past: bool, future: bool) -> LineKind:
    if statement_patterns.DECISION.search(sentence):
        return "decision"
    learned = statement_patterns.LESSON.search(sentence)
    if learned is not None and not statement_patterns.RELATIVE.search(sentence[: learned.start()]):
        return "lesson"
    liked = statement_patterns.PREFERENCE.search(sentence)
    happened = past or statement_patterns.HAPPENED_VERB.match(sentence) is not None
    favourite = liked is not None and liked[0].lower().startswith(("my", "fav"))  # "I wrote down my favourite …"
    if liked is not None and not past and liked.start() <= LATE and not (favourite and happened):
        return "preference"
    if future or (statement_patterns.PLAN.search(sentence) and not past):
        return "plan"
    if happened or statement_patterns.DOING.match(sentence):
        return "event"
    if statement_patterns.ABOUT.search(sentence):
        return "about"
    return (
        "event"
        if statement_patterns.PAST.search(sentence) or re.search(r"\b(?:I|we)['’](?:ve|m|re)\b", sentence)
        else "about"
    )


def _weight(definite: list[str], proper: int, figures: int, timed: bool) -> float:
    """How much a statement holds: words that say something, names, figures, a time. Rounded, so that ties are ties."""
    return round(min(len(definite), 12) * 0.25 + min(proper, 4) * 0.5 + min(figures, 4) * 0.25 + timed * 1.0, 2)


def _stands_alone(sentence: str, definite: list[str]) -> bool:
    """Whether its pronouns have something in the sentence that they can stand for: the first one two definite words
    before it, "he" and "she" somebody, "they" several."""
    found = statement_patterns.PRONOUN.search(sentence)
    first = True
    while found is not None:
        if not _harmless(sentence, found):
            before = statement_patterns.VERBS_BEFORE.sub(" ", sentence[: found.start()])
            word = found[0].lower()[:4]
            if word.startswith(("he", "she", "him", "his")) and not word.startswith("here"):
                if not statement_patterns.PERSON_BEFORE.search(sentence[: found.start()]):
                    return False
            elif word.startswith("the") and word != "ther" and not statement_patterns.MANY_BEFORE.search(before):
                return False
            elif first:
                nouns = set(content_words(before)) - statement_patterns.TIME_WORDS
                if sum(word in nouns and not word.endswith("ly") for word in definite) < LEAST_DEFINITE:
                    return False
            first = False
        found = statement_patterns.PRONOUN.search(sentence, found.end())
    return True


def _harmless(sentence: str, found: re.Match[str]) -> bool:
    """Whether a pronoun points at nothing outside: "that" that joins clauses, "there is", "this year", "their" own."""
    word, after = found[0].lower(), sentence[found.end() :].lstrip()
    if word in ("their", "his", "her", "its"):
        return False
    if word == "that":  # it joins clauses, unless it points at a thing
        return not statement_patterns.POINTS_AT.search(
            sentence[: found.start()]
        ) and not statement_patterns.ENDS_AT.match(after)
    if word == "this":
        return bool(re.match(r"(?:year|month|week|weekend|morning|summer|winter|spring|fall)\b", after))
    if word == "there":
        return bool(re.match(r"(?:is|are|was|were)\b", after))
    return word in ("it", "it's", "it’s") and bool(
        re.match(r"(?:is |was |['’]s )?(?:been |hard |easy |great |important |took )", after)
    )
