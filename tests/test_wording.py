"""In `add` the client keeps its own window: no text of ours claims to have made room in it, or to be able to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from mcp_server.pressure import advise, health
from mcp_server.pressure.prune import IN_ADD

ROOT = Path(__file__).parent.parent
SOURCES = [
    file
    for room in ("mcp_server", "tools", "resources", "prompts", "plugin")
    for file in sorted((ROOT / room).rglob("*"))
    if file.suffix in {".py", ".md", ".json", ".yaml"}
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WINDOW = r"(?:context|window|prompt)s?\b"
VERBS = (
    r"free[sd]?|freeing|freed up|frees up|clear(?:s|ed)|empt(?:y|ies|ied)|shr[aiu]nks?|shrunken|reduc(?:es|ed)",
    r"compacted|pruned|removed|dropped|trimmed|evicted|unloaded",
)
DID = rf"\b(?:{'|'.join(VERBS)})\b"
THEIRS = r"\b(?:your|its own|(?:the (?:client|user|model|agent)|Claude(?: Code| Desktop)?|Cursor)(?:'s|’s))"
BECAME = rf"(?:is|was|has|have|been|gets?|became|becomes)[^.;:\n]{{0,15}}(?:{DID}|smaller|lighter|shorter)"
CLAIMS = [
    re.compile(claim, re.IGNORECASE)
    for claim in (
        rf"{DID}[^.;:\n]{{0,40}}{THEIRS}[^.;:\n]{{0,20}}{WINDOW}",
        rf"{THEIRS}[^.;:\n]{{0,20}}{WINDOW}[^.;:\n]{{0,40}}{BECAME}",
        rf"(?:room|space|tokens?)[^.;:\n]{{0,30}}(?:freed|reclaimed|saved)[^.;:\n]{{0,30}}{THEIRS}",
        r"\b(?:free[sd]? (?:up )?|reclaim(?:s|ed)? )(?:\S+ )?(?:tokens?|space|room|context|window)(?! and try)",
    )
]
DENIED = re.compile(
    r"\b(?:no|not|never|cannot|can't|nothing|none|only its user|as it was"  # it did not happen
    r"|when|whether|if|where|after|since|last|before|client, which"  # what the client itself did
    r"|disk|page)\b",  # what is no context
    re.IGNORECASE,
)
"""A sentence that says that it did not happen, or speaks of what the client itself did, claims nothing."""


def claims(text: str) -> list[str]:
    """The sentences of a text that say that we made room in the client's window."""
    sentences = re.split(r"(?<=[.!?;])\s+|\n\n+|\|", " ".join(text.split(" ")))
    joined = (" ".join(sentence.split()) for sentence in sentences)
    return [one for one in joined if any(claim.search(one) for claim in CLAIMS) and not DENIED.search(one)]


def texts(file: Path) -> list[str]:
    """What of a file may be read by a person or a model: its strings, docstrings among them; of others all of it."""
    source = file.read_text("utf-8")
    if file.suffix != ".py":
        return [source]
    return [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("file", [*SOURCES, *PAGES], ids=lambda file: str(file.relative_to(ROOT)))
def test_no_sentence_claims_to_have_freed_the_clients_context(file: Path) -> None:
    assert [claim for text in texts(file) for claim in claims(text)] == []


@pytest.mark.parametrize(
    "claim",
    [
        "Freed 3,000 tokens.",
        "This freed your context window.",
        "Your context is now smaller; it was pruned.",
        "Removed two files from the client's window.",
        "1,200 tokens were reclaimed from your context.",
        "prune frees up space",
    ],
)
def test_the_test_knows_a_claim(claim: str) -> None:
    assert claims(claim)


@pytest.mark.parametrize("text", [IN_ADD, advise.IN_ADD, health.IN_ADD])
def test_what_is_said_in_add_names_what_the_user_can_do(text: str) -> None:
    assert "/compact" in text
    assert re.search(r"cannot|own window", text)
