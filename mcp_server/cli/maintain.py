"""Commands that maintain the memory: `prune`, `reset`, `extract`, `condense` and `jobs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import click

from mcp_server.app import catch_up
from mcp_server.cli import shell
from mcp_server.jobs.scheduler import JOBS, Ran, planned, run_due, run_now
from mcp_server.knowledge.condense import Condensed, Period, condense
from mcp_server.knowledge.extract import Extracted, extract
from mcp_server.knowledge.prune_knowledge import Pruned, archive_files
from mcp_server.memory import Memory
from mcp_server.pressure.prune import OF_KNOWLEDGE, last_session, prune
from mcp_server.relevance.advisor_items import SHIPPED
from mcp_server.status.doctor import STAYS, Reset, plan_reset, reset
from mcp_server.text.prose import counted

SAME_COMMAND = "Nothing was changed yet; to do it, run the same command with --apply"


@shell.command(
    "prune", "prune", "prune --strategy compact --apply", "prune knowledge/people/old-contact.md --apply", "recover"
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@shell.choice_option(
    "--strategy",
    values=["auto", "clarity", "advisor", "compact", "memory", "files"],
    about="A context (auto, compact), its items (clarity, advisor), MEMORY.md (memory) or unused knowledge (files).",
    default="auto",
)
@click.option("--session", help="The conversation (default: the open one with the latest message).")
@click.option("--target", type=click.IntRange(0), help="The size to reach: percent of the limit; memory: lines.")
@click.option("--lexicon", is_flag=True, help="Print the advisor's lexicon, to edit a copy (`advisor.lexicon`).")
@shell.apply_option
def prune_command(
    paths: tuple[str, ...],
    strategy: str,
    session: str | None,
    target: int | None,
    lexicon: bool,
    apply: bool,
) -> None:
    """Shorten a conversation's context or the knowledge, and say why; with PATH, move these files to archive/.

    Everything that is removed can be recovered. Search still finds what is in archive/.
    """
    if lexicon:
        text = SHIPPED.read_text("utf-8")
        shell.print_result({"lexicon": text}, text)
        return
    if paths and (session or target is not None or strategy not in ("auto", "files")):
        raise click.UsageError("PATH cannot be used with --session, --target or a strategy other than files")

    async def act(memory: Memory) -> Pruned:
        if paths:
            return await archive_files(memory, paths, not apply)
        chosen = session if session or strategy in OF_KNOWLEDGE else await last_session(memory)
        return await prune(memory, strategy, chosen, not apply, shell.caller(), target=target)

    done = shell.with_memory(act, fresh=apply)  # a dry run must not write, so it does not update the index
    shell.print_result(done, done.markdown)
    if done.changes and not apply:
        shell.hint(SAME_COMMAND)


@shell.command("reset", "reset", "reset --index --apply")
@click.option(
    "--index", "index_only", is_flag=True, help="Only rebuild the search index; the old one is used meanwhile."
)
@shell.apply_option
def reset_command(index_only: bool, apply: bool) -> None:
    """Delete index, state and logs, and rebuild them from the files as far as possible.

    Conversations, knowledge and valid cold records stay.
    """
    if index_only:
        _rebuild_index(apply)
        return

    async def act(memory: Memory) -> Reset:
        with shell.progress("Indexing") as show:
            return await reset(memory, show)

    planned = shell.with_memory(plan_reset)
    if not shell.as_json():
        rows = [(part.what, part.where, part.files, f"{part.bytes:,}", part.then) for part in planned.parts]
        title = "This is deleted:" if apply else "This would be deleted:"
        shell.print_table(("what", "where", "files", "bytes", "then"), rows, title=title, right=("files", "bytes"))
        click.echo("This stays: " + "; ".join(STAYS) + ".")
    if apply:
        planned = shell.with_memory(act)
    done = "Done." if apply else "Nothing was deleted yet; do it with: context-manager reset --apply"
    shell.print_result(planned, "\n".join((*planned.notes, done)))


def _rebuild_index(apply: bool) -> None:
    async def act(memory: Memory) -> Any:
        if apply:
            with shell.progress("Indexing") as show:
                await memory.index.rebuild(show)
        return await memory.index.status()

    found = shell.with_memory(act)
    if shell.printed_as_json(found):
        return
    rows = []
    for key, value in shell.plain(found).items():
        shown = "; ".join(map(str, value)) or "none" if isinstance(value, list) else value
        rows.append((key.replace("_", " "), f"{shown:,}" if isinstance(shown, int) else shown))
    shell.print_table(("", ""), rows)
    click.echo("Done." if apply else "Nothing was changed yet; do it with: context-manager reset --index --apply")


@shell.command("extract", "extract", "extract --apply", "extract --only people --anew")
@click.option("--session", help="Only this conversation, also while it is open.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="Use only this extractor; may be repeated.")
@click.option("--anew", is_flag=True, help="Read everything again; earlier lines that are not found again are removed.")
@shell.apply_option
def extract_command(session: str | None, names: tuple[str, ...], anew: bool, apply: bool) -> None:
    """Extract knowledge from conversations: people, decisions, lessons, procedures, facts, journals.

    Every line names its source message. Conversations are read once. Lines that you wrote never change.
    """

    async def act(memory: Memory) -> Extracted:
        with shell.progress("Extracting") as show:
            done = await extract(memory, session, names, anew=anew, dry_run=not apply, show=show)
        if apply:
            with shell.progress("Indexing"):
                await catch_up(memory, reads=True)
        return done

    done = shell.with_memory(act)
    shell.print_result(done, _extract_told(done))


def _extract_told(done: Extracted) -> str:
    would = "would be " if done.dry_run else ""
    known = f", {done.known} known already" if done.known else ""
    found = f"{counted(done.lines, 'line')} found, {counted(len(done.files), 'file')} {would}changed"
    said = [f"{counted(done.read, 'conversation')} read{known}: {found}", *_changes(done)]
    if done.fell_back:
        said.append(f"{done.fell_back} of them were read by rules: the model gave no usable answer")
    if done.dry_run and done.files:
        said.append(SAME_COMMAND)
    return "\n".join([*said, *done.notes])


def _changes(done: Extracted | Condensed) -> Iterator[str]:
    """Yields the diff of each changed file in a dry run, otherwise its path and how many lines changed."""
    for file in sorted(done.files.values(), key=lambda one: one.path):
        counts = f"  {file.counts}" if file.added or file.removed else ""
        yield file.diff if done.dry_run else f"  {file.path}{counts}"


@shell.command("condense", "condense weekly", "condense weekly --apply")
@click.argument("period", type=click.Choice(["daily", "weekly", "monthly"]))
@shell.apply_option
def condense_command(period: str, apply: bool) -> None:
    """Bring MEMORY.md, the indexes and the archive up to date.

    daily: extracts knowledge from closed conversations. weekly: renews the derived lines of MEMORY.md and the indexes
    of people and projects; if MEMORY.md is over its limit, your oldest dated lines move to archive/. monthly: the same
    as weekly, and moves old journals, old plans and the oldest lines of long files to archive/.
    """

    async def act(memory: Memory) -> Condensed:
        done = await condense(memory, cast(Period, period), dry_run=not apply)
        if apply:
            await catch_up(memory, reads=True)
        return done

    done = shell.with_memory(act, title="Condensing")
    would, more = ("", []) if apply else ("would be ", [SAME_COMMAND])
    said = f"condense {period}: {counted(len(done.files), 'file')} {would}changed"
    shell.print_result(done, "\n".join([said, *_changes(done), *more, *done.notes]))


@shell.group("jobs", "jobs list", "jobs run --due")
def jobs_command() -> None:
    """List and run the scheduled jobs. A server runs them, or `jobs run --due` from cron."""


@jobs_command.command("list")
def list_() -> None:
    """List the jobs with their times and their last runs."""
    shell.print_list(
        shell.with_memory(lambda memory: planned(memory, JOBS)),
        "",
        ("job", "times", "due (UTC)", "last (UTC)", "what it does"),
        lambda one: (
            *(one.name, one.schedule or "never by itself", one.problem or shell.moment(one.due) or "no"),
            *(shell.moment(one.last) or "never", one.what),
        ),
    )


@jobs_command.command("run")
@click.argument("names", nargs=-1, metavar="[JOB]...")
@click.option("--due", is_flag=True, help="Run only the jobs that are due.")
def run(names: tuple[str, ...], due: bool) -> None:
    """Run the named jobs, or those that are due."""
    if due == bool(names):
        raise click.UsageError("name jobs (jobs list shows them), or give --due")

    async def act(memory: Memory) -> list[Ran]:
        return await run_due(memory, JOBS) if due else [await run_now(memory, JOBS, name) for name in names]

    done = shell.with_memory(act, fresh=True, title="Running jobs")
    said = "\n".join(f"{ran.name}: {ran.outcome}" for ran in done)
    shell.print_result(done, said or "Nothing is due.")
    if not all(ran.ok for ran in done):
        click.get_current_context().exit(1)
