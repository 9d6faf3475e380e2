"""`context-manager pause`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import json_option, print_json, print_text

if TYPE_CHECKING:
    from mcp_server.context.pauses import Pause
    from mcp_server.memory import Memory
    from mcp_server.project import Project

_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?")


def duration_of(context: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    """`90m`, `2h`, `1d12h` as a length of time."""
    if value is None:
        return None
    found = _DURATION.fullmatch(value.strip().lower())
    days, hours, minutes = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    if not days + hours + minutes:
        raise click.BadParameter(f"{value!r} is no length of time; write 30m, 2h or 1d")
    return timedelta(days=days, hours=hours, minutes=minutes)


project_option = click.option("--project", help="Only in this project.")
here_option = click.option("--here", is_flag=True, help="Only in the project of this folder.")


@click.command("pause")
@project_option
@here_option
@click.option(
    "--for",
    "duration",
    metavar="TIME",
    callback=duration_of,
    help="For so long: 30m, 2h, 1d (default: until `resume`).",
)
@json_option
def command(project: str | None, here: bool, duration: timedelta | None, as_json: bool) -> None:
    """Push nothing into prompts, everywhere or in one project. What is said is recorded all the same."""
    from mcp_server.context import briefs, pauses

    async def act(memory: Memory) -> Pause:
        made = await pauses.pause(memory, await chosen(memory, project, here), duration)
        await briefs.refresh(memory)
        return made

    made = with_memory(act)
    if as_json:
        print_json(made)
    else:
        end = "" if made.until else "; `context-manager resume` ends it"
        print_text(f"{made.words}: nothing is pushed into prompts, what is said is recorded{end}")


async def chosen(memory: Memory, project: str | None, here: bool) -> Project | None:
    """The project that is meant; None for everywhere."""
    from mcp_server.conversations.projects import list_projects, project_of
    from mcp_server.errors import NotFound

    if project is not None:
        known = [one.slug for one in await list_projects(memory)]
        if project not in known:
            raise NotFound(f"no project {project!r} (project list shows: {', '.join(known) or 'none yet'})")
        return await project_of(memory, caller(), project)
    if not here:
        return None
    found = await project_of(memory, caller())
    if found.slug is None:
        raise NotFound("this folder belongs to no project; go to the project's folder, or leave out --here")
    return found
