"""The notes of a session, updated while it goes on: items, touched files, the last tool call.

    before + turns → after        splitting the turns into several calls gives the same notes

An item is final when AHEAD messages follow it. Until then its message is kept as context (`tail`) and read again, with
each new turn. `outcome` determines which decisions are replaced and which open items are closed.

The notes can be computed again from the transcript. They are stored only in the pauses of a conversation (`keep`) and
with a checkpoint, because reading ten turns at once takes as long as reading two turns separately. `notes_of` adds the
turns since then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Annotated, Any

from anyio.to_thread import run_sync
from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from mcp_server.conversations import sessions
from mcp_server.conversations.sessions import AS_OF
from mcp_server.memory import Memory
from mcp_server.model import ToolCall, Turn
from mcp_server.text.markdown import moment_text
from mcp_server.understanding import recognizer
from mcp_server.understanding.model import Model
from mcp_server.understanding.recognizer import Item, Likely
from mcp_server.understanding.settling import CHANGED, Statement, covers, same, settle

MAX_ITEMS, MAX_LIKELY, MAX_FILES = 400, 40, 100
TAIL = recognizer.AHEAD + recognizer.BEHIND
"""Number of messages kept as context: those that are not final, and those before them that the recognizer reads too."""
MAX_TAIL_TEXT = 8_000
"""Maximum number of characters of a message in the context."""


def _named(kind: type[Any], stored: object) -> object:
    """Returns the values of a dataclass by field name if they are stored as a list; otherwise the stored value."""
    return dict(zip((one.name for one in fields(kind)), stored, strict=True)) if isinstance(stored, list) else stored


def _values(one: Any) -> list[Any]:
    return [getattr(one, each.name) for each in fields(one)]


def _turn(stored: object) -> object:
    if not isinstance(stored, list):
        return stored
    number, role, content, at, tools = stored
    return {"number": number, "role": role, "content": content, "at": at, "tool_calls": [{"name": ""}] if tools else []}


_Turn = Annotated[
    Turn,
    BeforeValidator(_turn),
    PlainSerializer(lambda one: [one.number, one.role, one.content, moment_text(one.at), bool(one.tool_calls)]),
]
_Call = Annotated[ToolCall, BeforeValidator(partial(_named, ToolCall)), PlainSerializer(_values)]
_Likely = Annotated[Likely, BeforeValidator(partial(_named, Likely)), PlainSerializer(_values)]


@dataclass(frozen=True, slots=True)
class Review:
    """A language model's review of the notes after turn number `turn`. It replaces the items up to that turn."""

    turn: int
    decisions: tuple[str, ...]
    open_items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Noted:
    """The notes up to turn number `turn`. `items` are the items of the final turns, up to number `final`. `likely` are
    the most probable sentences of these turns that no item quotes. `recent` are the items of the later turns, which may
    still change; None in notes that an earlier version stored. `estimates` say for pairs of items whether one replaces
    or closes the other (`settle`)."""

    turn: int = 0
    final: int = 0
    items: tuple[Item, ...] = ()
    tail: tuple[_Turn, ...] = ()
    files: tuple[str, ...] = ()
    last_tool_call: _Call | None = None
    review: Review | None = None
    likely: tuple[_Likely, ...] = ()
    recent: tuple[Item, ...] | None = ()
    estimates: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Returns the notes as JSON values."""
        values: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return values


@cache
def _adapter() -> TypeAdapter[Noted]:
    """Returns the pydantic adapter for stored notes. It is built at first use, because that takes several
    milliseconds."""
    return TypeAdapter(Noted)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The texts of the decisions, rules, open items and facts in force at the end of the notes, and of the `replaced`
    decisions, oldest first. Each text is listed under one kind only: a rule is not listed as a decision too.
    `estimates` are to be stored in the notes."""

    decisions: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    estimates: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def noted(turns: Iterable[Turn], model: Model, before: Noted | None = None) -> Noted:
    """Returns the notes after `turns`, oldest first."""
    notes = before or Noted()
    new = [turn for turn in turns if turn.number > notes.turn]
    if not new:
        return notes
    files = dict.fromkeys(notes.files)
    calls = [call for turn in new for call in turn.tool_calls]
    for path in (path for call in calls for path in call.files):
        files.pop(path, None)  # a file that is touched again moves to the end
        files[path] = None
    context = [*notes.tail, *(_shortened(turn) for turn in new if recognizer.is_real(turn))]
    final = context[-recognizer.AHEAD - 1].number if len(context) > recognizer.AHEAD else notes.final
    found: list[Item] = []
    likely: list[Likely] = []
    if final > notes.final:
        found, likely = recognizer.read_with_sentences(context, model, notes.final + 1, final)
    known = _limited((*notes.items, *found))
    tail = tuple(context[-TAIL:])
    return replace(
        notes,
        turn=new[-1].number,
        final=max(final, notes.final),
        items=known,
        tail=tail,
        files=tuple(files)[-MAX_FILES:],
        last_tool_call=calls[-1] if calls else notes.last_tool_call,
        likely=_most_likely([*notes.likely, *likely], known),
        recent=tuple(recognizer.read(tail, model, max(final, notes.final) + 1)),
    )


def _most_likely(sentences: Sequence[Likely], found: Sequence[Item]) -> tuple[Likely, ...]:
    """Returns the likeliest sentences that no item quotes, in their order, at most `MAX_LIKELY`.

    Reports do not count as items here: they are not shown, and most are doubtful.
    """
    said = "\n".join(item.text for item in found if item.kind != "report")
    free = [one for one in sentences if one.text not in said]
    kept = sorted(free, key=lambda one: -one.probability)[:MAX_LIKELY]
    return tuple(one for one in free if one in kept)


def _limited(found: tuple[Item, ...]) -> tuple[Item, ...]:
    """Returns at most `MAX_ITEMS` items. Drops the oldest facts first, then the oldest other items."""
    over = len(found) - MAX_ITEMS
    if over <= 0:
        return found
    facts = [place for place, item in enumerate(found) if item.kind == "fact"]
    gone = {*facts[:over], *range(over - len(facts))}
    return tuple(item for place, item in enumerate(found) if place not in gone)


def items(notes: Noted, model: Model) -> list[Item]:
    """Returns all items of the notes, including those that are not final. The model reads these again if an earlier
    version stored the notes."""
    recent = recognizer.read(notes.tail, model, notes.final + 1) if notes.recent is None else notes.recent
    return [*notes.items, *recent]


def settled_items(notes: Noted, model: Model) -> list[Item]:
    """Returns the items of exchanges that the agent has answered, without proposals of the agent that still wait for
    the user's answer."""
    answered = max((turn.number for turn in notes.tail if turn.role == "agent"), default=0)
    last = notes.tail[-1].number if notes.tail else 0
    return [item for item in items(notes, model) if item.turn <= answered and not _is_unanswered_proposal(item, last)]


def _is_unanswered_proposal(item: Item, last: int) -> bool:
    """Returns whether an item is a proposal of the agent in the last message that is not labeled as a decision."""
    return item.kind == "decision" and item.role == "agent" and item.turn == last and item.probability < 1


def outcome(notes: Noted, model: Model) -> Outcome:
    """Returns the items in force and the replaced decisions. Decisions and open items up to the turn of a review are
    taken from the review."""
    found = items(notes, model)
    review = notes.review or Review(0, (), ())
    start = datetime.min.replace(tzinfo=UTC)
    statements = [
        *(Statement("decision", text, (start, "", review.turn)) for text in review.decisions),
        *(Statement("open", text, (start, "", review.turn)) for text in review.open_items),
        *(
            Statement(item.kind, item.text, (item.at, "", item.turn), item.changes, frozenset(item.heard))
            for item in found
            if item.kind in ("rule", "fact") or item.turn > review.turn
        ),
    ]
    estimates = settle(statements, notes.estimates)

    shown: list[Statement] = []

    def texts(kind: str, current: bool = True) -> tuple[str, ...]:
        kept: list[Statement] = []
        for one in statements:
            if one.kind == kind and one.is_in_force == current and not any(covers(other, one) for other in shown):
                kept = [*(other for other in kept if not same(one, other)), one]
        shown.extend(kept)
        return tuple(f"{one.text} ({CHANGED})" if one.state == "changed" else one.text for one in kept)

    rules, open_items, decisions, facts = map(texts, ("rule", "open", "decision", "fact"))
    return Outcome(decisions, rules, open_items, facts, texts("decision", current=False), estimates)


def from_dict(stored: object) -> Noted:
    """Returns stored notes. If the stored value is missing or invalid, returns empty notes, which are then computed
    again."""
    try:
        return (
            _adapter().validate_python({"recent": None, **stored})
            if stored and isinstance(stored, Mapping)
            else Noted()
        )
    except ValidationError:
        return Noted()


def without_texts(stored: object) -> object:
    """Returns stored notes for a checkpoint, without the texts of their context, which are in the transcript, and
    without estimates, which can be computed again."""
    if not isinstance(stored, Mapping) or not isinstance(stored.get("tail"), list):
        return stored
    return {
        **stored,
        "estimates": {},
        "tail": [[number, role, "", at, tools] for number, role, _, at, tools in stored["tail"]],
    }


def with_texts(stored: object, turns: Iterable[Turn]) -> object:
    """Puts the texts of these turns back into the result of `without_texts`."""
    if not isinstance(stored, Mapping) or not isinstance(stored.get("tail"), list):
        return stored
    texts = {turn.number: turn.content[:MAX_TAIL_TEXT] for turn in turns}
    tail = [[number, role, texts.get(number, ""), at, tools] for number, role, _, at, tools in stored["tail"]]
    return {**stored, "tail": tail}


def _shortened(turn: Turn) -> Turn:
    """Returns a turn for the context: its text cut, its tool calls replaced by an empty one."""
    calls = (ToolCall(""),) if turn.tool_calls else ()
    return Turn(turn.number, turn.role, turn.content[:MAX_TAIL_TEXT], turn.at, tool_calls=calls)


# ---------------------------------------------------------------- in the state

NAMESPACE = "checkpoint"
"""Namespace of the state: session → its notes."""


async def notes_of(memory: Memory, session: str) -> Noted:
    """Returns the notes of a session as of its last turn. Raises NotFound."""
    row = await sessions.require(memory, session)
    before = from_dict(await memory.state.get(NAMESPACE, row.session))
    if before.turn == row.turns:
        return before
    turns = [turn for turn in await run_sync(sessions.read_turns, memory, row.path) if turn.number <= row.turns]
    start = Noted() if before.turn > row.turns else before
    return await run_sync(noted, turns, memory.recognizer(), start)


async def keep(memory: Memory, session: str) -> None:
    """Stores the notes of a session as of its last turn, and then the estimates for its pairs of items. Does nothing if
    the session is wound back. Raises NotFound."""
    async with memory.locks.transcript(session):
        if await memory.state.get(AS_OF, session) is not None:
            return
        notes = await notes_of(memory, session)
        await memory.state.put(NAMESPACE, session, notes.as_dict(), waits=False)
    estimates = (await outcome_of(memory, notes)).estimates  # without the lock: many pairs take many seconds
    if estimates != notes.estimates:
        async with memory.locks.transcript(session):
            stored = await memory.state.get(NAMESPACE, session)
            if stored is not None:
                stored = replace(from_dict(stored), estimates=estimates).as_dict()
                await memory.state.put(NAMESPACE, session, stored, waits=False)


async def outcome_of(memory: Memory, notes: Noted) -> Outcome:
    """Returns the decisions and open items that follow from a session's notes."""
    return await run_sync(outcome, notes, memory.recognizer())


async def learn(memory: Memory, session: str, review: Review) -> None:
    """Stores a model's review of the notes."""
    async with memory.locks.transcript(session):
        stored = await memory.state.get(NAMESPACE, session)
        if stored is not None:
            await memory.state.put(NAMESPACE, session, replace(from_dict(stored), review=review).as_dict())


async def forget(memory: Memory, session: str) -> None:
    """Drops the notes of a session whose transcript was rewritten. They are computed again when they are needed."""
    await memory.state.remove(NAMESPACE, session)
