"""`context-manager forget`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import apply_option, examples, json_option, print_json, print_table, print_text, visible

if TYPE_CHECKING:
    from mcp_server.forgetting.forget import Receipt
    from mcp_server.knowledge.approve import Waiting
    from mcp_server.memory import Memory

MOST_ROWS = 200


@click.command(
    "forget", epilog=examples("forget 'the alarm code'", "forget --session ses_1f2e --apply", "forget --secrets")
)
@click.argument("text", required=False)
@click.option("--turn", help="One message: SESSION#NUMBER; `session show` lists them.")
@click.option("--session", help="A whole conversation.")
@click.option("--path", help="A file.")
@click.option("--lines", help="Only these lines of the file: A-B, or A.")
@click.option("--secrets", is_flag=True, help="All stored secrets; `doctor --secrets` lists them.")
@apply_option
@click.option("--history", is_flag=True, help="Also rewrite git's history, after a backup next to the workspace.")
@json_option
def forget_command(
    text: str | None, lines: str | None, apply: bool, history: bool, as_json: bool, **options: Any
) -> None:
    """Delete TEXT (or a message, a conversation, a file) and all copies of it.

    Without --apply, shows every copy and what would happen to it. `forget --apply` without a target, or the next start
    of a server, finishes a deletion that was interrupted.
    """
    from mcp_server.cli.printing import working
    from mcp_server.forgetting.forget import finish, forget, plan_forget
    from mcp_server.forgetting.target import ForgetTarget

    target = ForgetTarget(text=text, lines=_range(lines), **options)
    nothing_named = not any((text, options["turn"], options["session"], options["path"], options["secrets"]))
    if nothing_named and not apply:
        raise click.UsageError("say what to forget: TEXT, --turn SESSION#N, --session ID, --path PATH or --secrets")

    async def act(memory: Memory) -> list[Receipt]:
        if nothing_named:
            return await finish(memory)
        if apply:
            return [await forget(memory, target, history=history)]
        return [await plan_forget(memory, target)]

    with working("Looking for copies …" if not apply else "Forgetting …"):
        done = with_memory(act)
    if as_json:
        print_json(done[0] if not nothing_named else done)
    elif not done:
        click.echo("No deletion was interrupted; there is nothing to finish.")
    for receipt in () if as_json else done:
        _print(receipt, history)


def _range(lines: str | None) -> tuple[int, int] | None:
    if lines is None:
        return None
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", lines.strip())
    if found is None:
        raise click.BadParameter(f"must be A-B, such as 12-14, not {lines!r}", param_hint="--lines")
    return int(found[1]), int(found[2] or found[1])


def _print(receipt: Receipt, history: bool) -> None:
    from mcp_server.forgetting.words import ELSEWHERE, git_sentences

    if receipt.nothing and not receipt.done:
        click.echo("No copy was found: nothing would change.")
        _print_similar(receipt)
        return
    rows = [row for copy in receipt.copies for row in _rows(copy)]
    if receipt.state_rows:
        rows.append((".local/state.db", "", f"{receipt.state_rows} rows cleaned, the file rewritten"))
    rows.append((".local/index", "", "rebuilt from the files; the old index files deleted"))
    title = f"Forgotten ({receipt.id}):" if receipt.done else "This would be forgotten:"
    print_table(("where", "line", "what"), rows[:MOST_ROWS], title=title, right=("line",), whole=("where",))
    if len(rows) > MOST_ROWS:
        click.echo(f"… and {len(rows) - MOST_ROWS:,} more places (--json lists all)")
    _print_similar(receipt)
    for sentence in receipt.left:
        print_text(f"Not deleted: {sentence}")
    for sentence in git_sentences(receipt, history):
        print_text(sentence)
    print_text(ELSEWHERE)
    if not receipt.done:
        click.echo("Nothing is deleted yet. Add --apply to do it.")


def _print_similar(receipt: Receipt) -> None:
    if receipt.similar:
        listed = ", ".join(visible(place) for place in receipt.similar[:10])
        more = f" and {len(receipt.similar) - 10} more" if len(receipt.similar) > 10 else ""
        print_text(f"Also inside longer words, left alone: {listed}{more}")


def _rows(copy: Any) -> list[tuple[str, object, str]]:
    rows: list[tuple[str, object, str]] = [(copy.path, place.line, place.what) for place in copy.places]
    if copy.new_path:
        rows.append((copy.path, "", f"renamed to {copy.new_path.rsplit('/', 1)[-1]}"))
    if copy.stuck:
        rows.append((copy.path, "", f"STAYS: {copy.stuck}; delete it with --path"))
    return rows


@click.command("approve", epilog=examples("approve", "approve ID --apply", "approve --all --reject --apply"))
@click.argument("proposal", required=False)
@click.option("--all", "every", is_flag=True, help="All proposals, instead of one.")
@click.option("--reject", is_flag=True, help="Delete the proposal instead of writing it.")
@apply_option
@click.option("--anyway", is_flag=True, help="Also if the file has changed since.")
@json_option
def approve_command(proposal: str | None, every: bool, reject: bool, apply: bool, anyway: bool, as_json: bool) -> None:
    """Show what agents want to write into identity and topics; accept or reject it."""
    from mcp_server.knowledge import approve as actions

    if proposal and every:
        raise click.UsageError("name a proposal, or --all, not both")
    if (apply or reject) and not (proposal or every):
        raise click.UsageError("name a proposal, or --all")

    async def act(memory: Memory) -> tuple[list[Waiting], list[str]]:
        found = await actions.waiting(memory, proposal)
        done: list[str] = []
        for one in found:
            number, path = one.proposal.id, one.proposal.path
            if not apply:
                continue
            if reject:
                await actions.reject(memory, number)
                done.append(f"{number}: dropped; {path} stays as it is")
            elif every and (one.problem or (one.changed and not anyway)):
                why = one.problem or "the file has changed since: see it, then --apply --anyway"
                done.append(f"{number}: not written: {why}")
            else:
                written = await actions.approve(memory, number, anyway=anyway)
                done.append(f"{number}: {written.action}: {written.path}")
        return found, done

    found, done = with_memory(act)
    if as_json:
        print_json({"proposals": found, "done": done})
        return
    if not found:
        click.echo("Nothing waits for approval.")
    for one in found:
        print_text(_words(one))
    for line in done:
        click.echo(visible(line))
    if found and not done:
        click.echo("Write one: context-manager approve ID --apply. Delete it: ID --reject --apply. All of them: --all.")


def _words(one: Waiting) -> str:
    proposal = one.proposal
    where = f"{proposal.path}, proposed {proposal.at:%Y-%m-%d %H:%M} by {proposal.by or 'an agent'}"
    lines = [f"{proposal.id}  {where}"]
    lines += ["  the file has changed since; this is what it would do now"] if one.changed else []
    lines += [f"  cannot be written: {one.problem}"] if one.problem else []
    return "\n".join([*lines, *(f"    {line}" for line in one.diff.splitlines()), ""])
