"""`context-manager last` and `pause`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from itertools import islice
from typing import Any

import click

from mcp_server.cli import shell
from mcp_server.context import briefs, windows
from mcp_server.context.windows import Pause
from mcp_server.conversations.projects import list_projects, must_know, project_of
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.model import Project
from mcp_server.page.passages import Passages
from mcp_server.storage import logs
from mcp_server.text.prose import clipped, counted

LOOKED_BACK = 5_000
"""Lines of the log that are searched."""

SHOWN, BEGINNING = 12, 60
"""Rows of a list, and characters of a line in it."""

NEXT = "The hooks of a client send each prompt; `context-manager doctor` checks them."

EVENTS = {"SessionStart": "a window begins", "UserPromptSubmit": "a prompt"}


@shell.command("last", "last", "last --watch", "last --session ses_1f2e --json")
@click.option("--session", help="Only this conversation (default: all).")
@click.option("--watch", is_flag=True, help="Show each decision when it is made, until Ctrl+C.")
def last_command(session: str | None, watch: bool) -> None:
    """Show the exact text that was last added to a prompt, and why; the texts that its session got before; and why
    nothing was added since."""
    if watch:
        _watch(session)
        return

    async def ask(memory: Memory) -> tuple[list[dict[str, Any]], dict[str, str]]:
        logged = islice(windows.pushed(memory), LOOKED_BACK)
        found = [dict(record) for record in logged if session is None or record.get("session") == session]
        last = next((record for record in found if record.get("decision") == "injected"), {})
        passages, shown = Passages(memory), last.get("considered", ())[:SHOWN]
        words = {one["id"]: passages.turn(one["id"]) or passages.of(one["id"], one.get("title", "")) for one in shown}
        return found, {place: one.text for place, one in words.items()}

    # `fresh` also handles the queue: a hook that found no server has put its report there.
    records, words = shell.with_memory(ask, fresh=True)
    added = [number for number, record in enumerate(records) if record.get("decision") == "injected"]
    last = records[added[0]] if added else None
    since = records[: added[0]] if added else records
    earlier = [records[number] for number in added[1:] if last and records[number].get("session") == last["session"]]
    if shell.printed_as_json({"last": last, "since": since[:SHOWN], "earlier": earlier[:SHOWN]}):
        return
    if last is not None:
        _draw(last, words)
        click.echo()
        shell.print_text(str(last["text"]))
        _list("added earlier in this session", earlier)
        _list("since then nothing was added", since)
        return
    where = f"in session {session!r}" if session else "yet"
    cause = "" if since else f": the memory has received no prompt{' from it' if session else ''}"
    shell.print_text(f"Nothing was added to a prompt {where}{cause}. {NEXT}")
    _list("nothing was added", since)


def _watch(session: str | None) -> None:
    """Prints each new record of the log: a line and the added text, or one line of JSON."""

    async def follow(memory: Memory) -> None:
        click.echo("Waiting for prompts; Ctrl+C ends it.", err=True)
        async for record in logs.follow(memory.files, windows.PUSHED):
            if session is not None and record.get("session") != session:
                continue
            if shell.as_json():
                click.echo(json.dumps(record))
                continue
            shell.print_text(_line(record))
            if record.get("text"):
                shell.print_text(str(record["text"]) + "\n")

    shell.with_memory(follow)


def _draw(record: Mapping[str, Any], words: Mapping[str, str]) -> None:
    """Prints when, where and why a text was added, and what else was considered, with the `words` of its lines by id.
    The text itself follows."""
    size = f"{record.get('tokens', 0):,} tokens, {record.get('characters', 0):,} characters"
    facts = {
        "when": f"{_when(record)} · {EVENTS.get(str(record.get('event')))} · session {record.get('session')}",
        "project": record.get("project"),
        "prompt": record.get("prompt"),
        "size": f"{size}   sha256 {str(record.get('sha256'))[:16]}…",
        "why": _reason(record),
    }
    shell.print_facts(facts)
    considered = record.get("considered") or []
    if considered:
        columns = ("", "tokens", "score", "estimate", "what", "why")
        rows = [_considered(one, words.get(one["id"], "")) for one in considered[:SHOWN]]
        shell.print_table(columns, rows, right=columns[1:4])
    if len(considered) > SHOWN:
        click.echo(f"… and {len(considered) - SHOWN} more (--json shows all)")
    click.echo("the exact text:")


def _considered(one: Mapping[str, Any], words: str) -> tuple[str, ...]:
    scores = (f"{one[name]:.2f}" if isinstance(one.get(name), float) else "" for name in ("score", "worth"))
    return (
        *("■" if one.get("included") else "·", f"{one['tokens']:,}" if one.get("tokens") else "", *scores),
        *(f"{clipped(words, BEGINNING)} {one['id']}", str(one["reason"])),
    )


def _list(title: str, records: list[dict[str, Any]]) -> None:
    """Prints a title and one line for each record: the prompt, what was added, and why."""
    if not records:
        return
    shell.print_text(f"\n{title}: {counted(len(records), 'time')}")
    for record in records[:SHOWN]:
        shell.print_text(f"  {_line(record)}")
    if len(records) > SHOWN:
        click.echo(f"  … and {len(records) - SHOWN} before")


def _line(record: Mapping[str, Any]) -> str:
    """Returns the time, the prompt, and what was added and why, in one line."""
    said = clipped(str(record.get("prompt") or EVENTS.get(str(record.get("event")))), 60)
    tokens = f"{record['tokens']:,} tokens: " if record.get("tokens") else ""
    return f"{_when(record)}  {said}  — {tokens}{_reason(record)}"


def _reason(record: Mapping[str, Any]) -> str:
    if record.get("decision") != "injected":
        return str(record.get("why"))
    count = int(record.get("passages") or 0)
    if record.get("event") == "SessionStart":
        alone = ", read from disk because no server was running yet" if "no server" in str(record.get("why")) else ""
        return f"a window begins: the brief, with who you are, lasting knowledge and the latest work{alone}"
    topics = sum(bool(one.get("included")) and one.get("slot") == "topics" for one in record.get("considered") or ())
    wrong = any(one.get("included") and one.get("slot") == "corrections" for one in record.get("considered") or ())
    said = ["one passage is relevant to the prompt" if count == 1 else f"{count} passages are relevant to the prompt"]
    said = (said if count else []) + (["a topic was activated"] if topics else [])
    new = f"{' and '.join(said)}, and this window did not have {'it' if len(said) == count == 1 else 'them'} yet"
    parts = [new if said else "", "the last answer is corrected" if wrong else ""]
    return "; ".join(filter(None, parts)) or str(record.get("why"))


def _when(record: Mapping[str, Any]) -> str:
    return str(record.get("at", ""))[:19].replace("T", " ")


_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?")


def duration_of(context: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    """Returns a length of time such as `90m`, `2h` or `1d12h`."""
    if value is None:
        return None
    found = _DURATION.fullmatch(value.strip().lower())
    days, hours, minutes = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    if not days + hours + minutes:
        raise click.BadParameter(f"{value!r} is not a length of time; write 30m, 2h or 1d")
    return timedelta(days=days, hours=hours, minutes=minutes)


@shell.command("pause", "pause --for 2h", "pause --here", "pause --end")
@click.option("--project", help="Only in this project.")
@click.option("--here", is_flag=True, help="Only in the project of this folder.")
@click.option(
    "--for", "duration", metavar="TIME", callback=duration_of, help="How long: 30m, 2h, 1d (default: until --end)."
)
@click.option("--end", is_flag=True, help="Add to prompts again: end this pause, or all of them.")
def pause_command(project: str | None, here: bool, duration: timedelta | None, end: bool) -> None:
    """Add nothing to prompts, everywhere or in one project. Conversations are still recorded."""
    if end:
        if duration is not None:
            raise click.UsageError("--end ends a pause at once; leave out --for")
        _resume(project, here)
        return

    async def act(memory: Memory) -> Pause:
        made = await windows.pause(memory, await chosen(memory, project, here), duration)
        await briefs.refresh(memory)
        return made

    made = shell.with_memory(act)
    how_to_end = "" if made.until else "; `context-manager pause --end` ends it"
    shell.print_result(
        made, f"{made.words}: nothing is pushed into prompts, but conversations are recorded{how_to_end}"
    )


async def chosen(memory: Memory, project: str | None, here: bool) -> Project | None:
    """Returns the project that is named, or that of the folder (`here`); None for everywhere."""
    if project is not None:
        must_know([one.slug for one in await list_projects(memory)], project)
        return await project_of(memory, shell.caller(), project)
    if not here:
        return None
    found = await project_of(memory, shell.caller())
    if found.slug is None:
        raise NotFound("this folder belongs to no project; go to the project's folder, or leave out --here")
    return found


def _resume(project: str | None, here: bool) -> None:
    async def act(memory: Memory) -> tuple[list[Pause], list[Pause], bool]:
        lifted = await windows.resume(memory, await chosen(memory, project, here))
        await briefs.refresh(memory)
        return lifted, await windows.pauses(memory), memory.settings.hooks.inject

    lifted, left, switched_on = shell.with_memory(act)
    said = [f"no longer paused {one.place}" for one in lifted]
    said = said or ["nothing was paused there" if project or here else "nothing was paused"]
    said += [f"still {one.words}" for one in left]
    said += [] if switched_on else ["nothing is pushed yet: hooks.inject is off, or CONTEXT_MANAGER_PAUSE is set"]
    shell.print_result({"ended": lifted, "left": left, "hooks_inject": switched_on}, "\n".join(said))
