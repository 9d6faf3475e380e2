"""`context-manager review`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import count, examples, json_option, print_json, visible

if TYPE_CHECKING:
    from mcp_server.knowledge.approve import Waiting
    from mcp_server.knowledge.review import Unreviewed
    from mcp_server.memory import Memory

KEYS = "[k]eep  [e]dit  [m]ove  [f]orget  [s]kip  keep [a]ll  [q]uit"
PROPOSAL_KEYS = "[k]eep (write it)  [f]orget (delete it)  [s]kip  [q]uit"


@click.command("review", epilog=examples("review"))
@json_option
def review_command(as_json: bool) -> None:
    """Go through new lines of the pages, and what agents propose, one key each.

    keep: the line stays, and is not shown again. edit: your words replace it. move: to another section of its page.
    forget: deletes every copy, also in the conversation. skip: shows it again next time. --json only lists them.
    """
    from mcp_server.knowledge import approve, review

    async def listed(memory: Memory) -> dict[str, object]:
        lines = [
            {"path": one.path, "section": one.entry.section, "day": one.entry.date, "text": one.entry.said}
            for one in await review.unreviewed(memory)
        ]
        return {"lines": lines, "proposals": await approve.waiting(memory)}

    if as_json:
        print_json(with_memory(listed))
        return
    if not sys.stdin.isatty():
        raise click.UsageError("review asks in a terminal; --json, `approve` and `page` work without one")

    async def act(memory: Memory) -> None:
        done = 0
        for proposal in await approve.waiting(memory):
            key = _asked(_proposed(proposal), PROPOSAL_KEYS, "kfsq")
            if key == "q":
                return
            if key == "k" and proposal.problem:
                click.echo(f"  not written: {visible(proposal.problem)}")
            elif key == "k":
                await approve.approve(memory, proposal.proposal.id, anyway=True)
            elif key == "f":
                await approve.reject(memory, proposal.proposal.id)
            done += key != "s"
        lines = await review.unreviewed(memory)
        for number, line in enumerate(lines, 1):
            key = _asked(f"{number}/{len(lines)}  {_words(line)}", KEYS, "kemfsaq")
            if key == "q":
                break
            if key == "a":
                for one in lines[number - 1 :]:
                    await review.keep(memory, one)
                done += len(lines) - number + 1
                break
            done += await _decided(memory, line, key)
        click.echo(f"{done} reviewed." if done or lines else "There is nothing new to review.")

    with_memory(act)


async def _decided(memory: Memory, line: Unreviewed, key: str) -> bool:
    """Carries out what a key stands for. Returns whether anything was done."""
    from anyio.to_thread import run_sync

    from mcp_server.errors import ContextManagerError
    from mcp_server.forgetting.forget import forget
    from mcp_server.forgetting.target import ForgetTarget
    from mcp_server.knowledge import review
    from mcp_server.model import Caller
    from mcp_server.text.destinations import is_page

    try:
        if key == "k":
            await review.keep(memory, line)
        elif key == "e":
            text = click.prompt("  new words", default=line.entry.said)
            await review.correct(memory, line, text, Caller(source="cli", client="cli"))
        elif key == "m" and not is_page(line.path):
            click.echo("  a line of this page has only one place")
            return False
        elif key == "m":
            named = {section[0].lower(): section for section in review.SECTIONS}
            named["d"] = named.pop("k")  # "Key Decisions"
            section = _asked("", "to [r]ules  [d]ecisions  [f]acts  [o]pen items", "".join(named))
            await review.move(memory, line, named[section])
        elif key == "f" and _asked("", "delete every copy, also in the conversation? [y]es  [n]o", "yn") == "y":
            target = ForgetTarget(path=line.path, lines=await run_sync(review.lines_of, memory, line))
            copies = (await forget(memory, target)).copies
            click.echo(f"  deleted in {count(sum(len(copy.places) for copy in copies), 'place')}")
        else:
            return False
    except ContextManagerError as error:
        click.echo(f"  {visible(str(error))}")
        return False
    return True


def _asked(text: str, keys: str, allowed: str) -> str:
    """Shows a text and the keys, and returns the key that the user presses."""
    if text:
        click.echo(f"\n{text}")
    click.echo(f"  {keys} ", nl=False)
    while True:
        key = click.getchar().lower()
        if key in allowed and key:
            click.echo(key)
            return key


def _words(line: Unreviewed) -> str:
    page = line.path.removeprefix("knowledge/").removesuffix(".md")
    source = line.entry.sources[0]
    said = f"{page} › {line.entry.section}  {line.entry.date}\n  {line.entry.said}\n  from {source}"
    return visible(said, keep_lines=True)


def _proposed(one: Waiting) -> str:
    by = one.proposal.by or "an agent"
    return visible("\n  ".join((f"{one.proposal.path}, proposed by {by}", *one.diff.split("\n"))), keep_lines=True)
