"""`context-manager session list|show|end`."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import click

from mcp_server.app import catch_up
from mcp_server.cli import shell
from mcp_server.context import briefs
from mcp_server.conversations.projects import list_projects, merge_projects, must_know, names_of, rename_project
from mcp_server.conversations.sessions import (
    SessionEnded,
    SessionShown,
    end_session,
    everything_said,
    list_sessions,
    show_session,
)
from mcp_server.knowledge.extract import extract_pending
from mcp_server.knowledge.writing import renew_memory
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.storage.values import SessionRow
from mcp_server.text.prose import counted


@shell.group("session", "session list --open", "session show ses_1f2e")
def session_command() -> None:
    """List, show and end conversations."""


@session_command.command("list")
@click.option("--open", "open_only", is_flag=True, help="Only those that have not ended.")
@shell.limit_option(50, "How many, newest first.")
def session_list(open_only: bool, limit: int) -> None:
    """List the conversations, newest first."""

    async def ask(memory: Memory) -> tuple[list[SessionRow], Callable[[str], str]]:
        return list(await list_sessions(memory, open_only=open_only, limit=limit)), await names_of(memory)

    rows, name = shell.with_memory(ask, fresh=True)
    shell.print_list(
        rows,
        "No conversations yet. Begin one: context-manager observe MESSAGE, or import some: import FILE",
        ("session", "", "turns", "last (UTC)", "project", "title"),
        lambda one: (one.session, one.status, one.turns, shell.moment(one.last_at), name(one.project), one.title),
        right=("turns",),
        whole=("session",),
    )


@session_command.command("show")
@click.argument("session")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also turns that are hidden because the session was wound back to a checkpoint.",
)
def show(session: str, everything: bool) -> None:
    """Show one conversation with its messages. The first characters of its id are enough, from 6 on."""

    async def ask(memory: Memory) -> tuple[SessionShown, list[tuple[Turn, str | None]]]:
        found = await show_session(memory, session)
        return found, await everything_said(memory, found)

    shown, said = shell.with_memory(ask, fresh=True)
    if shell.as_json():
        turns = [{**shell.plain(turn), "beside": beside} for turn, beside in said]
        shell.print_json({**shell.plain(shown), "turns": turns})
        return
    others = list(dict.fromkeys(path for _, path in said if path))
    shell.print_text(
        f"{shown.row.title}\n{shown.row.session}, {shown.row.status}, {counted(len(said), 'turn')}, "
        + ", ".join([*shown.paths, *others])
    )
    if others:
        shell.print_text(
            f"This conversation was continued on two machines: turns marked with * are in {', '.join(others)}"
        )
    for turn, beside in said:
        if everything or beside or shown.seen is None or turn.number <= shown.seen:
            mark = "*" if beside else ""
            shell.print_text(f"\n#{turn.number}{mark} {shell.moment(turn.at)} {turn.name or turn.role}\n{turn.content}")
    if shown.wound_back:
        shell.print_text(f"\n({shown.wound_back}{'' if everything else '; --all shows them'})")


@session_command.command("end")
@click.argument("session")
def end(session: str) -> None:
    """Close a conversation and commit its transcript."""

    async def act(memory: Memory) -> SessionEnded:
        ended = await end_session(memory, session)
        if memory.settings.lifecycle.extraction_trigger == "on_session_end":
            await extract_pending(memory)
            await catch_up(memory, reads=True)  # if no server runs, a hook reads the index and the brief from disk
            await briefs.refresh(memory)
        return ended

    ended = shell.with_memory(act)
    commit = f"commit {ended.committed[:10]}" if ended.committed else f"not committed: {ended.note or 'see doctor'}"
    shell.print_result(ended, f"{ended.session} is closed: {ended.path}, {commit}")


@shell.group("project", "project list", "project rename bakery ovens --apply")
def project_command() -> None:
    """List, rename and merge projects. Transcripts do not change: only the mapping of their keys to projects does."""


@project_command.command("list")
def project_list() -> None:
    """List the projects with their keys and numbers of conversations."""
    shell.print_list(
        shell.with_memory(list_projects),
        "No projects yet: the first message from a project's folder makes one.",
        ("project", "conversations", "keys"),
        lambda one: (one.slug, one.sessions, ", ".join(one.keys)),
        right=("conversations",),
    )


@project_command.command("rename")
@click.argument("old")
@click.argument("new")
@shell.apply_option
def rename(old: str, new: str, apply: bool) -> None:
    """Rename the project OLD to NEW, with its folder."""
    if not apply:
        _show_change(shlex.join(("project", "rename", old, new)), old, f"{old} would be called {new}")
        return
    slug = shell.with_memory(lambda memory: rename_project(memory, old, new))
    shell.print_result({"old": old, "new": slug}, f"{old} is now {slug}.")


@project_command.command("merge")
@click.argument("source")
@click.argument("into")
@shell.apply_option
def merge(source: str, into: str, apply: bool) -> None:
    """Make the project SOURCE part of the project INTO."""
    if not apply:
        command = shlex.join(("project", "merge", source, into))
        _show_change(command, source, f"{source} would become part of {into}", into)
        return

    async def act(memory: Memory) -> str:
        done = await merge_projects(memory, source, into)
        await renew_memory(memory)
        return done

    done = shell.with_memory(act)
    shell.print_result({"source": source, "into": into, "result": done}, f"{source} is now part of {into}.")


def _show_change(command: str, slug: str, change: str, into: str | None = None) -> None:
    """Prints what renaming a project, or merging it `into` another one, would affect. Raises NotFound if there is no
    such project."""
    known = {project.slug: project for project in shell.with_memory(list_projects)}
    for one in (slug, into or slug):
        must_know(known, one)
    said = f"{change}: {counted(known[slug].sessions, 'conversation')}."
    shell.print_result({"project": known[slug], "change": change, "applied": False}, said)
    shell.say_not_applied(command)
