"""`context-manager project list|rename|merge`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_table


@click.group("project")
def command() -> None:
    """List, rename and merge projects. Transcripts keep their keys: only the map changes, and can be changed back."""


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """The projects, with the keys that lead to each and how many conversations it has."""
    from mcp_server.conversations.projects import list_projects

    projects = with_memory(list_projects)
    if as_json:
        print_json(projects)
    elif not projects:
        click.echo("No projects yet: the first message from a project's folder makes one.")
    else:
        rows = [(project.slug, project.sessions, ", ".join(project.keys)) for project in projects]
        print_table(("project", "conversations", "keys"), rows, right=("conversations",))


@command.command("rename")
@click.argument("old")
@click.argument("new")
@json_option
def rename(old: str, new: str, as_json: bool) -> None:
    """Give OLD the name NEW; its folder moves along."""
    from mcp_server.conversations.projects import rename_project
    from mcp_server.memory import Memory

    async def act(memory: Memory) -> str:
        return await rename_project(memory, old, new)

    slug = with_memory(act)
    if as_json:
        print_json({"old": old, "new": slug})
    else:
        click.echo(f"{old} is now {slug}.")


@command.command("merge")
@click.argument("source")
@click.argument("into")
@json_option
def merge(source: str, into: str, as_json: bool) -> None:
    """Make everything of SOURCE belong to INTO."""
    from mcp_server.conversations.projects import merge_projects
    from mcp_server.memory import Memory

    async def act(memory: Memory) -> object:
        return await merge_projects(memory, source, into)

    done = with_memory(act)
    if as_json:
        print_json({"source": source, "into": into, "result": done})
    else:
        click.echo(f"{source} is now part of {into}.")
