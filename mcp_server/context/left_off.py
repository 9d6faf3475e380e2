"""Where a conversation stood when its window was emptied, for the contexts that come right after."""

from __future__ import annotations

from collections.abc import Sequence

from anyio.to_thread import run_sync

from mcp_server.checkpoints import stored
from mcp_server.checkpoints.document import Checkpoint
from mcp_server.context.inputs import LeftOff
from mcp_server.context.slots.checkpoint import is_news
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.storage.checkpoint_files import CheckpointFiles, folder_of
from mcp_server.storage.values import SessionRow
from mcp_server.text.yaml_line import moment_text


async def left_off(
    memory: Memory, row: SessionRow, turns: Sequence[Turn], in_window: int | None, until: int | None = None
) -> LeftOff | None:
    """What a context of the session says of where it stood: its last checkpoint, for some exchanges after its window
    was emptied; else None. `turns` are its newest; the client's window holds those from number `in_window` on. Turns
    after number `until`, and checkpoints made after it, are not seen.

    Where the client keeps its own window, only the client empties it; elsewhere our compaction does.
    """
    ours = row.delivery == "replace"
    if not ours and in_window is None:
        return None
    kept = [head for head in await stored.listed(memory, row.session) if until is None or head.turn <= until]
    compacted = [head.turn + 1 for head in kept if ours and head.reason == "compaction"]
    emptied = max([*compacted, in_window or 0])
    if not kept or not emptied or not is_news(turns, emptied):
        return None
    return of_checkpoint(await run_sync(CheckpointFiles(memory.files).read, kept[0].path))


def of_checkpoint(checkpoint: Checkpoint) -> LeftOff:
    """What of a checkpoint a context shows."""
    return LeftOff(
        id=checkpoint.id,
        path=f"{folder_of(checkpoint.session)}/{checkpoint.id}.md",
        at=moment_text(checkpoint.at)[:16].replace("T", " "),
        turn=checkpoint.turn,
        thread=checkpoint.thread,
        decisions=checkpoint.decisions,
        open_items=checkpoint.open_items,
        last_tool_call=checkpoint.last_tool_call,
        files=checkpoint.files,
    )
