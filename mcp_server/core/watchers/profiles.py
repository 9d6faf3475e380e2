"""What of a topic is compared with a message: its words, its pieces, and the words that speak against it.

The head of a profile is what the author says the topic is about: name, description, keywords, the words of its
triggers. Its other pieces are the paragraphs and list items of the instructions. Words are folded, without stop words,
and cut to their stems, so that "deploys" and "deployment" meet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mcp_server.core.text.words import ENGLISH_STOP_WORDS, words
from mcp_server.core.topics import Keywords, Mention, Pattern, Topic

Stem = Callable[[str], str]
"""Cuts one folded word to its stem."""

HEAD, TAIL = 3_000, 1_500
"""Characters of a message that are compared, at its beginning and its end: between them people paste what they have."""

LONGEST_TOPIC = 20_000
"""Characters of a topic's instructions that are compared."""

_PIECE = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-*+]|\d+[.)])[ \t])|\n(?=#{1,6} )")
_ESCAPE = re.compile(r"\\[A-Za-z]|\\u[0-9a-fA-F]{4}|\[[^\]]*\]|\{[\d,]*\}|\(\?[a-zA-Z:=!<]*")
_OPTIONAL_SIGN = re.compile(r"[-\s]\?")
_LETTERS = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class Profile:
    """One topic as stems: `pieces` with the head first, in order and with repetitions; `unlike` without what the
    profile says itself. `text` is what an embedder is given."""

    topic: str
    pieces: tuple[tuple[str, ...], ...]
    unlike: frozenset[str]
    text: str

    @property
    def stems(self) -> tuple[str, ...]:
        """All of them, with repetitions."""
        return tuple(stem for piece in self.pieces for stem in piece)


def profile(topic: Topic, stem: Stem) -> Profile:
    """The profile of a topic."""
    head = "\n".join((topic.name.replace("-", " "), topic.description, " ".join(topic.keywords), trigger_words(topic)))
    body = [piece.strip() for piece in _PIECE.split(topic.instructions[:LONGEST_TOPIC]) if piece.strip()]
    pieces = tuple(tuple(stems(piece, stem)) for piece in (head, *body))
    said = {one for piece in pieces for one in piece}
    unlike = frozenset(stems("\n".join(topic.not_for), stem)) - said
    return Profile(topic.name, tuple(piece for piece in pieces if piece), unlike, "\n".join((head, *body)))


def compared(message: str) -> str:
    """The part of a message that is compared: all of an ordinary one."""
    return message if len(message) <= HEAD + TAIL else f"{message[:HEAD]}\n{message[-TAIL:]}"


def stems(text: str, stem: Stem) -> list[str]:
    """The stems of a text's content words in order, with repetitions; single letters are none."""
    return [stem(word) for word in words(text) if len(word) > 1 and word not in ENGLISH_STOP_WORDS]


def trigger_words(topic: Topic) -> str:
    """The words that a topic's triggers on what people say are made of; of regular expressions the letters that stand
    in them as they are."""
    found: list[str] = []
    for one in topic.triggers:
        if isinstance(one, Keywords) and one.scope != "output":
            found += one.words
        elif isinstance(one, Mention) and one.scope != "output":
            found += one.names
        elif isinstance(one, Pattern) and one.scope != "output":
            literal = _OPTIONAL_SIGN.sub("", _ESCAPE.sub(" ", one.match)).replace("?", "")
            found += _LETTERS.findall(literal)
    return " ".join(found)
