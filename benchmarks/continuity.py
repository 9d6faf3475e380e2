"""`continuity`: does the work go on when the window fills up, and the morning after?

LoCoMo and BEAM conversations are observed turn by turn, as one session with delivery `replace` and a small live limit.
After each turn the live share, the largest drop and the chunks that left and came back are counted. At the end every
question is asked: how much of its evidence is live, and inside a context that has as many tokens as the live one? The
baseline is the end of the conversation with that many tokens.

Labeled working conversations are observed as one session each. Then the brief of the project, the text after a
compaction and `resume` are made at once, and again after further turns about another subject. The report counts the
labeled items in force that each text holds, and the items of the session's notes. The baseline is the end of the
conversation with as many tokens as the text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anyio.to_thread import run_sync

from benchmarks.datasets import Conversation, conversations, kind_of, known_turns, one_line, share_inside
from benchmarks.datasets import whole as whole_turns
from benchmarks.push import FAST
from benchmarks.understand import Labeled, Share, load
from benchmarks.workbench import ASKER, Talk, Workbench, caught_up, mean, percentile
from mcp_server.checkpoints import checkpoint, stored
from mcp_server.context import push, windows
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.sections import said as as_said
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import session_turns
from mcp_server.knowledge import notes as session_notes
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.pressure.cold import come_back
from mcp_server.relevance.chunks import text_of
from mcp_server.relevance.live_set import Lookups
from mcp_server.text.fencing import neutralise
from mcp_server.understanding.model import SHIPPED, recognizer

SESSION = "work"
WITHIN = 10
"""A dropped chunk that is back within this many exchanges should not have been dropped."""

FURTHER = (0, 40, 200)
"""Further turns about another subject, counted from the end of a labeled conversation."""

TEXTS = ("brief", "after a compaction", "resume")
KINDS = ("decision", "rule", "open")
COMPARED = 25
"""Characters of an item that a text must contain: longer items are shown by their beginning."""


@dataclass(slots=True)
class Pressure:
    """Measurements of the live context during the public conversations.

    `shares` are the live shares after each turn of the 40% trigger and later. `drops` are the shares of the limit that
    earlier chunks lost at a turn, `cuts` those that the turn itself lost at once: a message of half the limit cannot
    stay whole. `evidence` are the shares of gold turns, one for each question, by place.
    """

    turns: int = 0
    shares: list[float] = field(default_factory=list)
    drops: list[float] = field(default_factory=list)
    cuts: list[float] = field(default_factory=list)
    dropped: int = 0
    returned: int = 0
    exact: Share = field(default_factory=Share)
    evidence: dict[str, list[float]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Returns the figures as JSON values."""
        return {
            "turns": self.turns,
            "highest_share": max(self.shares, default=0.0),
            "median_share": percentile(self.shares, 0.5),
            "share_at_least_half": mean([share >= 0.5 for share in self.shares]),
            "largest_drop": max(self.drops, default=0.0),
            "largest_cut": max(self.cuts, default=0.0),
            "reliefs": len(self.drops),
            "dropped": self.dropped,
            "returned": self.returned,
            "exact": self.exact.as_dict(),
            "evidence": {place: mean(shares) for place, shares in self.evidence.items()},
            "questions": len(next(iter(self.evidence.values()), [])),
        }


@dataclass(frozen=True, slots=True)
class ContinuityReport:
    """`pressure` by data set; `held`: (further turns, text, what is counted) → share and tokens, as rows."""

    limit: int
    pressure: Mapping[str, Pressure]
    held: Sequence[Mapping[str, object]]


async def measure_continuity(
    bench: Workbench, paths: Sequence[Path], limit: int, weights: Path = SHIPPED, further: Sequence[int] = FURTHER
) -> ContinuityReport:
    """Measures the conversations of `paths`, the labeled ones with the recognizer of the file `weights`, after each of
    these numbers of `further` turns. Raises NotFound or Invalid for a path that holds none."""
    public = [one for path in paths if kind_of(path) for one in await run_sync(conversations, path)]
    labeled = [one for path in paths if not kind_of(path) for one in await run_sync(load, path)]
    found: dict[str, Pressure] = {}
    for place, one in enumerate(public):
        bench.show(place, len(public) + len(labeled), one.name)
        await _press(bench, one, limit, found.setdefault(one.kind, Pressure()))
    held: dict[tuple[int, str, str], Share] = {}
    tokens: dict[tuple[int, str], list[int]] = {}
    for place, working in enumerate(labeled):
        bench.show(len(public) + place, len(public) + len(labeled), working.name)
        other = public[place % len(public)] if public else None
        await _continue(bench, working, other, weights, further, held, tokens)
    rows = [
        {"further": further, "text": text, "what": what, **share.as_dict(), "tokens": mean(tokens[further, text])}
        for (further, text, what), share in held.items()
    ]
    return ContinuityReport(limit, found, rows)


async def _press(bench: Workbench, conversation: Conversation, limit: int, found: Pressure) -> None:
    """Observes a conversation with a small limit, and asks its questions."""
    small = {**FAST, "CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS": str(limit)}
    async with bench.temporary(small) as (memory, _):
        cold_since: dict[str, int] = {}
        exchange, before = 0, dict[str, int]()
        for turn in (turn for session in conversation.sessions for turn in session.turns):
            exchange += turn.role == "user"
            new = NewTurn(
                turn.role, turn.content, SESSION, turn_id=turn.turn_id, name=turn.name, at=turn.at, delivery="replace"
            )
            await observe(memory, new, ASKER)
            await caught_up(memory)
            chunks = await memory.live.of(SESSION)
            now = {chunk.id for chunk in chunks if chunk.form == "cold"}
            after = {chunk.id: 0 if chunk.id in now else chunk.tokens for chunk in chunks}
            live = sum(after.values())
            found.turns += 1
            if live >= 0.4 * limit or found.drops:
                found.shares.append(live / limit)
            if freed := sum(max(0, tokens - after[chunk]) for chunk, tokens in before.items()):
                found.drops.append(freed / limit)
            new_tokens = sum(tokens for chunk, tokens in after.items() if chunk not in before)
            found.cuts.append((memory.tokens.count(turn.content) - new_tokens) / limit)
            back = cold_since.keys() - now
            found.dropped += len(now - cold_since.keys())
            found.returned += sum(exchange - cold_since[chunk] <= WITHIN for chunk in back)
            cold_since = {chunk: cold_since.get(chunk, exchange) for chunk in now}
            before = after
        await _ask(memory, conversation, found)


async def _ask(memory: Memory, conversation: Conversation, found: Pressure) -> None:
    """Asks every question of the conversation; none leaves a trace."""
    known, said = await known_turns(memory), await session_turns(memory, SESSION)
    room = await memory.live.tokens(SESSION)
    last = _last(memory, said, room)
    chunks = {chunk.id: chunk for chunk in await memory.live.of(SESSION)}
    records = {record.chunk_id: record for record in memory.cold.of(SESSION)}
    texts = {turn.number: turn for turn in said}
    for record in records.values():
        found.exact.count(record.content == text_of(texts[record.turn], record.part))

    async def note(place: str, gold: Sequence[str]) -> None:
        away = {one.turn for one in await memory.live.shortened_chunks(SESSION) or () if one.part == 0}
        numbers = [int(known[turn].unit.rpartition("#")[2]) for turn in gold]
        found.evidence.setdefault(place, []).append(mean([number not in away for number in numbers]))

    for question in conversation.questions:
        gold = sorted(question.gold)
        await note("whole in the live context", gold)
        request = CompileRequest(message=question.text, session=SESSION, budget=max(room, 128))
        compiled = await compile_context(memory, request, ASKER)
        found.evidence.setdefault("inside as many compiled tokens", []).append(share_inside(question, known, compiled))
        asked = Turn(said[-1].number + 1, "user", question.text, memory.clock())
        back = await come_back(memory, SESSION, [asked], Lookups(memory, SESSION, (*said, asked)))
        await note("whole in the live context after recovery", gold)
        if back:
            memory.cold.put_all([records[one.record.chunk_id] for one in back])
            await memory.live.put(SESSION, chunks.values())
            memory.cold.remove_all([one for one in memory.cold.of(SESSION) if one.chunk_id not in records])
        inside = whole_turns([known[turn] for turn in gold], last)
        found.evidence.setdefault("baseline: the last tokens", []).append(len(inside) / len(gold))


async def _continue(
    bench: Workbench,
    working: Labeled,
    other: Conversation | None,
    weights: Path,
    counts: Sequence[int],
    held: dict[tuple[int, str, str], Share],
    tokens: dict[tuple[int, str], list[int]],
) -> None:
    """Observes a labeled conversation and further turns, and counts what the three texts hold."""
    async with bench.temporary(FAST) as (opened, workspace):
        memory = dataclasses.replace(opened, recognizer=lambda: recognizer(weights))
        folder = workspace.parent / working.name
        folder.mkdir()
        (folder / ".context-manager").write_text(f"{working.name}\n", encoding="utf-8")
        caller = dataclasses.replace(ASKER, folder=str(folder))
        for turn in (turn for session in working.sessions for turn in session):
            new = NewTurn(turn.role, turn.content, SESSION, at=turn.at, tool_calls=turn.tool_calls)
            await observe(memory, new, caller)
        more, said = _further(other), 0
        for further in counts:
            for role, content in (next(more) for _ in range(further - said)):
                await observe(memory, NewTurn(role, content, SESSION), caller)
            said = further
            await caught_up(memory)
            turns = await session_turns(memory, SESSION)
            notes = await session_notes.outcome_of(memory, await session_notes.notes_of(memory, SESSION))
            recognized = {"decision": notes.decisions, "rule": notes.rules, "open": notes.open_items}
            for name in TEXTS:
                if name == "resume":
                    text = (await stored.resume(memory, SESSION, caller)).compiled.text
                elif name == "brief":
                    text = (await push.for_start(memory, f"new-{further}", "startup", caller)).text
                else:
                    await windows.compacting(memory, SESSION)
                    await checkpoint.make(memory, SESSION, "hook")
                    text = (await push.for_start(memory, SESSION, "compact", caller)).text
                room = memory.tokens.count(text)
                tokens.setdefault((further, name), []).append(room)
                baseline = _last(memory, turns, room)
                for kind in KINDS:
                    labels = [one for one in working.labels if one.kind == kind and not one.ended]
                    for label in labels:
                        for what, shown in (("labeled", text), ("labeled, baseline", baseline)):
                            here = any(map(label.is_in, shown.splitlines()))
                            held.setdefault((further, name, f"{what}: {kind}"), Share()).count(here)
                    for item in recognized[kind]:
                        here = one_line(neutralise(item))[:COMPARED] in one_line(text)
                        held.setdefault((further, name, f"recognized: {kind}"), Share()).count(here)


def _further(other: Conversation | None) -> Iterator[tuple[str, str]]:
    """Yields role and content of turns about another subject, without end."""
    turns = [turn.content for session in other.sessions for turn in session.turns] if other else []
    talk = Talk(20)
    place = 0
    while True:
        yield "agent" if place % 2 else "user", turns[place] if place < len(turns) else talk.turn()
        place += 1


def _last(memory: Memory, turns: Sequence[Turn], room: int) -> str:
    """Returns the whole turns at the end of a conversation that have at most `room` tokens."""
    lines: list[str] = []
    for turn in reversed(turns):
        line = as_said(turn.name or turn.role, turn.content)
        room -= memory.tokens.count(line)
        if room < 0:
            break
        lines.insert(0, line)
    return "\n".join(lines)
