"""Compiling: inputs → text → receipt. Pure: the same inputs and counter give the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from mcp_server.core.compiler import knowledge
from mcp_server.core.compiler.budget import Count, Meter, Room
from mcp_server.core.compiler.inputs import LEAST_BUDGET, CompileInputs, Digests
from mcp_server.core.compiler.receipt import Receipt, SlotAccount, accounted
from mcp_server.core.compiler.render import SEPARATOR
from mcp_server.core.compiler.section import Filling, Section
from mcp_server.core.compiler.slots import FILL, SHOWN


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled context. `sha256` is that of the text as UTF-8; `tokens` ≤ the budget of `inputs`."""

    text: str
    sha256: str
    tokens: int
    receipt: Receipt
    inputs: CompileInputs


def compile_inputs(inputs: CompileInputs, count: Count) -> Compiled:
    """The densest context for `inputs` within their budget, never a token over as `count` counts the whole text.

    Slots are filled by adding up their lines. Should the whole count more than its parts (possible for a tokenizer,
    not seen with ours), it is filled again with that much less.
    """
    meter = Meter(count)
    budget = allowance = max(0, inputs.budget)
    while True:
        sections, accounts = _filled(inputs, allowance, meter)
        text = SEPARATOR.join(sections[name].text for name in SHOWN if sections[name].text)
        tokens = count(text) if text else 0
        if tokens <= budget:
            break
        allowance -= max(1, tokens - budget)
    considered, left_out = accounted(one for name in sections for one in sections[name].considered)
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
        inputs=Digests(inputs),
        too_small=inputs.budget < LEAST_BUDGET,
    )
    return Compiled(text, sha256, tokens, receipt, inputs)


def _filled(
    inputs: CompileInputs, allowance: int, meter: Meter
) -> tuple[Mapping[str, Section], tuple[SlotAccount, ...]]:
    """Every slot in its turn: within its group's cap, and leaving free the floors of those that come after."""
    sections: dict[str, Section] = {}
    filling = Filling(inputs, allowance, meter, sections)
    caps: dict[str, tuple[int, int]] = {}
    spent: dict[str, int] = {}
    for position, slot in enumerate(FILL):
        later = [(one, one.floor(filling)) for one in FILL[position + 1 :]] if position else []
        free = allowance - sum(spent.values()) - sum(floor for _, floor in later)
        cap = slot.cap(filling)
        of_group = cap - spent.get(slot.group, 0) - sum(floor for one, floor in later if one.group == slot.group)
        caps[slot.name] = cap, slot.floor(filling)
        sections[slot.name] = slot.fill(filling, Room(max(0, min(free, of_group)), slot.most_bytes(filling)))
        spent[slot.group] = spent.get(slot.group, 0) + _cost(sections[slot.name], meter)
    sections["knowledge"] = _without_repeats(filling, sections)
    return sections, tuple(_account(name, sections[name], *caps[name], meter) for name in caps)


def _without_repeats(filling: Filling, sections: Mapping[str, Section]) -> Section:
    """P3 without the turns that the history shows: history fills last, and may reach back to what search had found."""
    repeated = sections["knowledge"].turns & sections["history"].turns
    if not repeated:
        return sections["knowledge"]
    return knowledge.fill(filling, Room(_cost(sections["knowledge"], filling.meter)), hidden=sections["history"].turns)


def _cost(section: Section, meter: Meter) -> int:
    return meter(section.text) + meter(SEPARATOR) if section.text else 0


def _account(name: str, section: Section, cap: int, floor: int, meter: Meter) -> SlotAccount:
    shown = [one for one in section.considered if one.included]
    return SlotAccount(name, meter(section.text), cap, floor, len(shown), sum(not one.whole for one in shown))
