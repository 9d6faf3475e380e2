"""Compiling: inputs → text → receipt. Pure: the same inputs and counter give the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from mcp_server.context.inputs import LEAST_BUDGET, CompileInputs, CompilerSettings
from mcp_server.context.sections import (
    NO_ROOM_IN_SHARE,
    NOTHING,
    SEPARATOR,
    Filling,
    Receipt,
    Section,
    Slot,
    SlotAccount,
    accounted,
)
from mcp_server.context.slots import checkpoint, files, knowledge, session, topics
from mcp_server.settings import Settings
from mcp_server.tokens import UNLIMITED_BYTES, Count, Meter, Room

FILL: tuple[Slot, ...] = (
    session.SAFETY,  # P0
    files.IDENTITY,
    files.IN_FORCE,  # P1
    files.MEMORY,
    files.ACTIVE_PROJECTS,
    files.PROJECT,
    files.JOURNAL,
    checkpoint.CHECKPOINT,
    session.LAST_SESSION,
    topics.CORRECTIONS,  # P2
    topics.TOPICS,
    session.CLARITY,
    knowledge.KNOWLEDGE,  # P3
    session.HISTORY,  # P4
    session.DROP_LIST,
)

SHOWN: tuple[str, ...] = (
    "safety",
    "identity",
    "what holds",
    "memory",
    "active projects",
    "project",
    "journal",
    "last session",
    "checkpoint",
    "history",
    "topics",
    "corrections",
    "knowledge",
    "clarity",
    "dropped",
)

GROWTH_STEP = 1 / 8
"""Part of the allowance. Files grow by multiples of it, so that their text rarely changes from message to message and
stays in a provider's prompt cache."""

SPARE = 2  # tokens per slot that growing slots leave free: a slot needs one line end besides its text


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled context. `sha256` is of the text in UTF-8; `tokens` ≤ the budget of `inputs`."""

    text: str
    sha256: str
    tokens: int
    receipt: Receipt
    inputs: CompileInputs

    @property
    def shown(self) -> str:
        """The text for a client, which says so if it holds nothing but the safety line."""
        return session.NOTHING_KNOWN if self.text.strip() == session.LINE else self.text

    def receipt_json(self) -> dict[str, Any]:
        """Returns the receipt as JSON values, with a SHA-256 of each input field."""
        return {**asdict(self.receipt), "inputs": self.inputs.digests()}


def compiler_settings(settings: Settings) -> CompilerSettings:
    """Returns the settings that shape a compiled text."""
    knobs = settings.context_compiler
    return CompilerSettings(
        identity_share=knobs.identity_share,
        memory_share=knobs.memory_share,
        knowledge_floor_add=knobs.knowledge_floor_add,
        knowledge_floor=knobs.knowledge_floor,
        history_floor=knobs.history_floor,
        identity_kb=knobs.identity_budget_kb,
        memory_kb=knobs.memory_budget_kb,
        journal_kb=knobs.journal_budget_kb,
        topic_kb=knobs.topic_budget_kb,
        topic_share=knobs.topic_share,
        clarity_tokens=settings.clarity.block_tokens,
    )


def compile_short(inputs: CompileInputs, count: Count, longest: int) -> Compiled:
    """Compiles, with fewer tokens each time, until the text has at most `longest` characters."""
    compiled = compile_inputs(inputs, count)
    while len(compiled.text) > longest:
        fewer = compiled.tokens * longest * 9 // (10 * len(compiled.text))
        compiled = compile_inputs(replace(inputs, budget=fewer), count)
    return compiled


def compile_inputs(inputs: CompileInputs, count: Count) -> Compiled:
    """Compiles the context for `inputs`. As `count` counts the whole text, it never exceeds the budget. Slots are
    filled by adding up the tokens of their lines. If the whole text has more tokens than its lines (possible for a
    tokenizer, not seen with ours), the slots are filled again with that many tokens less."""
    meter = Meter(count)
    budget = allowance = max(0, inputs.budget)
    while True:
        sections, accounts = _filled(inputs, allowance, meter)
        text = SEPARATOR.join(sections[name].text for name in SHOWN if sections[name].text)
        tokens = count(text) if text else 0
        if tokens <= budget:
            break
        allowance -= max(1, tokens - budget)
    considered, left_out = accounted([one for section in sections.values() for one in section.considered])
    sha256 = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    receipt = Receipt(
        sha256=sha256,
        budget=budget,
        tokens=tokens,
        delivery=inputs.delivery,
        session=inputs.session,
        project=inputs.project,
        slots=accounts,
        separators=tokens - sum(account.tokens for account in accounts),
        considered=considered,
        left_out=left_out,
        gate=inputs.gate,
        too_small=inputs.budget < LEAST_BUDGET,
    )
    return Compiled(text, sha256, tokens, receipt, inputs)


def _filled(
    inputs: CompileInputs, allowance: int, meter: Meter
) -> tuple[Mapping[str, Section], tuple[SlotAccount, ...]]:
    """Fills every slot. If a slot that may grow was cut and enough tokens are left, fills all slots once more."""
    filling = Filling(inputs, allowance, meter, {})
    shares = {slot.name: getattr(inputs.settings, slot.share) if slot.share else 1 for slot in FILL}
    parts = {slot.name: int(int(allowance * shares[slot.name]) * slot.part) for slot in FILL}
    caps = {slot.name: slot.cap(filling) if slot.cap else parts[slot.name] for slot in FILL}
    growing = frozenset(slot.name for slot in FILL if slot.grows and caps[slot.name] > 0)  # a share of 0 stays 0
    sections, accounts = _pass(filling, allowance, caps, growing)
    separator = meter(SEPARATOR)
    costs = {one.name: one.tokens + separator if sections[one.name].text else 0 for one in accounts}
    left = allowance - sum(costs.values())
    step = max(1, int(allowance * GROWTH_STEP))
    shown = [one for name in growing for one in sections[name].considered]
    if left >= step and any(not one.whole or one.reason == NO_ROOM_IN_SHARE for one in shown):  # one of them was cut
        return _pass(filling, allowance - left % step, caps, growing, costs)
    return sections, accounts


def _pass(
    filling: Filling,
    tokens: int,
    caps: Mapping[str, int],
    growing: frozenset[str],
    costs: Mapping[str, int] | None = None,
) -> tuple[Mapping[str, Section], tuple[SlotAccount, ...]]:
    """Fills the slots in order: each within the cap of its group, while the floors of later slots stay free. `costs`
    are the tokens of each slot in the first pass. In the second pass the other slots keep these, and a slot that is
    `growing` may take the rest."""
    sections: dict[str, Section] = {}
    filling = replace(filling, before=sections)
    empty = {slot.name for slot in FILL if slot.needs and not getattr(filling.inputs, slot.needs)}
    meter = filling.meter
    floors = dict.fromkeys(caps, 0)
    reserved = dict.fromkeys((slot.group for slot in FILL), 0)
    later = sum(costs.values()) if costs else 0
    of_groups: dict[str, int] = {}
    counts: dict[str, int] = {}
    separator = meter(SEPARATOR)
    spent = 0
    for position, slot in enumerate(FILL):
        name, group = slot.name, slot.group
        reserved[group] -= floors[name]
        later -= costs[name] if costs else 0
        free = tokens - spent - (sum(reserved.values()) if costs is None else later)
        if costs is not None and name in growing:
            room = Room(max(0, free - SPARE * (len(FILL) - position - 1)))
        else:
            of_group = caps[name] - of_groups.get(group, 0) - reserved[group]
            most = int(1024 * getattr(filling.inputs.settings, slot.most_kb)) if slot.most_kb else UNLIMITED_BYTES
            room = Room(max(0, min(free, of_group)), most)
        section = sections[name] = NOTHING if name in empty else slot.fill(filling, room)
        counts[name] = meter(section.text) if section.text else 0
        cost = counts[name] + separator if section.text else 0
        spent += cost
        of_groups[group] = of_groups.get(group, 0) + (cost if costs is None else costs[name])
        if position == 0:  # the safety line, which takes what it needs; the history's floor depends on it
            floors = {one.name: one.floor(filling) if one.floor and one.name not in empty else 0 for one in FILL}
            for one in FILL[1:]:
                reserved[one.group] += floors[one.name]
    repeated = sections["knowledge"].turns & sections["history"].turns
    if repeated:  # the history fills last, and may include found turns
        room = Room(counts["knowledge"] + separator)
        sections["knowledge"] = knowledge.fill(filling, room, hidden=sections["history"].turns)
        counts["knowledge"] = meter(sections["knowledge"].text)
    accounts = [_account(name, section, counts[name], caps[name], floors[name]) for name, section in sections.items()]
    return sections, tuple(accounts)


def _account(name: str, section: Section, tokens: int, cap: int, floor: int) -> SlotAccount:
    shown = [one.whole for one in section.considered if one.included]
    return SlotAccount(name, tokens, cap, floor, len(shown), shown.count(False))
