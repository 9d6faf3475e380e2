"""`context-manager session list|show|end`."""

from __future__ import annotations

from collections.abc import Callable

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, moment, plain, print_json, print_table, print_text


@click.group("session")
def command() -> None:
    """List, show and end conversations."""


@command.command("list")
@click.option("--open", "open_only", is_flag=True, help="Only those that have not ended.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many, newest first.")
@json_option
def list_(open_only: bool, limit: int, as_json: bool) -> None:
    """List the conversations, newest first."""
    from mcp_server.conversations.projects import names_of
    from mcp_server.conversations.sessions import list_sessions
    from mcp_server.memory import Memory
    from mcp_server.storage.values import SessionRow

    async def ask(memory: Memory) -> tuple[list[SessionRow], Callable[[str], str]]:
        return list(await list_sessions(memory, open_only=open_only, limit=limit)), await names_of(memory)

    rows, name = with_memory(ask, fresh=True)
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("No conversations yet. Begin one: context-manager observe MESSAGE, or import some: import FILE")
    else:
        shown = [(r.session, r.status, r.turns, moment(r.last_at), name(r.project), r.title) for r in rows]
        columns = ("session", "", "turns", "last (UTC)", "project", "title")
        print_table(columns, shown, right=("turns",), whole=("session",))


@command.command("show")
@click.argument("session")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also turns that are hidden because the session was wound back to a checkpoint.",
)
@json_option
def show(session: str, everything: bool, as_json: bool) -> None:
    """Show one conversation with its messages."""
    from mcp_server.conversations.sessions import SessionShown, everything_said, show_session
    from mcp_server.memory import Memory
    from mcp_server.model import Turn

    async def ask(memory: Memory) -> tuple[SessionShown, list[tuple[Turn, str | None]]]:
        found = await show_session(memory, session)
        return found, await everything_said(memory, found)

    shown, said = with_memory(ask, fresh=True)
    if as_json:
        turns = [{**plain(turn), "beside": beside} for turn, beside in said]
        print_json({**plain(shown), "turns": turns})
        return
    count = f"{len(said)} turn{'' if len(said) == 1 else 's'}"
    others = list(dict.fromkeys(path for _, path in said if path))
    print_text(f"{shown.row.title}\n{session}, {shown.row.status}, {count}, {', '.join([*shown.paths, *others])}")
    if others:
        print_text(f"This conversation was continued on two machines: turns marked with * are in {', '.join(others)}")
    for turn, beside in said:
        if everything or beside or shown.seen is None or turn.number <= shown.seen:
            mark = "*" if beside else ""
            print_text(f"\n#{turn.number}{mark} {moment(turn.at)} {turn.name or turn.role}\n{turn.content}")
    if shown.wound_back:
        print_text(f"\n({shown.wound_back}{'' if everything else '; --all shows them'})")


@command.command("end")
@click.argument("session")
@json_option
def end(session: str, as_json: bool) -> None:
    """Close a conversation and commit its transcript."""
    from mcp_server.conversations.sessions import SessionEnded, end_session
    from mcp_server.knowledge.extract import extract_pending
    from mcp_server.memory import Memory

    async def act(memory: Memory) -> SessionEnded:
        ended = await end_session(memory, session)
        if memory.settings.lifecycle.extraction_trigger == "on_session_end":
            await extract_pending(memory)
        return ended

    ended = with_memory(act)
    if as_json:
        print_json(ended)
    else:
        commit = f"commit {ended.committed[:10]}" if ended.committed else f"not committed: {ended.note or 'see doctor'}"
        print_text(f"{ended.session} is closed: {ended.path}, {commit}")
