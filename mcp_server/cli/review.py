"""Commands `forget`, `approve` and `review`."""

from __future__ import annotations

import re
import sys
from typing import Any

import click
from anyio.to_thread import run_sync

from mcp_server.cli import shell
from mcp_server.errors import ContextManagerError
from mcp_server.forgetting.forget import ADD_HISTORY, Receipt, as_text, finish, forget, plan_forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge import review
from mcp_server.knowledge.review import Unreviewed, Waiting
from mcp_server.memory import Memory
from mcp_server.text.destinations import is_page
from mcp_server.text.prose import counted


@shell.command("forget", "forget 'the alarm code'", "forget --session ses_1f2e --apply", "forget --secrets")
@click.argument("text", required=False)
@click.option("--turn", help="One message: SESSION#NUMBER; `session show` lists them.")
@click.option("--session", help="A whole conversation.")
@click.option("--path", help="A file.")
@click.option("--lines", help="Only these lines of the file: A-B, or A.")
@click.option("--secrets", is_flag=True, help="All stored secrets; `doctor --secrets` lists them.")
@shell.apply_option
@click.option("--history", is_flag=True, help="Also rewrite git's history, after a backup next to the workspace.")
def forget_command(text: str | None, lines: str | None, apply: bool, history: bool, **options: Any) -> None:
    """Delete TEXT (or a message, a conversation, a file) and all copies of it.

    Without --apply, shows every copy and what would happen to it. `forget --apply` without a target, or the next start
    of a server, finishes a deletion that was interrupted.
    """
    target = ForgetTarget(text=text, lines=_range(lines), **options)
    nothing_named = not any((text, options["turn"], options["session"], options["path"], options["secrets"]))
    if nothing_named and not apply:
        raise click.UsageError("give TEXT, --turn SESSION#N, --session ID, --path PATH or --secrets")

    async def act(memory: Memory) -> list[Receipt]:
        if nothing_named:
            return await finish(memory)
        if apply:
            return [await forget(memory, target, history=history)]
        return [await plan_forget(memory, target, history=history)]

    done = shell.with_memory(act, title="Forgetting" if apply else "Looking for copies")
    if shell.printed_as_json(done[0] if not nothing_named else done):
        return
    if not done:
        click.echo("No deletion was interrupted; there is nothing to finish.")
    for receipt in done:
        shell.print_text(as_text(receipt, history, ADD_HISTORY))
        if not (receipt.done or receipt.nothing):
            click.echo("Nothing is deleted yet; --json lists every place. Add --apply to do it.")


def _range(lines: str | None) -> tuple[int, int] | None:
    if lines is None:
        return None
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", lines.strip())
    if found is None:
        raise click.BadParameter(f"must be A-B, such as 12-14, not {lines!r}", param_hint="--lines")
    return int(found[1]), int(found[2] or found[1])


@shell.command("approve", "approve", "approve ID --apply", "approve --all --reject --apply")
@click.argument("proposal", required=False)
@click.option("--all", "every", is_flag=True, help="All proposals, instead of one.")
@click.option("--reject", is_flag=True, help="Delete the proposal instead of writing it.")
@shell.apply_option
@click.option("--anyway", is_flag=True, help="Also if the file has changed since.")
def approve_command(proposal: str | None, every: bool, reject: bool, apply: bool, anyway: bool) -> None:
    """Show changes of identity and topics that agents propose; accept or reject them."""
    if proposal and every:
        raise click.UsageError("name a proposal, or --all, not both")
    if (apply or reject) and not (proposal or every):
        raise click.UsageError("name a proposal, or --all")

    async def act(memory: Memory) -> tuple[list[Waiting], list[str]]:
        found = await review.waiting(memory, proposal)
        done: list[str] = []
        for one in found:
            number, path = one.proposal.id, one.proposal.path
            if not apply:
                continue
            if reject:
                await review.reject(memory, number)
                done.append(f"{number}: dropped; {path} stays as it is")
            elif every and (one.problem or (one.changed and not anyway)):
                why = one.problem or "the file has changed since: look at it, then use --apply --anyway"
                done.append(f"{number}: not written: {why}")
            else:
                written = await review.approve(memory, number, anyway=anyway)
                done.append(f"{number}: {written.action}: {written.path}")
        return found, done

    found, done = shell.with_memory(act)
    if shell.printed_as_json({"proposals": found, "done": done}):
        return
    if not found:
        click.echo("Nothing waits for approval.")
    for one in found:
        named = one.proposal
        said = [f"{named.id}  {named.path}, proposed {shell.moment(named.at)} by {named.by or 'an agent'}"]
        said += ["  the file has changed since; the diff shows the change as it would be now"] if one.changed else []
        said += [f"  cannot be written: {one.problem}"] if one.problem else []
        shell.print_text("\n".join([*said, *(f"    {line}" for line in one.diff.splitlines())]))
    for line in done:
        click.echo(shell.visible(line))
    if found and not done:
        click.echo("Write one: context-manager approve ID --apply. Delete it: ID --reject --apply. All of them: --all.")


KEYS = "[k]eep  [e]dit  [m]ove  [r]emove  [f]orget  [s]kip  keep [a]ll  [q]uit"
PROPOSAL_KEYS = "[k]eep (write it)  [f]orget (delete it)  [s]kip  [q]uit"


@shell.command("review", "review")
def review_command() -> None:
    """Go through new lines of the pages, and agents' proposals; press one key for each.

    keep: the line stays, and is not shown again. edit: your words replace it. move: to another section of its page.
    remove: moves the line to the archive of its page, and it does not come back. forget: deletes every copy of it, also
    in the conversation. skip: shows the line again next time. --json only lists the lines.
    """

    async def listed(memory: Memory) -> dict[str, object]:
        lines = [
            {"path": one.path, "section": one.entry.section, "day": one.entry.date, "text": one.entry.said}
            for one in await review.unreviewed(memory)
        ]
        return {"lines": lines, "proposals": await review.waiting(memory)}

    if shell.as_json():
        shell.print_json(shell.with_memory(listed))
        return
    if not sys.stdin.isatty():
        raise click.UsageError("review asks in a terminal; --json, `approve` and `page` work without one")

    async def act(memory: Memory) -> None:
        done = 0
        for proposal in await review.waiting(memory):
            by = proposal.proposal.by or "an agent"
            shown = (f"{proposal.proposal.path}, proposed by {by}", *proposal.diff.split("\n"))
            text = shell.visible("\n  ".join(shown), keep_lines=True)
            while (key := _asked(text, PROPOSAL_KEYS, "kfsq")) == "k" and proposal.problem:
                click.echo(f"  not written: {shell.visible(proposal.problem)}")
            if key == "q":
                return
            if key == "k":
                await review.approve(memory, proposal.proposal.id, anyway=True)
            elif key == "f":
                await review.reject(memory, proposal.proposal.id)
            done += key != "s"
        lines = await review.unreviewed(memory)
        for number, line in enumerate(lines, 1):
            text = f"{number}/{len(lines)}  {_words(line)}"
            while (key := _asked(text, KEYS, "kemrfsaq")) not in "saq" and not await _decided(memory, line, key):
                pass
            if key == "q":
                break
            if key == "a":
                for one in lines[number - 1 :]:
                    await review.keep(memory, one)
                done += len(lines) - number + 1
                break
            done += key != "s"
        click.echo(f"{done} reviewed." if done or lines else "There is nothing new to review.")

    shell.with_memory(act)


async def _decided(memory: Memory, line: Unreviewed, key: str) -> bool:
    """Carries out the action of a key. Returns whether anything was changed."""
    try:
        if key == "k":
            await review.keep(memory, line)
        elif key == "e":
            await review.correct(memory, line, _new_words(line.entry.said))
        elif key == "m" and not is_page(line.path):
            click.echo("  lines of this page cannot be moved")
            return False
        elif key == "m":
            named = {section[0].lower(): section for section in review.SECTIONS}
            named["d"] = named.pop("k")  # "Key Decisions"
            section = _asked("", "to [r]ules  [d]ecisions  [f]acts  [o]pen items", "".join(named))
            await review.move(memory, line, named[section])
        elif key == "r":
            await review.remove(memory, line)
        elif key == "f" and _asked("", "delete every copy, also in the conversation? [y]es  [n]o", "yn") == "y":
            target = ForgetTarget(path=line.path, lines=await run_sync(review.lines_of, memory, line))
            copies = (await forget(memory, target)).copies
            click.echo(f"  deleted in {counted(sum(len(copy.places) for copy in copies), 'place')}")
        else:
            return False
    except ContextManagerError as error:
        click.echo(f"  {shell.visible(str(error))}")
        return False
    return True


def _new_words(said: str) -> str:
    """Asks for the new words of a line, and returns them. If Python has `readline`, the old words can be edited."""
    try:
        import readline
    except ImportError:  # Windows
        return str(click.prompt("  new words", default=said))
    readline.set_startup_hook(lambda: readline.insert_text(said))
    try:
        return input("  new words: ")
    finally:
        readline.set_startup_hook(None)


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
    return shell.visible(said, keep_lines=True)
