"""`context-manager reconstruct`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.branches import SHOWN_FILES, print_joined
from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, moment, print_json, print_table, print_text
from mcp_server.cli.progress import progress, working

if TYPE_CHECKING:
    from mcp_server.history.merging import Joined
    from mcp_server.knowledge.compare_trees import Comparison
    from mcp_server.knowledge.reconstruct import Reconstruction
    from mcp_server.memory import Memory


@click.group("reconstruct", invoke_without_command=True)
@click.option("--branch", "name", metavar="NAME", help="Make one, on the branch extract/NAME.")
@click.option(
    "--only", "extractors", multiple=True, metavar="EXTRACTOR", help="By this extractor; may be given more than once."
)
@click.option("--model", metavar="MODEL", help="By this model of the LLM that is set (llm.provider).")
@click.option("--no-model", is_flag=True, help="By rules, also where an LLM is set.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    name: str | None,
    extractors: tuple[str, ...],
    model: str | None,
    no_model: bool,
    as_json: bool,
) -> None:
    """Derive all knowledge again from the conversations, beside the memory: compare it, then merge or drop it.

    What you or an agent wrote is carried over as it is. The live files are not touched.
    """
    if context.invoked_subcommand is not None:
        if name or extractors or model or no_model:
            raise click.UsageError("--branch, --only, --model and --no-model make a new one, without a subcommand")
        return
    if name is None:
        raise click.UsageError("name the branch: context-manager reconstruct --branch NAME")
    if model and no_model:
        raise click.UsageError("--model and --no-model exclude each other")
    from mcp_server.knowledge.reconstruct import reconstruct

    chosen = name

    async def act(memory: Memory) -> Reconstruction:
        if model and memory.llm is None:
            raise click.UsageError("there is no LLM to take another model of; set llm.provider first")
        with progress("Reading conversations") as show:
            return await reconstruct(memory, chosen, extractors, use_model=not no_model, show=show)

    made = with_memory(act, settings={"CONTEXT_MANAGER_LLM__MODEL": model} if model else {})
    if as_json:
        print_json(made)
        return
    said = f"{made.conversations} conversations read by {made.by}: {made.lines} lines found; {made.before} were there"
    next_step = f"Compare: context-manager reconstruct compare {name}; then reconstruct merge {name}, or drop {name}"
    print_text("\n".join([said, *made.notes, str(made.place), next_step]))


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """All of them, the oldest first."""
    from mcp_server.knowledge.reconstruct import reconstructions

    found = with_memory(reconstructions)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No reconstructions. Make one: context-manager reconstruct --branch NAME")
    else:
        rows = [(one.name, moment(one.made), one.conversations, one.lines, one.by) for one in found]
        columns = ("name", "made (UTC)", "conversations", "lines", "by")
        print_table(columns, rows, right=("conversations", "lines"))


@command.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
def compare(names: tuple[str, ...], as_json: bool) -> None:
    """The memory beside one or more of them: files, lines, and how well messages are found through knowledge alone."""
    from mcp_server.knowledge.compare_trees import compare as action

    async def act(memory: Memory) -> Comparison:
        with working("Comparing …"):
            return await action(memory, names)

    found = with_memory(act)
    if as_json:
        print_json(found)
    else:
        _show(found)


@command.command("merge")
@click.argument("name")
@json_option
def merge(name: str, as_json: bool) -> None:
    """Bring it into the memory, and end it. What was edited since stays."""
    from mcp_server.knowledge import reconstruct

    async def act(memory: Memory) -> Joined | None:
        return await reconstruct.merge(memory, name)

    print_joined(name, with_memory(act), as_json)


@command.command("drop")
@click.argument("name")
@json_option
def drop(name: str, as_json: bool) -> None:
    """End it. It can be made again."""
    from mcp_server.knowledge import reconstruct

    with_memory(lambda memory: reconstruct.drop(memory, name))
    if as_json:
        print_json({"dropped": name})
    else:
        click.echo(f"{name} is dropped")


def _show(found: Comparison) -> None:
    rows = [
        (one.name, one.files, one.lines, one.sources, f"{one.turns:.1%}", f"{one.conversations:.1%}")
        for one in found.versions
    ]
    columns = ("version", "files", "derived lines", "turns named", "found: turn", "found: conversation")
    print_table(columns, rows, right=columns[1:], title=f"{found.questions} questions, the ten best knowledge lines")
    for name, delta in found.deltas.items():
        shown = delta.files[:SHOWN_FILES]
        said = [f"{name}: {delta.common} lines as in the memory, of {delta.second_lines}"]
        said += [f"  {one.path}  -{one.only_first} +{one.only_second}" for one in shown]
        said += [f"  and {len(delta.files) - len(shown)} more files"] if len(delta.files) > len(shown) else []
        if delta.own_since:
            said.append(f"  {delta.own_since} lines were written into the memory since; a merge keeps them")
        said += [f"  NOT CARRIED OVER  {line}" for line in delta.own_lost]
        print_text("\n".join(said))
