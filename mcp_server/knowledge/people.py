"""Finds what people say about themselves, in English conversations.

In conversations with an agent, sentences that say who the user is, or that are about the user's family, home, health or
habits, go to the user's page. In imported chats between named people, the statements of each person go to that person's
page: sentences in the first person that can be understood alone. Questions, sentences to the other person, and
sentences without definite words are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from mcp_server.text.dates import absolute
from mcp_server.text.entries import LineKind, tidied
from mcp_server.text.prose import is_injected
from mcp_server.text.words import ENGLISH_STOP_WORDS, stop_words, words
from mcp_server.understanding.cues import subject_stems
from mcp_server.understanding.judging import clean
from mcp_server.understanding.sentences import sentences

# ---------------------------------------------------------------- the user of an agent

LONGEST = 200
"""Maximum number of characters of a sentence of the user about the user. A longer sentence tells a story."""

LEAST_SUBJECTS = 2

_KIN = (
    r"(?:husband|wife|fianc[ée]e?|boyfriend|girlfriend|kids?|children|son|daughter|mom|mum|mother|dad|father|parents"
    r"|sister|brother|siblings?|grand\w+|aunt|uncle|cousin|niece|nephew|dog|cat|pup(?:py|s)?|kitten|horse)"
)
_TRADE = (
    r"(?:\w+(?:er|or|ist|ian|ant|ect)|nurse|chef|cook|student|veteran|widow|pilot|clerk|intern|vet|mechanic|mom|mum|dad"
    r"|parent|twin|lawyer|native|priest|scientist|professor)"
)
_ABOUT = re.compile(
    rf"\bI(?:['’]m| am) (?:an? (?!monster\b|winner\b|loser\b|sucker\b|better\b|big\b)(?:[\w-]+ ){{0,3}}?{_TRADE}\b"
    r"|\d\d(?: years old)?(?=[.,;!]|$| and\b)|from (?-i:[A-Z])|(?-i:[A-Z][a-z]+)"
    r"(?=[,;] an? | from (?-i:[A-Z])|[,;.](?: and)? I (?:am|run|own|work|live|teach|make|do)\b|[,;.](?: and)? I['’]m )"
    r"|(?:vegan|vegetarian|pregnant|retired|married|divorced|widowed|self-employed|left-handed|colou?r-?blind"
    r"|dyslexic|diabetic|deaf|allergic)\b)"
    r"|\bmy (?:name is|birthday is|home ?town is|native language is)\b|\b(?:please |just )?call me (?-i:[A-Z])\w+[.!]?$"
    r"|\bI (?:live|grew up|was born|studied|moved) (?:in|at|near|to|with)\b|\bI speak (?-i:[A-Z])"
    r"|\bI(?: have|['’]ve)? work(?:ed)? (?:as an?\b|for (?-i:[A-Z])|at (?:(?:an?|the) )?(?-i:[A-Z]))"
    rf"|\b(?-i:[A-Z])\w+ is (?:my|our) (?:\w+ )?{_KIN}\b"
    rf"|\b(?:my|our) (?:\w+ )?{_KIN}(?:['’]s)?(?: (?-i:[A-Z])\w+)? (?:is|are|was|has|have|and I|lives?"
    r"|works?|studies|turns|called)\b"
    rf"|\b(?:I|we)(?:['’]ve| have)? (?:have|had|got|adopted) (?:an?|two|three|four|five|\d+) (?:\w+ ){{0,2}}{_KIN}s?\b",
    re.IGNORECASE,
)
_PREFERENCE = re.compile(
    r"^(?:(?:also|and|but|well|oh|btw|by the way),? )*I (?:(?:really|generally|usually|always|much|absolutely) )?"
    r"(?:prefer|hate|dislike|love|can['’]t stand|like my)\b"
    r"(?! (?:it|that|this|these|those|them|how|your|the (?:idea|way|look|sound)|to (?:see|hear|know)|option|[a-d])\b)",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\?|\b(?:if|unless|would|could|might|maybe|perhaps|wonder\w*|imagine|thinking|worried|tired|sorry|trying|stuck|error"
    r"|confused|tell me|please|let me)\b|\bas an? \w+ (?:user|admin|customer|developer)\b",
    re.IGNORECASE,
)

_OTHER = (
    r"(?:(?:I|we)(?:['’](?:m|ve|d|ll|re)| am| are| was| want| need| would| will| feel| prefer| hate| dislike| love)"
    r"|it|that|then|please|you)\b"
)
_BREAK = re.compile(
    rf"[,;]\s+(?:so|but|because|since|while|which|and (?={_OTHER}))\s*"
    rf"|\s+(?:because\s|(?:so|but|and) (?={_OTHER}))",
    re.IGNORECASE,
)
"""Matches where another clause begins."""

_HERE = re.compile(r"\b(?:this|these|those)\b", re.IGNORECASE)
"""Words that refer to something in the conversation, which a page does not contain."""


def of_self(text: str) -> tuple[LineKind, str] | None:
    """Returns "about" or "preference", and the first clause of a user's sentence that says something lasting about the
    user; None if there is none. Other clauses, such as one about the current task, are left out."""
    for clause in _BREAK.split(text):
        clause = tidied(clause)
        kind = kind_of_self(clause)
        if kind is not None and not _HERE.search(clause):
            return kind, clause
    return None


def kind_of_self(text: str) -> LineKind | None:
    """Returns "about" or "preference" if a sentence of the user says something lasting about the user, otherwise
    None."""
    if len(text) > LONGEST or _UNSURE.search(text) or len(subject_stems(text)) < LEAST_SUBJECTS:
        return None
    return "about" if _ABOUT.search(text) else "preference" if _PREFERENCE.match(text) else None


# ---------------------------------------------------------------- named people

SAMPLE = 2_000
"""Number of characters of a message that are used to identify its language."""

SHORTEST_STATEMENT, LONGEST_STATEMENT = 4, 60
"""Minimum and maximum number of words in a statement."""

LEAST_WEIGHT: Mapping[LineKind, float] = {
    "event": 1.25,
    "decision": 0.75,
    "lesson": 0.75,
    "plan": 2.0,
    "preference": 2.0,
    "about": 3.0,
}
"""Minimum weight of a statement by kind. In five chats of LoCoMo, two thirds of the messages from which a statement is
kept are the evidence for a question. These numbers replaced 330 lines of word lists, which reached the same share."""

LEAST_OF_SELF = 0.75
"""Minimum weight of a sentence that says who its speaker is, or what the speaker likes (`kind_of_self`)."""

_OPENING = (
    r"(?:hey|hi|hello|yeah|yep|yes|no|nope|oh|ah|wow|whoa|well|so|ok|okay|right|sure|sorry|thanks(?: so much| a lot)?"
    r"|thank you|actually|anyway|btw|by the way|also|plus|and|but|then|absolutely|definitely|totally|haha|lol"
)
_SUBJECT = re.compile(r"(?:[^.?!]{0,60}?[,\s])?(?:I\b|[Mm]y\b|[Ww]e\b|[Oo]ur\b)")
_LEFT_OUT = re.compile(
    r"[?:]\W*$|^(?:especially|here['’]s|I (?:do|did|have|am|will))\W|\b(?:you|yours?|yourself|ya|u|let['’]s)\b"
    r"|\b(?:we all|our lives|can['’]t wait|thanks|agree"
    r"|I(?:['’]m| am) (?:\w+ )?(?:glad|happy|sorry|proud|grateful|thankful|here for|off to|sure|curious)"
    r"|I (?:\w+ )?(?:hope|guess|wish|bet|understand|appreciate|mean|see|know|hear|feel))\b",
    re.IGNORECASE,
)
"""Questions, sentences to or about the other person, and words about the conversation."""
_POINTS = re.compile(
    r"\b(?:it|them|they|he|she|him|these|those"
    r"|this(?! (?:year|month|week\w*|morning|\w+day|summer|winter|spring|fall)\b)"
    r"|that(?=\W*$| \w+\W*$|[.,;!])|there(?! (?:is|are|was|were)\b)|(?:an?other|that|this|on) one|similar)\b",
    re.IGNORECASE,
)
"""Words that refer to something. Near the beginning of a sentence, they refer to something that only an earlier
sentence names."""
_DECISION = re.compile(r"\b(?:I|we)(?:['’]ve| have)? (?:\w+ )?(?:decided|chose|chosen|opted|settled on|agreed)\b")
_LESSON = re.compile(r"\b(?:I|we)(?:['’]ve| have)? (?:\w+ )?(?:learn(?:ed|t)|reali[sz]ed)\b")
_LIKES = re.compile(
    r".{0,30}\b(?:I (?:\w+ )?(?:love|like|enjoy|prefer|hate|dislike|can['’]t stand)|my favou?rite"
    r"|(?:fan of|into|obsessed with|allergic to|keen on|fond of))\b",
    re.IGNORECASE,
)
_PLAN = re.compile(
    r"\b(?:I|we)(?:['’]ll| will| plan| hope| want| need|['’]d like)\b"
    r"|(?:['’]m|['’]re| am| are) (?:\w+ )?(?:planning|going to|gonna|hoping|about to|thinking (?:of|about)|looking)\b",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"\b(?:I|we)(?:['’]ve|['’]d| have)? (?:\w+ )?(?:went|got|took|made|did|began|gave|met|saw|bought|won|lost|ran|found"
    r"|built|came|left|had|was|were|quit|set|hit|held|taught|wrote|read|drove|flew|sold|sent|spent|told|tried|\w{3,}ed)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][\w’'+-]*[a-z0-9+]\b|\b[A-Z]{2,}\b")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of a speaker about the speaker, with absolute dates; `day` is the day that it names, if any. `weight`
    grows with its definite words, names, figures and times."""

    kind: LineKind
    text: str
    day: date | None
    weight: float


def statements(text: str, said: date, speakers: Iterable[str] = ()) -> Iterator[Statement]:
    """Yields the statements of a named person's message. `said` is the day of the message. `speakers` are the names of
    all people who talk: a name at the beginning of a sentence is removed, because the speaker addresses that person."""
    if is_injected(text) or stop_words(words(text[:SAMPLE])) is not ENGLISH_STOP_WORDS:
        return
    names = "".join(f"|{re.escape(name)}|{re.escape(name.split()[0])}" for name in speakers if name.strip())
    opening = re.compile(rf"^(?:{_OPENING}{names})\b[\s,!.–—-]*)+(?=\w)", re.IGNORECASE)
    for sentence in sentences(text):
        if sentence.layout in ("paragraph", "bullet"):
            found = _statement(opening.sub("", clean(sentence.text), count=1), said)
            if found is not None:
                yield found


def _statement(sentence: str, said: date) -> Statement | None:
    definite = subject_stems(sentence)
    if (
        not SHORTEST_STATEMENT <= len(sentence.split()) <= LONGEST_STATEMENT
        or len(definite) < LEAST_SUBJECTS
        or not _SUBJECT.match(sentence)
        or _LEFT_OUT.search(sentence)
    ):
        return None
    if (points := _POINTS.search(sentence)) and len(subject_stems(sentence[: points.start()])) < LEAST_SUBJECTS:
        return None  # it is about something that only an earlier sentence names
    sentence = f"{sentence[:1].upper()}{sentence[1:].rstrip(' .!…')}."
    dated = absolute(sentence, said)
    timed = dated.past or dated.future or dated.day is not None
    names, figures = len(set(_NAME.findall(sentence))), sum(map(str.isdigit, sentence))
    weight = round(min(len(definite), 12) * 0.25 + min(names, 4) * 0.5 + min(figures, 4) * 0.25 + timed, 2)
    kind = _kind(sentence, dated.past, dated.future)
    least = LEAST_OF_SELF if kind_of_self(sentence) else LEAST_WEIGHT[kind]
    return Statement(kind, dated.text, dated.day, weight) if weight >= least else None


def _kind(sentence: str, past: bool, future: bool) -> LineKind:
    if _DECISION.search(sentence):
        return "decision"
    if _LESSON.search(sentence):
        return "lesson"
    if _LIKES.match(sentence) and not past:
        return "preference"
    if future or (_PLAN.search(sentence) and not past):
        return "plan"
    return "event" if past or _HAPPENED.search(sentence) else "about"
