"""`context-manager install [CLIENT]`, `uninstall CLIENT` and `doctor`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import click
from anyio.to_thread import run_sync

from mcp_server.app import catch_up
from mcp_server.cli import shell
from mcp_server.clients.importers.imported import Format, ImportReport
from mcp_server.clients.importers.run import conversations_in, import_path
from mcp_server.clients.installers.chain import examine_chain, handshake, projects, survey
from mcp_server.clients.installers.install import Done, install, uninstall
from mcp_server.clients.installers.known import CHATGPT_EXPORT, CLIENTS, Client, Machine, client_named
from mcp_server.clients.installers.plan import Launch, Plan, launching, plan, plugin_of, project_folder
from mcp_server.context import briefs
from mcp_server.conversations.projects import project_of
from mcp_server.errors import Refused, Unavailable
from mcp_server.home import resolve_workspace
from mcp_server.jobs import worker
from mcp_server.knowledge.extract import extract_pending, waiting_conversations
from mcp_server.knowledge.pages import current_items
from mcp_server.knowledge.writing import page_bodies
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.status.doctor import Check, examine, examine_secrets, repair
from mcp_server.text.entries import Entry
from mcp_server.text.prose import clipped, counted


@shell.command("uninstall", "uninstall cursor", "uninstall --all --purge", "uninstall --all --purge --apply")
@click.argument("client", required=False)
@click.option("--all", "everything", is_flag=True, help="Remove it from every client.")
@click.option("--project", is_flag=True, help="Only for the project of the current folder.")
@click.option("--purge", is_flag=True, help="Also delete the memory itself: all conversations and knowledge.")
@shell.apply_option
def uninstall_command(client: str | None, everything: bool, project: bool, purge: bool, apply: bool) -> None:
    """Remove our entry from CLIENT's configuration; a file that was not changed since is restored exactly.

    This reverses `install` at once. --purge also deletes the memory; without --apply it only shows what it would
    delete, and changes nothing.
    """
    if (client is None) == (not everything):
        both = client is not None
        raise click.UsageError("name a client or say --all, not both" if both else "name a client, or say --all")
    if purge and not everything:
        raise click.UsageError(
            "--purge needs --all: clients that stay connected would create an empty memory in its place"
        )
    machine = this_machine()
    plugin = plugin_of(machine)
    if purge and plugin:
        raise Refused(
            f"the plugin {plugin} in Claude Code would create an empty memory in its place; remove it first: "
            f"claude plugin uninstall {plugin}"
        )
    if client is not None:
        one = (client_named(client), project_folder(Path.cwd()) if project else None)
        ((chosen, files),) = _take_out(machine, one)
        _say_done(chosen, files)
        _say_plugin(plugin if chosen.name == "claude-code" and not shell.as_json() else None)
        return
    folders, warning = shell.with_memory(_deletion) if purge else ((), "")
    if purge and not apply:
        said = f"{warning}\nNothing was deleted yet; add --apply to do it."
        shell.print_result({"clients": [], "would_delete": folders}, said)
        return
    done = [(chosen, files) for chosen, files in _take_out(machine) if files]
    _delete(folders)
    if shell.printed_as_json(
        {"clients": [{"client": chosen.name, "files": files} for chosen, files in done], "deleted": folders}
    ):
        return
    for chosen, files in done:
        _say_done(chosen, files)
    if not (done or plugin):
        click.echo("Nothing of this memory is in any client's configuration.")
    _say_plugin(plugin)
    if folders:
        click.echo(f"Deleted: {', '.join(map(str, folders))}")


def _take_out(
    machine: Machine, only: tuple[Client, Path | None] | None = None
) -> list[tuple[Client, tuple[Done, ...]]]:
    """Removes our entries from all clients, or from one (for a project), and returns the clients with their files.

    Works without a memory, too. Then the files cannot be restored exactly, because the memory has the records of what
    they contained before."""

    async def act(memory: Memory | None) -> list[tuple[Client, tuple[Done, ...]]]:
        everywhere = [(client, None) for client in CLIENTS] + (projects(memory) if memory else [])
        places = [only] if only else everywhere
        return [(client, uninstall(memory, client, machine, project)) for client, project in places]

    return shell.with_memory(act) if shell.memory_exists() else anyio.run(act, None)


def _say_done(client: Client, done: Sequence[Done]) -> None:
    """Prints what happened to the client's files."""
    if shell.printed_as_json({"client": client.name, "files": done}):
        return
    if not done:
        click.echo(f"{client.title}: nothing of this memory is in its configuration.")
    words = {
        "restored": "was restored exactly",
        "cleaned": "was changed since; only our part was removed",
        "deleted": "did not exist before, and was deleted",
    }
    for one in done:
        kept = f" (backup: {one.backup})" if one.backup else ""
        click.echo(f"{client.title}: {one.path} {words[one.what]}{kept}")


def _say_plugin(plugin: str | None) -> None:
    """Prints how to remove the plugin, which only Claude Code can do."""
    if plugin:
        click.echo(f"Claude Code: the plugin {plugin} stays enabled; remove it with: claude plugin uninstall {plugin}")


async def _deletion(memory: Memory) -> tuple[tuple[Path, ...], str]:
    """Returns the folders that `--purge` would delete, and the warning to show. Raises Refused while a server uses
    them, or if they are not a memory's own."""
    root, local = memory.disk.root, memory.disk.local
    if root in (Path.home(), Path(root.anchor)) or not (root / "memory-config.yaml").is_file():
        raise Refused(f"{root} is not a memory's own folder, so it is not deleted; name the right one with --workspace")
    held = memory.locks.try_maintainer()
    if held is None:
        raise Refused(f"a server is using {root}; close its clients and try again")
    held.release()
    folders = (root,) if local.is_relative_to(root) else (root, local)
    conversations = len(await memory.state.sessions())
    files = [Path(folder, name) for top in folders for folder, _, names in os.walk(top) for name in names]
    size = sum(file.lstat().st_size for file in files)
    return folders, (
        f"This deletes {' and '.join(map(str, folders))}: {conversations:,} conversations, everything that was "
        f"remembered, and their history in git; {len(files):,} files, {size / 1e6:,.1f} MB. This cannot be undone."
    )


def _delete(folders: Sequence[Path]) -> None:
    for top in folders:
        if os.name == "nt":  # Windows does not delete read-only files such as sealed transcripts
            for folder, _, names in os.walk(top):
                for name in names:
                    Path(folder, name).chmod(0o600)
        shutil.rmtree(top)


@shell.command("install", "install", "install claude-code --import", "install cursor --show")
@click.argument("client", required=False)
@click.option("--print", "only_print", is_flag=True, help="Print the configuration to add by hand; change nothing.")
@click.option("--show", is_flag=True, help="Show what would change, as a diff; change nothing.")
@click.option("--project", is_flag=True, help="Only for the project of the current folder.")
@click.option("--hooks/--no-hooks", default=True, help="Clients with hooks: record and add context automatically.")
@click.option(
    "--import/--no-import", "bring_in", default=None, help="Import the client's earlier conversations, or do not ask."
)
def install_command(
    client: str | None,
    only_print: bool,
    show: bool,
    project: bool,
    hooks: bool,
    bring_in: bool | None,
) -> None:
    """Connect CLIENT to this memory: adds one entry to its configuration and changes nothing else in it.

    Without CLIENT: lists the clients on this machine and their state.
    """
    machine = this_machine()
    if client is None:
        _list(machine)
        return
    chosen = client_named(client)
    folder = project_folder(Path.cwd()) if project else None
    launch = launching(machine, resolve_workspace(shell.chosen_workspace(), machine.environ))
    planned = plan(chosen, machine, launch, project=folder, hooks=hooks)
    if only_print and shell.as_json():
        shell.print_json([{"file": change.file.path, "snippet": change.snippet} for change in planned.changes])
    elif only_print:
        for change in planned.changes:
            click.echo(f"{change.file.path}:\n\n{change.snippet}\n")
    elif show:
        _show(planned)
    else:
        shell.with_memory(lambda memory: _install(memory, planned, machine, launch, bring_in), if_missing="create")


def this_machine() -> Machine:
    return Machine(Path.home(), dict(os.environ))


async def _install(memory: Memory, planned: Plan, machine: Machine, launch: Launch, answer: bool | None) -> None:
    done = await run_sync(install, memory, planned)
    command, arguments = launch.serving(*(("--hooks",) if planned.hooks else ()))
    tried = await handshake([command, *arguments], machine.environ, whole=planned.client.whole_environment)
    if not shell.as_json():
        _say_installed(planned, done)
        if tried.problem:
            click.echo(f"But it does not start: {tried.problem}\nNext: context-manager doctor")
        else:
            click.echo(f"Tried it: it answers in {tried.seconds:.1f} s, with {len(tried.tools)} tools.")
            click.echo(planned.client.afterwards.format(title=planned.client.title))
    with shell.progress("Indexing"):
        await catch_up(memory)
    report = await _history(memory, planned, machine, answer, fresh=planned.needed)
    await briefs.refresh(memory)  # the client's first window may open before a server runs
    if shell.as_json():
        shell.print_json(
            {
                "client": planned.client.name,
                "project": planned.project,
                "name": planned.name,
                "files": done,
                "notes": planned.notes,
                "works": not tried.problem,
                "problem": tried.problem,
                "import": report,
            }
        )
    if tried.problem:
        click.get_current_context().exit(1)


def _say_installed(planned: Plan, done: tuple[Done, ...]) -> None:
    if not planned.needed:
        click.echo(f"{planned.client.title} is connected to this memory already; nothing was changed.")
    for one in done:
        if one.what != "unchanged":
            kept = f" (backup: {one.backup})" if one.backup else ""
            click.echo(f"{one.what.capitalize()}: {one.path}{kept}")
    for note in planned.notes:
        click.echo(note)
    if planned.needed:
        where = " --project" if planned.project else ""
        click.echo(f"Undo it with: context-manager uninstall {planned.client.name}{where}")


async def _history(
    memory: Memory, planned: Plan, machine: Machine, answer: bool | None, *, fresh: bool
) -> ImportReport | None:
    """Imports the client's earlier conversations if the user agrees; prints how to do it if we cannot."""
    client = planned.client
    if client.history and not shell.as_json() and fresh:
        click.echo(client.history)
    adapter = client.hooks
    if adapter is None or planned.project is not None or answer is False:
        return None

    folder = adapter.transcripts_folder(machine.environ, machine.home)
    number, size = await run_sync(conversations_in, folder, adapter)
    if not number:
        return None
    if answer is None:
        if shell.as_json() or not fresh:
            return None
        offer = f"{counted(number, 'conversation')} ({size / 1e6:,.1f} MB) of {client.title} in {folder}."
        if not sys.stdin.isatty():
            click.echo(f"{offer} Import them with: context-manager import {folder}")
            return None
        if not click.confirm(f"{offer} Import them now?", default=True):
            return None

    report, learned = await import_and_read(memory, machine.environ, folder, kind=adapter.client)
    if not shell.as_json():
        shell.print_text("\n".join((report.markdown, *learned)))
    return report


READ_SECONDS, LEAST_READ_SECONDS = 45.0, 20.0
"""Time limits in seconds of extracting knowledge after an import: it ends the first number of seconds after the import
began, but runs for at least the second number. The next server extracts from the other conversations."""

EXAMPLES, LONGEST = 3, 100
"""Number of the items of each kind that are shown after an import, and the characters shown of each."""


async def import_and_read(
    memory: Memory,
    environ: Mapping[str, str],
    path: Path,
    *,
    kind: Format | None,
    project: str | None = None,
    name: str | None = None,
    anew: bool = False,
) -> tuple[ImportReport, list[str]]:
    """Imports conversations, extracts knowledge from them and indexes them. Returns the import's report, and lines that
    say what was learned. Arguments and errors are those of `import_path`."""
    known = await run_sync(_known_items, memory)
    began, left = time.monotonic(), 0
    with shell.progress("Importing") as bar:
        report = await import_path(memory, path, kind=kind, project=project, name=name, anew=anew, watch=bar)
    if report.new_turns:
        with shell.progress("Reading") as bar:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(catch_up, memory)
                seconds = max(LEAST_READ_SECONDS, began + READ_SECONDS - time.monotonic())
                left = await _read_conversations(memory, environ, seconds, bar)
    with shell.progress("Indexing"):
        await catch_up(memory, reads=True)
    await briefs.know_folders(
        memory, {folder: await project_of(memory, Caller(folder=folder)) for folder in report.folders}
    )
    return report, _learned(known, await run_sync(_known_items, memory), left)


async def _read_conversations(
    memory: Memory, environ: Mapping[str, str], seconds: float, show: Callable[[float, float, str], None]
) -> int:
    """Extracts knowledge from imported conversations for at most `seconds`, in a separate process, because the index is
    updated at the same time. Returns how many conversations are left."""
    total = await waiting_conversations(memory)

    async def report() -> None:
        while True:
            show(total - await waiting_conversations(memory), total, "conversations")
            await anyio.sleep(0.2)

    if total:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(report)
            with anyio.move_on_after(seconds), contextlib.suppress(Unavailable):  # the next server continues
                if not await worker.run("knowledge", memory.disk.root, environ, awaited=True):
                    await extract_pending(memory)
            tasks.cancel_scope.cancel()
    return await waiting_conversations(memory)


def _known_items(memory: Memory) -> dict[str, list[Entry]]:
    return current_items(page_bodies(memory.files).values())


def _learned(before: dict[str, list[Entry]], after: dict[str, list[Entry]], left: int) -> list[str]:
    """Returns lines that say how many items of each kind are new on the pages, and the newest ones."""
    new, said = {}, []
    for name, items in after.items():
        known = {one.text for one in before[name]}
        new[name] = [one for one in items if one.text not in known]
    if any(new.values()):
        said.append(f"Learned: {', '.join(counted(len(items), name) for name, items in new.items())}.")
        for name, items in new.items():
            said += [f"  {name}, {one.date}: {clipped(one.said, LONGEST)}" for one in items[:EXAMPLES]]
        said.append("Look at all of it: context-manager page")
    if left:
        said.append(f"{counted(left, 'conversation')} are not read yet; this continues while a client is open.")
    return said


def _show(planned: Plan) -> None:
    said = [change.diff() for change in planned.changes if change.changes]
    said = said or [f"{planned.client.title} is connected to this memory already; nothing would change."]
    diffs = [{"file": change.file.path, "diff": change.diff()} for change in planned.changes]
    shell.print_result(diffs, "\n".join((*said, *planned.notes)))


def _list(machine: Machine) -> None:
    found = survey(machine, shell.from_memory(projects) if shell.memory_exists() else ())
    shell.print_list(
        found,
        "",
        ("client", "state", "configuration", "what to do"),
        lambda each: (
            f"{each.client.name} (in {_short(each.project, machine)})" if each.project else each.client.name,
            each.state,
            _short(each.file, machine),
            f"context-manager install {each.client.name}" if each.state == "not installed" else each.problem,
        ),
    )
    if not shell.as_json():
        click.echo(CHATGPT_EXPORT)


def _short(path: Path, machine: Machine) -> str:
    return f"~/{path.relative_to(machine.home).as_posix()}" if path.is_relative_to(machine.home) else str(path)


@shell.command("doctor", "doctor", "doctor --secrets")
@click.option("--repair", "mending", is_flag=True, help="First repair git's history where that loses nothing.")
@click.option("--secrets", is_flag=True, help="Only look for secrets in everything that is stored.")
def doctor_command(mending: bool, secrets: bool) -> None:
    """Check clients' configurations (with a real handshake), disk, index and git.

    Exits with 1 if an important check fails.
    """
    machine = this_machine()

    async def act(memory: Memory) -> tuple[Check, ...]:
        for line in await repair(memory) if mending else ():
            click.echo(shell.visible(f"repaired: {line}"), err=True)
        with shell.progress("Checking"):
            if secrets:
                return (await examine_secrets(memory),)
            chain = await examine_chain(memory, machine) if memory.disk.here else ()
            return (*await examine(memory), *chain)

    checks = shell.with_memory(act)
    if shell.as_json():
        shell.print_json(checks)
    else:
        _print_checks(checks)
    if any(check.matters and not check.ok for check in checks):
        click.get_current_context().exit(1)


def _print_checks(checks: tuple[Check, ...]) -> None:
    widest = max(len(check.name) for check in checks)
    for check in checks:
        sign, color = ("ok ", "green") if check.ok else ("fix", "red") if check.matters else ("-- ", "yellow")
        click.echo(f"{click.style(sign, color)}  {check.name:<{widest}}  {shell.visible(check.detail)}")
        if check.advice:
            click.echo(f"{'':<{widest + 7}}→ {shell.visible(check.advice)}")
    broken = sum(check.matters and not check.ok for check in checks)
    click.echo("\nEverything important works." if not broken else f"\n{broken} to fix: the lines with `fix`.")
