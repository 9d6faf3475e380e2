"""The thread of a conversation: its beginning, its latest subject, and the exchanges worth keeping.

Messages that a program injected under the role `user` are ignored.

An exchange is a real message of the user and the agent's answers to it. At most six are kept, in order: the first, the
last two, and of the others first those that settled something or were flagged as important, then those that share
most words with the last message; the newest first among equals. Exchanges without a subject ("ok, thanks") are left
out, unless they settled something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from mcp_server.conversations.authorship import is_injected, is_real_user
from mcp_server.model import Turn
from mcp_server.text.prose import clipped, prose
from mcp_server.text.words import content_words

MOST_EXCHANGES = 6
LAST = 2
"""Newest exchanges that are always kept."""
LEAST_WORDS = 2
"""Content words that a message with a subject has at least."""
MAX_READ = 20_000
"""Characters of a message that are read."""
LONGEST_ASKED, LONGEST_ANSWERED, LONGEST_SUMMARY_PART = 300, 400, 180
"""Characters."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The user's message in turn `turn` and the answer, each on one line and cut."""

    turn: int
    asked: str
    answered: str = ""


@dataclass(frozen=True, slots=True)
class _Pair:
    user: Turn
    answers: tuple[Turn, ...]
    settled: bool

    @property
    def important(self) -> bool:
        return self.settled or self.user.important or any(answer.important for answer in self.answers)


def summary(turns: Sequence[Turn]) -> str:
    """Returns the conversation's beginning and latest subject in about 400 characters; empty without a user turn."""
    said = [turn for turn in _beginnings(turns) if is_real_user(turn.role, turn.content)]
    if not said:
        return ""
    about = [turn for turn in said if _is_about_something(turn)] or said
    first, last = about[0], about[-1]
    lines = [f"Began with: {clipped(first.content, LONGEST_SUMMARY_PART)}"]
    if last is not first:
        lines.append(f"Last asked: {clipped(last.content, LONGEST_SUMMARY_PART)}")
    return "\n".join(lines)


def key_exchanges(
    turns: Sequence[Turn], settled: Collection[int] = (), most: int = MOST_EXCHANGES
) -> tuple[Exchange, ...]:
    """Returns the exchanges worth keeping, in order. `settled` are the numbers of turns that settled something."""
    pairs = [pair for pair in _pairs(_beginnings(turns), settled) if pair.important or _is_about_something(pair.user)]
    if len(pairs) > most:
        always = [*pairs[:1], *pairs[-LAST:]][:most]
        between = sorted(pairs[1:-LAST], key=_worth(pairs[-1]), reverse=True)
        keep = {id(pair) for pair in [*always, *between[: most - len(always)]]}
        pairs = [pair for pair in pairs if id(pair) in keep]
    return tuple(_shown(pair) for pair in pairs)


def _beginnings(turns: Sequence[Turn]) -> list[Turn]:
    return [turn if len(turn.content) <= MAX_READ else replace(turn, content=turn.content[:MAX_READ]) for turn in turns]


def _pairs(turns: Sequence[Turn], settled: Collection[int]) -> Iterator[_Pair]:
    exchanges: list[list[Turn]] = []
    for turn in turns:
        if is_real_user(turn.role, turn.content):
            exchanges.append([turn])
        elif exchanges and turn.role == "agent" and turn.content.strip() and not is_injected(turn.content):
            exchanges[-1].append(turn)
    for user, *answers in exchanges:
        yield _Pair(user, tuple(answers), any(one.number in settled for one in (user, *answers)))


def _worth(newest: _Pair) -> Callable[[_Pair], tuple[bool, int, int]]:
    about = set(content_words(newest.user.content))
    return lambda pair: (pair.important, len(about.intersection(content_words(pair.user.content))), pair.user.number)


def _is_about_something(turn: Turn) -> bool:
    return turn.important or len(content_words(turn.content)) >= LEAST_WORDS


def _shown(pair: _Pair) -> Exchange:
    # The last message of an answer is its conclusion.
    words = " ".join(prose(pair.answers[-1].content)) if pair.answers else ""
    return Exchange(
        pair.user.number,
        clipped(pair.user.content, LONGEST_ASKED),
        clipped(words, LONGEST_ANSWERED),
    )
