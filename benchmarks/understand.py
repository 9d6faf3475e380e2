"""`understand`: measures how well decisions, rules, facts and open items are found in labeled conversations.

The recognizer reads each conversation session by session; then all its items are settled together, as on a page. An
item counts as found if one line of its kind contains all its keywords. A line counts as right if it contains all
keywords of an item of its kind. `benchmarks/README.md` describes the files. LoCoMo files and BEAM folders count as
conversations that hold no decisions, rules and open items.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.datasets import talks
from mcp_server.conversations.imports import ImportedSession
from mcp_server.errors import Invalid
from mcp_server.model import ToolCall, Turn
from mcp_server.understanding import encoder, recognizer
from mcp_server.understanding.model import Model
from mcp_server.understanding.settling import Statement, settle

KINDS: Mapping[str, str] = {"decision": "decisions", "rule": "rules", "fact": "facts", "open": "open_items"}
"""Kind of a line → the list in a file with its labels."""

NEVER_IN_TALK = ("decision", "rule", "open")
"""Kinds that must not be found in a conversation without such labels."""

MINUTES_A_TURN = 2
"""Minutes between two turns of a session: the files have no time for each turn."""

DAYS_APART = 2

_BEAM_MARK = re.compile(r"\s*->->[^\n]*\Z")
"""Ends a question in BEAM and names its place in the plan of the data set: nobody said it."""


@dataclass(frozen=True, slots=True)
class Label:
    """A labeled item. `ended`: a decision was superseded, or an open item closed, later in the conversation."""

    kind: str
    text: str
    keywords: tuple[str, ...]
    ended: bool
    id: str = ""

    def is_in(self, line: str) -> bool:
        folded = line.casefold()
        return all(word in folded for word in self.keywords)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that somebody types in a later session, and the items that it needs: none, one or several."""

    text: str
    needs: tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class Labeled:
    """A conversation of a file: the turns of each session, its labels, and the prompts of later sessions.

    `by_program` are the turns, as (session, number), that a program wrote under the user's name.
    """

    name: str
    sessions: tuple[tuple[Turn, ...], ...]
    labels: tuple[Label, ...]
    prompts: tuple[Prompt, ...] = ()
    by_program: frozenset[tuple[int, int]] = frozenset()

    @property
    def is_talk(self) -> bool:
        """True if the conversation has no decisions, rules and open items."""
        return not any(label.kind in NEVER_IN_TALK for label in self.labels)


@dataclass(slots=True)
class Share:
    """How many of `of` results are `right`."""

    right: int = 0
    of: int = 0

    def count(self, right: bool) -> None:
        self.right += right
        self.of += 1

    @property
    def share(self) -> float | None:
        """Returns the share, or None if there was nothing to count."""
        return self.right / self.of if self.of else None

    def as_dict(self) -> dict[str, Any]:
        return {"right": self.right, "of": self.of, "share": self.share}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A label without a line (`missed`), a line without a label (`false`), or a line in a wrong state."""

    conversation: str
    what: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class UnderstandReport:
    """Precision and recall by kind, the states of decisions and open items, and the time.

    `superseded` and `closed` are the share of found, ended labels with a line that is marked as replaced, closed or
    perhaps changed; `wrongly_replaced` and `wrongly_closed` are the share of found labels that never ended and of which
    a line is out of force.
    """

    conversations: int
    turns: int
    precision: Mapping[str, Share]
    recall: Mapping[str, Share]
    superseded: Share
    wrongly_replaced: Share
    closed: Share
    wrongly_closed: Share
    talk_turns: int
    talk_items: Mapping[str, int]
    ms_per_turn: float
    mistakes: tuple[Mistake, ...]

    @property
    def false_per_100(self) -> dict[str, float] | None:
        """Returns the items per 100 turns of conversations that have none, by kind."""
        if not self.talk_turns:
            return None
        return {kind: 100 * self.talk_items.get(kind, 0) / self.talk_turns for kind in NEVER_IN_TALK}

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as JSON values."""
        shares = ("superseded", "wrongly_replaced", "closed", "wrongly_closed")
        return {
            "conversations": self.conversations,
            "turns": self.turns,
            "kinds": {
                kind: {"precision": self.precision[kind].as_dict(), "recall": self.recall[kind].as_dict()}
                for kind in KINDS
            },
            **{name: getattr(self, name).as_dict() for name in shares},
            "false_per_100_turns": self.false_per_100,
            "ms_per_turn": self.ms_per_turn,
            "mistakes": [asdict(one) for one in self.mistakes],
        }


def measure_understanding(paths: Sequence[Path], model: Model) -> UnderstandReport:
    """Measures `model` on the conversations of these files, and on lists of statements that replace each other (files
    that end with .jsonl). Raises Invalid for any other file."""
    lists = [path for path in paths if path.suffix == ".jsonl"]
    some = [one for path in paths if path not in lists for one in load(path)]
    precision, recall = ({kind: Share() for kind in KINDS} for _ in range(2))
    superseded, wrongly_replaced, closed, wrongly_closed = (Share() for _ in range(4))
    mistakes: list[Mistake] = []
    seconds = 0.0
    talk_items: Counter[str] = Counter()
    for one in some:
        began = perf_counter()
        lines = understood(one, model)
        seconds += perf_counter() - began
        for line in lines:
            if line.kind not in KINDS:
                continue
            right = any(label.kind == line.kind and label.is_in(line.text) for label in one.labels)
            precision[line.kind].count(right)
            talk_items[line.kind] += one.is_talk
            if not right:
                mistakes.append(Mistake(one.name, "false", line.kind, line.text))
        for label in one.labels:
            found = [line for line in lines if line.kind == label.kind and label.is_in(line.text)]
            recall[label.kind].count(bool(found))
            if not found:
                mistakes.append(Mistake(one.name, "missed", label.kind, label.text))
            elif label.kind in ("decision", "open"):
                if label.ended:
                    marked = any(line.state != "current" for line in found)
                else:
                    marked = any(not line.is_in_force for line in found)
                ended, wrongly = (
                    (superseded, wrongly_replaced) if label.kind == "decision" else (closed, wrongly_closed)
                )
                (ended if label.ended else wrongly).count(marked)
                if marked != label.ended:
                    what = "not marked as ended" if label.ended else "wrongly marked as ended"
                    mistakes.append(Mistake(one.name, what, label.kind, label.text))
    for name, said, gone in (one for path in lists for one in listed(path, model)):
        settle(said)
        for place, line in enumerate(said):
            marked = line.state != "current"
            (superseded if place in gone else wrongly_replaced).count(marked)
            if marked != (place in gone):
                what = "not marked as ended" if place in gone else "wrongly marked as ended"
                mistakes.append(Mistake(name, what, line.kind, f"{line.text} (by: {line.by.text if line.by else '-'})"))
    turns = sum(len(session) for one in some for session in one.sessions)
    return UnderstandReport(
        conversations=len(some),
        turns=turns,
        precision=precision,
        recall=recall,
        superseded=superseded,
        wrongly_replaced=wrongly_replaced,
        closed=closed,
        wrongly_closed=wrongly_closed,
        talk_turns=sum(len(session) for one in some if one.is_talk for session in one.sessions),
        talk_items=talk_items,
        ms_per_turn=1000 * seconds / max(1, turns),
        mistakes=tuple(mistakes),
    )


def understood(one: Labeled, model: Model) -> list[Statement]:
    """Returns the items of all sessions of a conversation, settled."""
    found = [
        Statement(item.kind, item.text, (item.at, str(number), item.turn), item.changes, frozenset(item.heard))
        for number, session in enumerate(one.sessions)
        for item in recognizer.read(session, model)
    ]
    settle(found)
    return found


def listed(path: Path, model: Model) -> Iterator[tuple[str, list[Statement], frozenset[int]]]:
    """Yields the lists of a file: name, statements, and the places of those that a later one replaces. Every second
    list was said on one day, the statements of the others `DAYS_APART` days apart."""
    for number, line in enumerate(path.read_text("utf-8").splitlines()):
        one = json.loads(line)
        apart = timedelta(days=DAYS_APART * (number % 2), minutes=MINUTES_A_TURN)
        start = datetime(2026, 1, 1, tzinfo=UTC)
        said = []
        for place, told in enumerate(one["statements"]):
            turn = Turn(place + 1, "user", told["text"], start + place * apart)
            (message,) = recognizer.linked([turn])
            encoder.read([message])
            changes = model.acts(message)["revise"]
            said.append(Statement(told["kind"], told["text"], (turn.at, "", turn.number), changes))
        gone = frozenset(old for told in one["statements"] for old in told["replaces"])
        yield one["world"], said, gone


def load(path: Path) -> list[Labeled]:
    """Returns the conversations of a file. Those of a LoCoMo file or a BEAM folder have no labels. Raises Invalid if it
    is not what `benchmarks/README.md` describes."""
    if public := list(talks(path)):
        names = [f"beam-{talk.name}" if talk.kind == "beam" else talk.name for talk in public]
        return [_labeled(_unlabeled(name, talk.sessions)) for name, talk in zip(names, public, strict=True)]
    try:
        found = json.loads(path.read_text("utf-8"))
        return [_labeled(one) for one in (found if isinstance(found, list) else [found])]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Invalid(f"{path} is not a labeled conversation ({type(error).__name__}: {error})") from error


def _unlabeled(name: str, sessions: Sequence[ImportedSession]) -> dict[str, Any]:
    """Returns a conversation in the format of the labeled ones. In LoCoMo two friends talk: who speaks first counts as
    the user, the other one as the agent."""
    first = sessions[0].turns[0].name if sessions else None
    told = [
        {
            "started": session.turns[0].at.isoformat(),
            "turns": [
                {
                    "role": "agent" if turn.role == "agent" or turn.name != first else "user",
                    "content": _BEAM_MARK.sub("", turn.content),
                }
                for turn in session.turns
            ],
        }
        for session in sessions
    ]
    return {"name": name, "sessions": told, **{key: [] for key in KINDS.values()}}


def _labeled(one: Mapping[str, Any]) -> Labeled:
    sessions = tuple(tuple(_turns(session)) for session in one["sessions"])
    labels = tuple(
        Label(
            kind,
            item["text"],
            tuple(word.casefold() for word in item["keywords"]),
            (item.get("superseded_by") or item.get("closed_at")) is not None,
            item.get("id", ""),
        )
        for kind, key in KINDS.items()
        for item in one[key]
    )
    known = {label.id: label for label in labels if label.id}
    prompts = tuple(
        Prompt(prompt["text"], tuple(known[name] for name in prompt["needs"] if name in known))
        for prompt in one.get("prompts") or ()
    )
    by_program = frozenset(
        (place, number)
        for place, session in enumerate(one["sessions"])
        for number, turn in enumerate(session["turns"], 1)
        if turn.get("by_program")
    )
    return Labeled(one["name"], sessions, labels, prompts, by_program)


def _turns(session: Mapping[str, Any]) -> Iterator[Turn]:
    started = datetime.fromisoformat(session["started"].replace("Z", "+00:00")).astimezone(UTC)
    for number, turn in enumerate(session["turns"], 1):
        if turn["role"] not in ("user", "agent"):
            raise ValueError(f"a turn is of 'user' or 'agent', not of {turn['role']!r}")
        calls = tuple(
            ToolCall(call["name"], call.get("summary") or "", call.get("result") or "", tuple(call.get("files") or ()))
            for call in turn.get("tool_calls") or ()
        )
        at = started + timedelta(minutes=MINUTES_A_TURN * number)
        yield Turn(number, turn["role"], turn["content"], at, tool_calls=calls)
