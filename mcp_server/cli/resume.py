"""`context-manager resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.pause import chosen, here_option, project_option
from mcp_server.cli.printing import json_option, print_json, print_text

if TYPE_CHECKING:
    from mcp_server.context.pauses import Pause
    from mcp_server.memory import Memory


@click.command("resume")
@project_option
@here_option
@json_option
def command(project: str | None, here: bool, as_json: bool) -> None:
    """Push into prompts again: ends a pause, or all of them."""
    from mcp_server.context import briefs, pauses

    async def act(memory: Memory) -> tuple[list[Pause], list[Pause], bool]:
        lifted = await pauses.resume(memory, await chosen(memory, project, here))
        await briefs.refresh(memory)
        return lifted, await pauses.pauses(memory), memory.settings.hooks.inject

    lifted, left, switched_on = with_memory(act)
    if as_json:
        print_json({"ended": lifted, "left": left, "hooks_inject": switched_on})
        return
    for one in lifted:
        print_text(f"no longer {one.words}")
    if not lifted:
        print_text("nothing was paused there" if project or here else "nothing was paused")
    for one in left:
        print_text(f"still {one.words}")
    if not switched_on:
        print_text("nothing is pushed all the same: hooks.inject is off, or CONTEXT_MANAGER_PAUSE is set")
