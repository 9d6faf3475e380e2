"""Converts lines to turns. A transcript is a tree (`parentUuid`) that grows at its end. It is read in file order, so
that recording it while it grows gives the same turns as importing the whole file.

- An answer has several lines with one `message.id`, and its tool results are in user lines: together they are one turn.
  It is complete when another message begins, or when it has a final stop reason and any other line follows.
- If the user goes back to an earlier point, a system turn says so.
- A subagent's lines (`isSidechain`) are a conversation of their own.
- A compaction (`compact_boundary`) is a system turn; its summary is left out.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mcp_server.clients.adapters.adapter import CONTINUES, as_mapping
from mcp_server.clients.importers.claude_code import messages
from mcp_server.clients.importers.imported import as_text, result_text, tool_call
from mcp_server.conversations.imports import ImportedTurn
from mcp_server.model import COMPACTION
from mcp_server.text.markdown import read_moment

MAIN = ""
"""The thread between user and model; other threads have their subagent's id."""

BRANCH = "branch"
"""Name of the system turn for going back."""

BRANCHED = "The user went back: what follows continues an earlier point of the conversation, not what stands above."
PROMPTER = "main agent"
"""Name of the user in a subagent's conversation."""

RECENT, CHAINED = 48, 512
"""Number of ids remembered: of lines since the last prompt, and of subagents' lines inside the file."""

_LONGEST_ID = 128


@dataclass(frozen=True, slots=True)
class ThreadTurn:
    """A turn and its thread: MAIN or a subagent's id."""

    agent: str
    turn: ImportedTurn


@dataclass(frozen=True, slots=True)
class ReadingState:
    """The state that is needed to continue reading at a position.

    `recent`: the last ids since the last prompt. `chains`: last id → first id of each subagent inside the file.
    """

    prompted: bool = False
    recent: tuple[str, ...] = ()
    chains: tuple[tuple[str, str], ...] = ()
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    cwd: str | None = None
    model: str | None = None


@dataclass(slots=True)
class _Answer:
    key: tuple[str, str]
    began: int
    cwd: str | None
    turn_id: str = ""
    at: datetime | None = None
    texts: list[str] = field(default_factory=list)
    calls: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    tokens: int | None = None
    terminal: bool = False

    def is_whole(self) -> bool:
        return len(self.results) == len(self.calls) and (self.terminal or bool(self.calls))


class Threads:
    """The conversations of one file up to a position. `skipped` counts lines without a message, by kind."""

    def __init__(self, state: ReadingState) -> None:
        self.skipped: Counter[str] = Counter()
        self.cwd, self.model = state.cwd, state.model
        self.resumed = ""
        """The session that the last read lines continue, if that is not the file's own."""
        self._at, self._prompted = state.at, state.prompted
        self._recent = deque(state.recent, RECENT)
        self._chains = dict(state.chains)
        self._answers: dict[str, _Answer] = {}
        self._callers: dict[str, _Answer] = {}  # tool call id → the answer that made it

    def state(self) -> ReadingState:
        """Returns the current state, without incomplete answers."""
        chains = tuple(self._chains.items())
        return ReadingState(self._prompted, tuple(self._recent), chains, self._at, self.cwd, self.model)

    @property
    def waiting_since(self) -> int | None:
        """The first byte of the first incomplete answer, or None."""
        return min((answer.began for answer in self._answers.values()), default=None)

    def read(self, fields: Mapping[str, Any], start: int) -> list[ThreadTurn]:
        """Returns the turns that this line, which begins at byte `start`, completes."""
        self._at = read_moment(fields.get("timestamp")) or self._at
        self.cwd = self.cwd or as_text(fields.get("cwd")) or None
        self.model = as_text(fields.get("model")) or self.model
        given = as_text(fields.get("uuid"))
        agent = self._thread(fields, given)
        kind = fields.get("type")
        if kind == "assistant":
            said = self._answer(fields, agent, start)
        else:
            answer = self._answers.get(agent)
            said = self._close_answer(agent) if answer is not None and answer.terminal else []
            if kind == "user":
                said += self._user(fields, agent)
            elif kind == "attachment":
                said += self._prompt(fields, agent, *messages.queued_text(fields))
            elif kind == "system" and fields.get("subtype") == messages.COMPACTED:
                said += self._close_answer(agent)
                boundary = messages.compaction_text(fields)
                said.append(ThreadTurn(agent, ImportedTurn("system", boundary, self._at, _id_of(fields), COMPACTION)))
            else:
                self.skipped[messages.kind_of(fields)] += 1
        if agent == MAIN and given:
            self._recent.append(given)
        return said

    def finish(self, *, only_whole: bool = False) -> list[ThreadTurn]:
        """Closes the open answers and returns their turns. With `only_whole`, incomplete ones stay open."""
        return [
            said
            for agent in list(self._answers)
            if self._answers[agent].is_whole() or not only_whole
            for said in self._close_answer(agent)
        ]

    def _thread(self, fields: Mapping[str, Any], given: str) -> str:
        if fields.get("isSidechain") is not True:
            return MAIN
        if named := as_text(fields.get("agentId")):
            return _plain_id(named)
        # Older versions wrote subagents between the lines of the session, told apart by their first line only.
        parent = as_text(fields.get("parentUuid"))
        first = self._chains.pop(parent, None) or _plain_id(given or parent)[:12]
        for known in (parent, given):
            if known:
                self._chains[known] = first
        while len(self._chains) > CHAINED:
            del self._chains[next(iter(self._chains))]
        return first

    def _answer(self, fields: Mapping[str, Any], agent: str, start: int) -> list[ThreadTurn]:
        if why := messages.is_made_by_the_client(fields):
            self.skipped[why] += 1
            return []
        message = as_mapping(fields.get("message"))
        request = as_text(fields.get("requestRef")) or as_text(fields.get("requestId"))
        answer = self._answers.get(agent)
        key = (as_text(message.get("id")) or _id_of(fields), request)
        if key[0] == CONTINUES:
            key = answer.key if answer is not None and not answer.results else (_id_of(fields), "")
        said = self._close_answer(agent) if answer is not None and answer.key != key else []
        answer = self._answers.get(agent)
        if answer is None:
            answer = self._answers[agent] = _Answer(key, start, as_text(fields.get("cwd")) or self.cwd)
        if agent == MAIN:
            self.model = as_text(message.get("model")) or self.model
        answer.terminal = as_text(message.get("stop_reason")) in messages.TERMINAL
        answer.tokens = messages.context_tokens(fields) or answer.tokens
        for block in messages.blocks_of(fields):
            self._block(block, answer, fields)
        return said

    def _block(self, block: Mapping[str, Any], answer: _Answer, fields: Mapping[str, Any]) -> None:
        kind = as_text(block.get("type"))
        if kind == "text":
            text = as_text(block.get("text")).strip("\n")
            if text and text not in answer.texts:  # Gemini CLI writes a message again when its tools have run
                answer.texts.append(text)
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            call_id = as_text(block.get("id")) or f"call-{len(answer.calls)}"
            answer.calls[call_id] = (as_text(block.get("name")), as_mapping(block.get("input")))
            self._callers[call_id] = answer
        elif "tool_use_id" in block:  # what the API's own tools answered
            self._result(block)
        else:
            thought = kind in ("thinking", "redacted_thinking")
            self.skipped["thinking" if thought else f"block of type {messages.word(kind)}"] += 1
            return
        if not answer.turn_id:
            answer.turn_id, answer.at = _id_of(fields), self._at

    def _result(self, block: Mapping[str, Any]) -> None:
        call_id = as_text(block.get("tool_use_id"))
        answer = self._callers.get(call_id)
        if answer is None:
            self.skipped["tool result without its call"] += 1
        else:
            answer.results[call_id] = result_text(block.get("content"), block.get("is_error") is True)

    def _close_answer(self, agent: str) -> list[ThreadTurn]:
        """Marks the thread's answer as complete and returns its turn, if it has content."""
        answer = self._answers.pop(agent, None)
        if answer is None:
            return []
        for call_id in answer.calls:
            self._callers.pop(call_id, None)
        content = "\n\n".join(answer.texts)
        if not content.strip() and not answer.calls:
            return []
        calls = tuple(
            tool_call(name, given, answer.results.get(call_id, ""), answer.cwd)
            for call_id, (name, given) in answer.calls.items()
        )
        turn = ImportedTurn(
            role="agent",
            content=content,
            at=answer.at or self._at,
            turn_id=answer.turn_id,
            tool_calls=calls,
            context_tokens=answer.tokens,
        )
        return [ThreadTurn(agent, turn)]

    def _user(self, fields: Mapping[str, Any], agent: str) -> list[ThreadTurn]:
        results = [block for block in messages.blocks_of(fields) if block.get("type") == "tool_result"]
        for block in results:
            self._result(block)
        text, why = messages.user_text(fields)
        if agent == MAIN and (resumed := messages.resumed_session(fields)):
            self.resumed = resumed
            self.skipped[why] += 1
            return self._close_answer(agent)
        return [] if results and not text else self._prompt(fields, agent, text, why)

    def _prompt(self, fields: Mapping[str, Any], agent: str, text: str, why: str) -> list[ThreadTurn]:
        if not text:
            self.skipped[why] += 1
            return []
        said, turn_id = self._close_answer(agent), _id_of(fields)
        if agent == MAIN:
            parent = as_text(fields.get("parentUuid"))
            if self._prompted and parent and parent not in self._recent:
                said.append(
                    ThreadTurn(agent, ImportedTurn("system", BRANCHED, self._at, f"{BRANCH}-{turn_id}", BRANCH))
                )
            self._prompted = True
            self._recent.clear()
        name = None if agent == MAIN else PROMPTER
        said.append(ThreadTurn(agent, ImportedTurn("user", text, self._at, turn_id, name)))
        return said


def _id_of(fields: Mapping[str, Any]) -> str:
    """Returns the line's id, or a digest of the line if it has none."""
    given = as_text(fields.get("uuid"))
    if given and len(given) <= _LONGEST_ID and given.isprintable() and given == given.strip():
        return given
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:32]


def _plain_id(text: str) -> str:
    """Returns an id that can be part of a session id: `text`, or its digest if it has other characters."""
    if len(text) <= 64 and text and all(c.isascii() and (c.isalnum() or c in "-_") for c in text):
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
