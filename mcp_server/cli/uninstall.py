"""`context-manager uninstall`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mcp_server.cli.command import apply_option, examples, json_option, memory_exists, print_json, with_memory
from mcp_server.cli.install import this_machine
from mcp_server.errors import Refused

if TYPE_CHECKING:
    from mcp_server.clients.installers.install import Done
    from mcp_server.clients.installers.known import Client, Machine
    from mcp_server.memory import Memory

T = TypeVar("T")


@click.command(
    "uninstall", epilog=examples("uninstall cursor", "uninstall --all --purge", "uninstall --all --purge --apply")
)
@click.argument("client", required=False)
@click.option("--all", "everything", is_flag=True, help="Remove it from every client.")
@click.option("--project", is_flag=True, help="Only for the project of the current folder.")
@click.option("--purge", is_flag=True, help="Also delete the memory itself: all conversations and knowledge.")
@click.option("--undo", is_flag=True, help="Keep an older entry of ours that the file had before `install`.")
@apply_option
@json_option
def uninstall_command(
    client: str | None, everything: bool, project: bool, purge: bool, undo: bool, apply: bool, as_json: bool
) -> None:
    """Remove our entry from CLIENT's configuration; a file that was not changed since is restored exactly.

    This reverses `install` at once. --purge, which deletes the memory, only says what it would delete until --apply.
    """
    from mcp_server.clients.installers.known import client_named
    from mcp_server.clients.installers.plan import plugin_of, project_folder

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
        chosen = client_named(client)
        folder = project_folder(Path.cwd()) if project else None
        _say_done(chosen, _with_records(lambda memory: _taken_out(memory, chosen, machine, folder, undo=undo)), as_json)
        _say_plugin(plugin if chosen.name == "claude-code" and not as_json else None)
        return
    deleting = with_memory(_deletion) if purge else None
    if deleting is not None and not apply:
        if as_json:
            print_json({"clients": [], "would_delete": [str(folder) for folder in deleting.folders]})
        else:
            click.echo(f"{deleting.said}\nNothing was deleted yet; add --apply to do it.")
        return
    done = _with_records(lambda memory: _out_of_all(memory, machine))
    if deleting is not None:
        _delete(deleting)
    if as_json:
        gone = [str(folder) for folder in deleting.folders] if deleting else []
        print_json({"clients": [_plain(one, files) for one, files in done], "deleted": gone})
        return
    for one, files in done:
        _say_done(one, files, as_json=False)
    if not (done or plugin):
        click.echo("Nothing of this memory is in any client's configuration.")
    _say_plugin(plugin)
    if deleting is not None:
        click.echo(f"Deleted: {', '.join(map(str, deleting.folders))}")


def _with_records(act: Callable[[Memory | None], Awaitable[T]]) -> T:
    """Returns what `act` returns for the memory, or for None if it was deleted: our entries can still be removed."""
    import anyio

    return with_memory(act) if memory_exists() else anyio.run(act, None)


async def _taken_out(
    memory: Memory | None, client: Client, machine: Machine, project: Path | None, *, undo: bool = False
) -> tuple[Done, ...]:
    """Removes our entry from one client."""
    from anyio.to_thread import run_sync

    from mcp_server.clients.installers.install import uninstall

    return await run_sync(lambda: uninstall(memory, client, machine, project, undo=undo))


def _say_done(client: Client, done: Sequence[Done], as_json: bool) -> None:
    """Prints what happened to the client's files."""
    if as_json:
        print_json(_plain(client, done))
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


@dataclass(frozen=True, slots=True)
class _Deletion:
    """Folders to delete, and the warning before."""

    folders: tuple[Path, ...]
    said: str


def _plain(client: Client, done: Sequence[Done]) -> dict[str, object]:
    from mcp_server.clients.installers.install import as_dict

    return {"client": client.name, "files": [as_dict(one) for one in done]}


async def _out_of_all(memory: Memory | None, machine: Machine) -> list[tuple[Client, tuple[Done, ...]]]:
    """Removes our entries from all clients. Returns the clients that had one, each with its files."""
    from mcp_server.clients.installers.chain import projects
    from mcp_server.clients.installers.known import CLIENTS

    everywhere = [(client, None) for client in CLIENTS] + (projects(memory) if memory else [])
    done = [(client, await _taken_out(memory, client, machine, project)) for client, project in everywhere]
    return [(client, files) for client, files in done if files]


async def _deletion(memory: Memory) -> _Deletion:
    """Returns what `--purge` would delete. Raises Refused while a server uses it, or if it is not a memory's folder."""
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
    return _Deletion(
        folders,
        f"This deletes {' and '.join(map(str, folders))}: {conversations:,} conversations, everything that was "
        f"remembered, and their history in git; {len(files):,} files, {size / 1e6:,.1f} MB. There is no way back.",
    )


def _delete(deleting: _Deletion) -> None:
    for top in deleting.folders:
        if os.name == "nt":  # Windows does not delete read-only files such as sealed transcripts
            for folder, _, names in os.walk(top):
                for name in names:
                    Path(folder, name).chmod(0o600)
        shutil.rmtree(top)
