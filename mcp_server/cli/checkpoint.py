"""`context-manager checkpoint create|list|show|diff`."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

import click

from mcp_server.checkpoints.checkpoint import make, summary_text
from mcp_server.checkpoints.document import Checkpoint
from mcp_server.checkpoints.restore import diff_text
from mcp_server.checkpoints.stored import described_text, enrich_all, listed, read, shown_text
from mcp_server.cli import shell
from mcp_server.memory import Memory
from mcp_server.recovery.recover import Recovery, recover
from mcp_server.recovery.recoverable import meant, recoverable
from mcp_server.relevance.clarity import session_meant
from mcp_server.text.markdown import minute_text


@shell.group("checkpoint", "checkpoint create --note 'before the rewrite'", "checkpoint list", "recover ID")
def checkpoint_command() -> None:
    """Make, list, show and compare checkpoints of a conversation. `recover ID` goes back to one."""


@checkpoint_command.command("create")
@click.option("--session", help="The conversation (default: the one with the latest message).")
@click.option("--note", default="", help="The reason for the checkpoint.")
def create(session: str | None, note: str) -> None:
    """Save the state of a conversation."""

    async def act(memory: Memory) -> Checkpoint:
        made = await make(memory, await session_meant(memory, session), "asked", note)
        return await read(memory, made.id) if await enrich_all(memory) else made

    made = shell.with_memory(act)
    diff, back = f"context-manager checkpoint diff {made.id}", f"context-manager recover {made.id} --apply"
    next_steps = f"What going back would change: {diff}\nGo back: {back}"
    shell.print_result(made, "\n".join((summary_text(made).rstrip("\n"), next_steps)))


@checkpoint_command.command("list")
@click.option("--session", help="Only this conversation (default: all).")
@shell.limit_option(50, "How many, newest first.")
def list_(session: str | None, limit: int) -> None:
    """List the checkpoints, newest first: what each is about, its next step, and its ID."""
    shell.print_list(
        shell.with_memory(lambda memory: listed(memory, session, limit)),
        "No checkpoints yet. Make one: context-manager checkpoint create",
        ("made (UTC)", "what", "id"),
        lambda one: (minute_text(one.at), described_text(one), one.id),
        whole=("id",),
    )


@checkpoint_command.command("show")
@click.argument("checkpoint")
def show(checkpoint: str) -> None:
    """Print a checkpoint: decisions, open items, state."""
    found = shell.with_memory(lambda memory: read(memory, checkpoint))
    shell.print_result(found, shown_text(found))


@checkpoint_command.command("diff")
@click.argument("checkpoint")
@click.argument("other", required=False)
def diff(checkpoint: str, other: str | None) -> None:
    """Show the changes from now, or from OTHER, to CHECKPOINT."""
    found = shell.with_memory(lambda memory: diff_text(memory, checkpoint, other))
    shell.print_result({"checkpoint": checkpoint, "other": other, "diff": found.splitlines()}, found)


@shell.command(
    "recover",
    "recover",
    "recover --query tulips",
    "recover knowledge/identity/USER.md@2026-02-01",
    "recover ID --apply",
)
@click.argument("what", required=False, metavar="[PATH@REV|ID]")
@click.option("--knowledge/--no-knowledge", default=None, help="For a checkpoint: restore the knowledge files, too.")
@click.option("--query", help="List entries that contain these words; with --apply: recover the best match.")
@click.option("--session", help="List only what was removed from the context of this conversation.")
@shell.apply_option
@shell.limit_option(10, "Maximum number of each kind.", 200)
def recover_command(
    what: str | None, knowledge: bool | None, query: str | None, session: str | None, apply: bool, limit: int
) -> None:
    """Bring back a dropped chunk, an earlier version, an archived entry, a reverted commit, or a checkpoint.

    Without arguments: list what can be recovered, with the IDs.

    PATH@REV is a file as it was at a commit, a tag or a date (YYYY-MM-DD). Going back to a checkpoint restores anchors,
    topics, the live context and its items. A recovery can be undone by another one.
    """
    if what and (query or session):
        raise click.UsageError("give PATH@REV or an ID, or use --query and --session, not both")
    if apply and not (what or query):
        raise click.UsageError("--apply needs PATH@REV, an ID or --query")

    if what is None and not apply:
        shell.print_list(
            shell.with_memory(lambda memory: recoverable(memory, query, limit, session), fresh=bool(query)),
            "Nothing to recover: no chunk was dropped, no entry was archived, and no committed file has changed.",
            ("written (UTC)", "kind", "what", "id"),
            lambda one: (one.written, one.kind, one.summary, one.id),
            whole=("id",),
        )
        return

    async def act(memory: Memory) -> Recovery:
        found = what or (await meant(memory, query or "", session)).id
        return await recover(memory, found, shell.caller(), apply=apply, knowledge=knowledge)

    done = shell.with_memory(act, fresh=what is None)
    shell.print_result(done, replace(done, undo=None).markdown)
    if done.undo:
        shell.hint(f"Undo it with: context-manager recover {done.undo} --apply")
    elif done.diff and not done.applied:
        shell.say_not_applied(f"recover {quote(done.id)}", " --knowledge" if knowledge else "")
