"""People: lasting facts about a person, in the person's own words.

Between named people (imported chats) each has a page with what they tell of themselves. In conversations with an agent
only the user speaks: sentences that say who the user is, or tell of family, home, health and habits, go to `user.md`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mcp_server.knowledge.extractors.extractor import TAKEN_OUT, Context, Extractor
from mcp_server.model import Turn
from mcp_server.text.derived_lines import Line, LineKind
from mcp_server.understanding.features import Message, subject_stems
from mcp_server.understanding.recognizer import clean, is_real

KINDS: tuple[LineKind, ...] = ("about", "preference", "plan", "event")

LONGEST = 200
"""Characters of a sentence about oneself: a longer one is a story."""

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
    r"|\d\d(?: years old)?(?=[.,;!]|$| and\b)|from (?-i:[A-Z])"
    r"|(?:vegan|vegetarian|pregnant|retired|married|divorced|widowed|self-employed|left-handed|colou?r-?blind"
    r"|dyslexic|diabetic|deaf|allergic)\b)"
    r"|\bmy (?:name is|birthday is|home ?town is|native language is)\b|\b(?:please |just )?call me (?-i:[A-Z])\w+[.!]?$"
    r"|\bI (?:live|grew up|was born|studied|moved) (?:in|at|near|to|with)\b|\bI speak (?-i:[A-Z])"
    r"|\bI(?: have|['’]ve)? work(?:ed)? (?:as an?\b|for (?-i:[A-Z])|at (?:(?:an?|the) )?(?-i:[A-Z]))"
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
    r"\?|\b(?:if|would|could|might|maybe|perhaps|wonder\w*|imagine|thinking|worried|tired|sorry|trying|stuck|error"
    r"|confused|tell me|please|let me)\b|\bas an? \w+ (?:user|admin|customer|developer)\b",
    re.IGNORECASE,
)


def kind_of_self(text: str) -> LineKind | None:
    """Returns "about" or "preference" if a sentence of the user says something lasting of the user, otherwise None."""
    if len(text) > LONGEST or _UNSURE.search(text) or len(subject_stems(text)) < LEAST_SUBJECTS:
        return None
    return "about" if _ABOUT.search(text) else "preference" if _PREFERENCE.match(text) else None


def tells_of_self(text: str) -> bool:
    """Returns whether a sentence is about who the user is, and so belongs to no project."""
    return kind_of_self(text) == "about"


def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns what named people tell of themselves, or what the user of an agent says of the user."""
    if context.speakers:
        return [line for turn in turns for line in context.told_by(turn)]
    found: list[Line] = []
    for turn in turns:
        if turn.role != "user" or not is_real(turn):
            continue
        for sentence in Message(turn.role, turn.content).sentences:
            text = clean(sentence.text)
            kind = kind_of_self(text) if sentence.layout in ("paragraph", "bullet") else None
            if kind == "preference" and context.project is not None:
                continue  # in a project it is about the work; the recognizer finds what holds there
            if kind is not None and not any(mark in text for mark in TAKEN_OUT):
                found.append(context.line(kind, text, turn, project=None, weight=1.0))
    return found


EXTRACTOR = Extractor("people", 4, extract, KINDS)
