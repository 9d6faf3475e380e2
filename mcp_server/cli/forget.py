"""`context-manager forget`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_table, print_text, visible

if TYPE_CHECKING:
    from mcp_server.forgetting.forget import Receipt
    from mcp_server.memory import Memory

MOST_ROWS = 200


@click.command("forget")
@click.argument("text", required=False)
@click.option("--turn", help="One message: SESSION#NUMBER; `session show` lists them.")
@click.option("--session", help="A whole conversation.")
@click.option("--path", help="A file.")
@click.option("--lines", help="Only these lines of the file: A-B, or A.")
@click.option("--secrets", is_flag=True, help="All stored secrets; `doctor --secrets` lists them.")
@click.option("--yes", is_flag=True, help="Delete. Without this, only show what would be deleted.")
@click.option("--history", is_flag=True, help="Also rewrite git's history, after a backup next to the workspace.")
@json_option
def command(text: str | None, lines: str | None, yes: bool, history: bool, as_json: bool, **options: Any) -> None:
    """Delete TEXT (or a message, a conversation, a file) and all copies of it.

    Without --yes, shows every copy and what would happen to it. `forget --yes` without a target, or the next start of a
    server, finishes a deletion that was interrupted.
    """
    from mcp_server.cli.progress import working
    from mcp_server.forgetting.forget import finish, forget, plan_forget
    from mcp_server.forgetting.target import ForgetTarget

    target = ForgetTarget(text=text, lines=_range(lines), **options)
    nothing_named = not any((text, options["turn"], options["session"], options["path"], options["secrets"]))
    if nothing_named and not yes:
        raise click.UsageError("say what to forget: TEXT, --turn SESSION#N, --session ID, --path PATH or --secrets")

    async def act(memory: Memory) -> list[Receipt]:
        if nothing_named:
            return await finish(memory)
        if yes:
            return [await forget(memory, target, history=history)]
        return [await plan_forget(memory, target)]

    with working("Looking for copies …" if not yes else "Forgetting …"):
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
        click.echo("Nothing is deleted yet. Add --yes to do it.")


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
