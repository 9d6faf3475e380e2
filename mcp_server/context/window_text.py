"""Decides which prompts get nothing, which ask to continue, and which lines a client's window was already sent.

The hook command imports this module when no server answers, so it imports little.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from enum import StrEnum
from functools import lru_cache

from mcp_server.text.words import FRAME_WORDS, TALK_WORDS, bounded, content_words, words


class NothingAsked(StrEnum):
    """Why a prompt gets nothing from the memory, in words for a person."""

    EMPTY = "the prompt is empty"
    COMMAND = "a command of the client"
    SHELL = "a shell command"
    NOTE = "a note for the client's own memory"
    BY_CLIENT = "written by the client, not by a person"
    NO_SUBJECT = "the prompt names no subject"
    """A prompt such as "go on" gets no passage. Corrections and topics are still pushed."""


FOR_THE_CLIENT = frozenset(NothingAsked) - {NothingAsked.NO_SUBJECT}
"""The prompt is empty or meant for the client: a command, a note, text that the client wrote."""


CUT_WORDS = 8  # number of first words that identify a line that was cut

_AGREEMENT = re.compile(
    r"(?:yes|yeah|yep|yup|ok|okay|sure|great|perfect|cool|thanks|nice|alright|ja|da|danke|hvala|alles)\b", re.IGNORECASE
)
MOST_WORDS = 4
"""Most words of an agreement such as "yep, ship it", which asks for nothing if it has at most one subject word."""

_COMMAND = re.compile(r"/[A-Za-z][\w:.-]*(?=\s|$)")
_NOTE = re.compile(r"#(?![#\d])[^\n]*$")
_HOST = re.compile(
    r"<(?:command-|local-command|bash-|task-|system-|user-memory|user-prompt-submit-hook)", re.IGNORECASE
)
_LISTED = re.compile(r"^(?:\d+-\d+ |[^\s:]{1,80}: )")
_ANSWER = re.compile(r" \((?:answer|agreed|amended|refused): (.+)\)$")


@lru_cache(maxsize=16)
def asks_nothing(prompt: str) -> NothingAsked | None:
    """Returns why a prompt gets nothing from the memory; None if it may get something."""
    said = prompt.strip()
    if not said:
        return NothingAsked.EMPTY
    if _COMMAND.match(said):
        return NothingAsked.COMMAND
    if said.startswith("!"):
        return NothingAsked.SHELL
    if _NOTE.fullmatch(said):
        return NothingAsked.NOTE
    if _HOST.match(said):
        return NothingAsked.BY_CLIENT
    subject = subject_words(said)
    agrees = "?" not in said and _AGREEMENT.match(said) is not None and len(words(bounded(said))) <= MOST_WORDS
    return NothingAsked.NO_SUBJECT if not subject or (len(subject) == 1 and agrees) else None


PHRASES = tuple(
    phrase.strip()
    for line in (
        "continue, resume, proceed, go on, carry on, keep going, pick up, left off, leave off, where were we",
        "where was i, where did we stop, where did i stop, what were we doing, what was i doing, were we working on",
        "was i working on, did we do, did i do, have we done, have i done, last time, last session, last conversation",
        "previous session, previous conversation, nastavi, nastavimo, nastavljamo, gde smo stali, gde smo bili",
        "sta smo radili, prosli put, weiter, weitermachen, wo waren wir, wo sind wir, stehen geblieben",
        "stehengeblieben, letztes mal, letzten mal",
    )
    for phrase in line.split(",")
)
"""Folded, as `words` returns them. A message that asks to continue contains one of them."""

ABOUT_IT = frozenset(
    word
    for line in (
        "left leave leaving off stopped pick up session sessions yesterday working doing done previous earlier work",
        "task project code coding conversation did do have gde smo stali bili sta radili prosli put nastavimo juce",
        "nastavljamo posao weitermachen wo waren sind wir letztes letzten mal gestern arbeit stehen geblieben",
        "stehengeblieben beim am",
        "good morning afternoon evening hello hi hey again guten morgen tag hallo dobro jutro dobar dan zdravo",
    )
    for word in line.split()
)
"""The only subject words of a message that asks to continue: a message with other subject words asks about those."""

LONGEST_REQUEST = 300
"""Characters. A longer message asks for more than to continue."""


def asks_to_go_on(message: str, project: str = "") -> bool:
    """Returns whether a message only asks to continue the previous work ("where were we?"). A command of the client
    never does. The name of the `project` does not count as a subject."""
    said = message.strip()
    if not said or said[0] in "/!#<" or len(said) > LONGEST_REQUEST:
        return False
    spoken = f" {' '.join(words(said))} "
    return any(f" {phrase} " in spoken for phrase in PHRASES) and not subject_words(said) - ABOUT_IT - {*words(project)}


@lru_cache(maxsize=16)  # a push and a compilation ask for those of their message up to four times
def subject_words(text: str) -> frozenset[str]:
    """Returns the folded words of a message's subject: no talk, framing, single letters or numbers below 100."""
    found = frozenset(content_words(bounded(text))) - TALK_WORDS - FRAME_WORDS
    return frozenset(word for word in found if len(word) > 2 or (len(word) == 2 and not word.isdigit()))


ECHO = 0.7
"""A text with this share of its content words in a message says no more than the message."""


def only_repeats(said: Collection[str], subject: Collection[str]) -> bool:
    """Returns whether a text with the content words `said` says no more than a message with these `subject_words`."""
    own = frozenset(said) - TALK_WORDS
    return len(own.intersection(subject)) >= ECHO * len(own)


def fingerprints(text: str) -> tuple[str, ...]:
    """Returns short hashes of the words of each line of a text. Markup and headers are ignored. An entry of a list (`-
    …`, `user: …`, `12-14 …`, a date) also gives the hash without that prefix, a line that was cut also the hash of its
    first words, and one that quotes an answer (`… (answer: ten)`) also that of the answer."""
    found: set[str] = set()
    for line, forms in _forms(text):
        found.update(map(_hash, forms), map(_opening, forms) if line.endswith("…") else ())
        if answer := _ANSWER.search(line):
            found.add(_hash(words(answer[1])))
    return tuple(sorted(found - {""}))


def was_sent(text: str, sent: Collection[str]) -> bool:
    """Returns whether the client's window already has every line of a passage. `sent` are fingerprints."""
    return not any(marks.isdisjoint(sent) for marks in _marks(text))


@lru_cache(maxsize=2048)  # the same lines of a page are candidates for many prompts
def _marks(text: str) -> tuple[frozenset[str], ...]:
    """Returns for each line with words its fingerprints. If the window has one of them, it was sent the line."""
    marks = [frozenset((*map(_hash, forms), *map(_opening, forms))) for _, forms in _forms(text) if forms[0]]
    return tuple(some - {""} for some in marks)


def _forms(text: str) -> list[tuple[str, list[list[str]]]]:
    """Returns the lines of a text other than headings, labels and headers, each with its words: of the line, then, if
    they differ, of the line without a bullet and of the line without a list's prefix."""
    shown = [line.strip() for line in text.splitlines() if not line.lstrip().startswith(("#", "<!--", "["))]
    bare = [line.removeprefix("- ") for line in shown]
    forms = [dict.fromkeys((line, text, _LISTED.sub("", text))) for line, text in zip(shown, bare, strict=True)]
    return [(line, list(map(words, some))) for line, some in zip(shown, forms, strict=True)]


def _opening(said: list[str]) -> str:
    return "~" + _hash(said[:CUT_WORDS]) if len(said) >= CUT_WORDS else ""


def _hash(said: list[str]) -> str:
    return hashlib.sha256(" ".join(said).encode()).hexdigest()[:12] if said else ""
