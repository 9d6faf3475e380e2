"""`context-manager explore` and `context-manager reconstruct`: branches of the memory, merged or dropped."""

from __future__ import annotations

from collections.abc import Callable

import click

from mcp_server.cli import shell
from mcp_server.history import explore
from mcp_server.history.explore import EXPLORATIONS, Exploration, explorations
from mcp_server.knowledge import reconstruct
from mcp_server.knowledge.reconstruct import RECONSTRUCTIONS, Reconstruction, reconstructions
from mcp_server.memory import Memory
from mcp_server.text.prose import counted

SHOWN_FILES = 20


@shell.group("explore", "explore create tidy-up", "explore list", "explore merge tidy-up --apply")
def explore_command() -> None:
    """Try changes of the memory on a branch, in a separate folder. Unless you merge it, it is dropped after a week."""


@explore_command.command("create")
@click.argument("name")
def create(name: str) -> None:
    """Begin an exploration of the current memory."""
    made = shell.with_memory(lambda memory: explore.create(memory, name))
    said = f"{made.place}\nEdit the files there, or use the folder in a command with --workspace."
    keep = f"Keep it: context-manager explore merge {name} --apply"
    drop = f"Drop it: context-manager explore drop {name} --apply; it is dropped automatically on {made.until:%Y-%m-%d}"
    shell.print_result(made, f"{said}\n{keep}\n{drop}")


@explore_command.command("list")
def explore_list() -> None:
    """List the explorations, oldest first."""
    shell.print_list(
        shell.with_memory(explorations),
        "No explorations. Begin one: context-manager explore create NAME",
        ("name", "begun (UTC)", "commits", "uncommitted", "dropped (UTC)", "folder"),
        lambda one: (
            one.name,
            shell.moment(one.begun),
            one.commits,
            one.uncommitted,
            shell.moment(one.until),
            one.place or "(gone)",
        ),
        right=("commits", "uncommitted"),
    )


@shell.group("reconstruct", "reconstruct create again", "reconstruct compare again", "reconstruct merge again --apply")
def reconstruct_command() -> None:
    """Derive all knowledge again from the conversations, on a separate branch; compare, merge or drop it.

    Lines that you or an agent wrote are carried over unchanged. The live files are not touched.
    """


@reconstruct_command.command("create")
@click.argument("name")
@click.option(
    "--only", "extractors", multiple=True, metavar="EXTRACTOR", help="Use only this extractor; may be repeated."
)
@click.option("--model", metavar="MODEL", help="Use this model of the configured LLM (llm.provider).")
@click.option("--no-model", is_flag=True, help="Use only rules, even if an LLM is configured.")
def reconstruct_create(name: str, extractors: tuple[str, ...], model: str | None, no_model: bool) -> None:
    """Derive the knowledge on the branch extract/NAME, in a separate folder."""
    if model and no_model:
        raise click.UsageError("--model and --no-model exclude each other")

    async def act(memory: Memory) -> Reconstruction:
        if model and memory.llm is None:
            raise click.UsageError("--model needs an LLM; set llm.provider first")
        with shell.progress("Reading conversations") as show:
            return await reconstruct.reconstruct(memory, name, extractors, use_model=not no_model, show=show)

    made = shell.with_memory(act, settings={"CONTEXT_MANAGER_LLM__MODEL": model} if model else {})
    said = f"{made.conversations} conversations read by {made.by}: {made.lines} lines found; {made.before} were there"
    next_step = f"Compare: context-manager reconstruct compare {name}; then reconstruct merge {name}, or drop {name}"
    shell.print_result(made, "\n".join([said, *made.notes, str(made.place), next_step]))


@reconstruct_command.command("list")
def reconstruct_list() -> None:
    """List the reconstructions, oldest first."""
    shell.print_list(
        shell.with_memory(reconstructions),
        "No reconstructions. Make one: context-manager reconstruct create NAME",
        ("name", "made (UTC)", "conversations", "lines", "by"),
        lambda one: (one.name, shell.moment(one.made), one.conversations, one.lines, one.by),
        right=("conversations", "lines"),
    )


@reconstruct_command.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def compare(names: tuple[str, ...]) -> None:
    """Compare the memory and reconstructions by files and lines."""
    found = shell.with_memory(lambda memory: reconstruct.compare(memory, names), title="Comparing")
    if shell.printed_as_json(found):
        return
    columns = ("version", "files", "derived lines", "turns named")
    rows = [(one.name, one.files, one.lines, one.sources) for one in found.versions]
    shell.print_table(columns, rows, right=columns[1:])
    for name, delta in found.deltas.items():
        shown = delta.files[:SHOWN_FILES]
        said = [f"{name}: {delta.common} of {delta.second_lines} lines are the same as in the memory"]
        said += [f"  {one.path}  -{one.only_first} +{one.only_second}" for one in shown]
        said += [f"  and {len(delta.files) - len(shown)} more files"] if len(delta.files) > len(shown) else []
        if delta.own_since:
            said.append(f"  {delta.own_since} lines were written into the memory since; a merge keeps them")
        said += [f"  NOT CARRIED OVER  {line}" for line in delta.own_lost]
        shell.print_text("\n".join(said))


def _merge(kind: str, name: str, apply: bool) -> None:
    if not apply:
        _show_change(kind, name, "merge")
        return
    merge = explore.merge if kind == "explore" else reconstruct.merge
    done = shell.with_memory(lambda memory: merge(memory, name))
    said = [f"{name} had no changes; it was deleted"]
    if done is not None:
        more = f" and {len(done.paths) - SHOWN_FILES} more files" if len(done.paths) > SHOWN_FILES else ""
        said = [f"merged as {done.commit[:10]}: {', '.join(done.paths[:SHOWN_FILES]) or 'no file changed'}{more}"]
        said += [f"{path}: both sides changed the same lines; the file has both versions" for path in done.contested]
        undo = f"undo it file by file: context-manager recover PATH@{done.commit[:10]}~1"
        said += [f"tagged {done.tag}; {undo}"] if done.tag else []
    shell.print_result(done, "\n".join(said))


def _drop(kind: str, name: str, apply: bool) -> None:
    if not apply:
        _show_change(kind, name, "drop")
    elif kind == "explore":
        done = shell.with_memory(lambda memory: explore.drop(memory, name))
        kept = f"its changes are at {done.tag} (context-manager history show {done.tag})" if done.tag else ""
        shell.print_result(done, f"{name} is dropped; {kept or 'it had no changes'}")
    else:
        shell.with_memory(lambda memory: reconstruct.drop(memory, name))
        shell.print_result({"dropped": name}, f"{name} is dropped")


for made, end, verb, about in (
    (explore_command, _merge, "merge", "Merge its changes into the memory, then delete it."),
    (explore_command, _drop, "drop", "Delete it; a tag keeps its changes."),
    (reconstruct_command, _merge, "merge", "Merge it into the memory, then delete it. Later edits of the memory stay."),
    (reconstruct_command, _drop, "drop", "Delete it. You can create it again."),
):

    @made.command(verb, help=about)
    @click.argument("name")
    @shell.apply_option
    def end_branch(
        name: str, apply: bool, end: Callable[[str, str, bool], None] = end, kind: str = str(made.name)
    ) -> None:
        end(kind, name, apply)


def _show_change(kind: str, name: str, verb: str) -> None:
    """Prints what a merge or drop would affect. Raises NotFound if there is no such branch."""

    async def ask(memory: Memory) -> Exploration | Reconstruction:
        if kind == "explore":
            await EXPLORATIONS.find(memory, name)
            return next(one for one in await explorations(memory) if one.name == name)
        await RECONSTRUCTIONS.find(memory, name)
        return next(one for one in await reconstructions(memory) if one.name == name)

    found = shell.with_memory(ask)
    if isinstance(found, Exploration):
        own = f"{counted(found.commits, 'commit')} and {counted(found.uncommitted, 'uncommitted file')} of its own"
    else:
        own = f"{found.lines:,} lines from {counted(found.conversations, 'conversation')}"
    shell.print_result({"branch": found, "change": verb, "applied": False}, f"{name} has {own}.")
    shell.say_not_applied(f"{kind} {verb} {name}")
