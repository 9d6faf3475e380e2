"""What the server says about itself in the handshake.

The handshake is answered before the workspace is open, so the words of the last time are kept in a file beside the
index; a running server rewrites it when something changes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync

if TYPE_CHECKING:
    from mcp_server.memory import Memory


FIRST = """\
A long memory for conversations, kept as markdown files. Nothing is stored in it yet.

- At the start of a task, or when the subject changes: `compile_context` gives all the background it has.
- `observe` records each message; its answer begins with `session: ID`: pass that ID in every later call.
- `remember` writes down what should last; `search` and `read` find particulars; `status` says how the memory is.
"""

FIRST_WITH_HOOKS = """\
A long memory for conversations, kept as markdown files. Nothing is stored in it yet.

- This client's hooks record the conversation and bring in what is known: there is nothing that you must do for it.
- `remember` writes down what should last; `search` and `read` find particulars; `status` says how the memory is.
"""

NOTHING_STORED = " Nothing is stored in it yet."

EVERY = 30.0
"""Seconds between two writings of them; counting what is stored walks through the workspace."""


MAX_BRIEF = 1_800
"""Characters of the brief that goes into the instructions."""


async def handshake(memory: Memory | None, kept: Path | None, folder: str | None, hooks: bool = False) -> str:
    """Returns what a client gets in the handshake: the instructions and, for a client without hooks, a short brief of
    its folder's project, because no other channel reaches the model without a tool call. Never raises."""
    said = await now(memory, kept, hooks)
    brief = "" if hooks or kept is None or not folder else await run_sync(_brief, kept.parent, folder)
    return f"{said.rstrip()}\n\n{brief}\n" if brief else said


def _brief(local: Path, folder: str) -> str:
    """The whole lines of the folder's brief that fit."""
    from mcp_server.clients.hooks.alone import brief

    lines: list[str] = []
    for line in brief(str(local), {"cwd": folder}).strip().splitlines():
        if sum(len(one) + 1 for one in (*lines, line)) > MAX_BRIEF:
            break
        lines.append(line)
    return "\n".join(lines)


async def now(memory: Memory | None, kept: Path | None, hooks: bool = False) -> str:
    """Returns the instructions: from the open memory, else the kept ones, else those of a memory that no server has
    looked into yet. Never raises.

    `hooks`: of a server whose client's hooks record and bring in the context."""
    if memory is not None:
        from mcp_server.actions.status import instructions

        with contextlib.suppress(
            Exception
        ):  # a broken workspace must not stop the handshake; `status` says what is wrong
            return await instructions(memory, hooks=hooks)
    said = await run_sync(_read, kept) if kept else ""
    first = FIRST_WITH_HOOKS if hooks else FIRST
    empty = kept is None or not await run_sync(_made_before, kept)
    return said or (first if empty else first.replace(NOTHING_STORED, ""))


async def keep(memory: Memory, kept: Path | None, hooks: bool = False) -> None:
    """Writes the instructions down for the next start, if they have changed."""
    if kept is not None and kept.parent.is_dir():
        text = await now(memory, None, hooks)
        await run_sync(_write, kept, text)


def _made_before(kept: Path) -> bool:
    """Whether there is a memory, that imports, commands or another machine may have filled; `kept` lies two below."""
    return (kept.parent.parent / "memory-config.yaml").exists()


def _read(kept: Path) -> str:
    try:
        return kept.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _write(kept: Path, text: str) -> None:
    if text != _read(kept):
        beside = kept.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # a full or read-only disk: the next start says less, that is all
            beside.write_text(text, "utf-8")
            beside.replace(kept)
