"""The thread of a conversation: how it began, where it stands, and the exchanges worth keeping (S3 "Issue 3").

Only real messages count: what a program injected under the role `user` is neither shown nor begins an exchange.

An exchange is a real message of the user and what the agent answered before the next one. Kept are at most six, shown
in the order in which they were said: the first, the last two, and of those between first the ones that settled
something or were flagged as important, then those with the most words in common with the last message; the newest first
among equals. Left out is what is about nothing ("ok, thanks"), unless it settled something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mcp_server.core.checkpoints.messages import is_injected, is_real_user
from mcp_server.core.checkpoints.prose import clipped, prose
from mcp_server.core.model import Turn
from mcp_server.core.text.words import content_words

MOST_EXCHANGES = 6
LAST = 2
"""So many of the newest are always kept."""
LEAST_WORDS = 2
"""Content words from which on a message is about something."""
LOOKED_AT = 20_000
"""Characters of a message that are looked at: what it is about stands there, or nowhere."""
LONGEST_ASKED, LONGEST_ANSWERED, LONGEST_SUMMARY_PART = 300, 400, 180
"""Characters."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the user said in turn `turn`, and what was answered, both on one line and cut."""

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


def real_user_turns(turns: Iterable[Turn]) -> list[Turn]:
    """The turns that a person wrote."""
    return [turn for turn in turns if is_real_user(turn.role, turn.content)]


def summary(turns: Sequence[Turn]) -> str:
    """How the conversation began and what it is about now, at most about 400 characters; empty if no user spoke."""
    said = real_user_turns(_beginnings(turns))
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
    return [
        turn if len(turn.content) <= LOOKED_AT else replace(turn, content=turn.content[:LOOKED_AT]) for turn in turns
    ]


def _pairs(turns: Sequence[Turn], settled: Collection[int]) -> Iterator[_Pair]:
    user: Turn | None = None
    answers: list[Turn] = []
    for turn in turns:
        if is_real_user(turn.role, turn.content):
            if user is not None:
                yield _Pair(user, tuple(answers), any(one.number in settled for one in (user, *answers)))
            user, answers = turn, []
        elif turn.role == "agent" and turn.content.strip() and not is_injected(turn.content):
            answers.append(turn)
    if user is not None:
        yield _Pair(user, tuple(answers), any(one.number in settled for one in (user, *answers)))


def _worth(newest: _Pair) -> Callable[[_Pair], tuple[bool, int, int]]:
    about = set(content_words(newest.user.content))
    return lambda pair: (pair.important, len(about.intersection(content_words(pair.user.content))), pair.user.number)


def _is_about_something(turn: Turn) -> bool:
    return turn.important or len(content_words(turn.content)) >= LEAST_WORDS


def _shown(pair: _Pair) -> Exchange:
    # An answer's last message is its conclusion; those before it are work in progress.
    words = " ".join(prose(pair.answers[-1].content)) if pair.answers else ""
    return Exchange(
        pair.user.number,
        clipped(pair.user.content, LONGEST_ASKED),
        clipped(words, LONGEST_ANSWERED),
    )
