"""The explain view: true to the receipt, harmless on any terminal."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from mcp_server.cli.compile import show
from mcp_server.context.sections import Considered, Receipt, SlotAccount
from mcp_server.model import GateSignal


def receipt(**changes: Any) -> dict[str, Any]:
    considered = (
        Considered("knowledge/identity/USER.md:1-9", "identity", "knowledge/identity/USER.md", True, "identity", 90),
        Considered(
            id="raw/conversations/2026/02/03/0740-talk-oven.md:9-12",
            slot="knowledge",
            source="raw/conversations/2026/02/03/0740-talk-oven.md",
            included=True,
            reason="relevant, in part",
            tokens=120,
            score=0.54,
            charge=0.05,
            terms={"relevance": 0.6, "decay": 0.9, "references": 1.0},
            relevance={"answer": 0.3, "best": 0.2, "whole": 0.06, "user": 0.03, "brief": 0.01, "told": 0.0},
            unit="raw/conversations/2026/02/03/0740-talk-oven.md#7",
            turn=7,
            whole=False,
        ),
        Considered(
            "knowledge/reference/x.md:1", "knowledge", "knowledge/reference/x.md", False, "no room left", 80, 0.2
        ),
    )
    slots = (
        SlotAccount("safety", 20, 1000, 0, 0, 0),
        SlotAccount("identity", 90, 150, 0, 1, 0),
        SlotAccount("journal", 0, 200, 0, 0, 0),
        SlotAccount("knowledge", 120, 1000, 350, 1, 1),
    )
    whole = Receipt(
        "ab" * 32, 1000, 236, "add", "ses_1", "git:x/y", slots, 6, considered, {"no room": 41, "empty": 2},
        GateSignal(True, "best cosine", 0.61, 0.33),
    )  # fmt: skip
    return {**asdict(whole), **changes}


def shown(account: dict[str, Any], message: str = "", width: int = 120, **console: Any) -> str:
    out = io.StringIO()
    show(account, message, Console(file=out, width=width, **console))
    return out.getvalue()


def test_it_says_where_the_budget_went_what_went_in_what_stayed_out_and_why() -> None:
    text = shown(receipt(), "Which oven?", width=220)
    assert "Which oven?" in text
    assert "236 of 1,000 tokens (24%)" in text
    assert "0.610 ≥ 0.330   best cosine" in text
    assert "open" in text
    assert "2026-02-03 talk-oven #7 (part)" in text
    assert "0.540" in text
    assert "(answer 0.30 + best 0.20 + whole 0.06 + 2 more 0.04) × decay 0.90 − 0.05 length" in text
    assert "stayed out: 44" in text
    assert "no room" in text
    assert "ab" * 32 in text
    assert "journal" not in text


def test_a_closed_gate_and_no_gate_are_told() -> None:
    closed = receipt(gate={"open": False, "signal": "best cosine", "value": 0.2, "threshold": 0.33})
    assert "closed: nothing here is about this" in shown(closed)
    assert "not evaluated" in shown(receipt(gate=None))
    assert "128" in shown(receipt(too_small=True))


@pytest.mark.parametrize("bad", ["\x1b[2J", "\x07", "\u202e", "\ud800", "[bold red]"])
def test_nothing_stored_can_drive_the_terminal(bad: str) -> None:
    account = receipt(session=bad, left_out={bad: 3})
    account["considered"][0]["source"] = bad
    text = shown(account, bad)
    assert bad not in text or bad.startswith("[")
    text.encode()
