"""Commands `compile` and `demo`."""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import click
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from mcp_server.cli import shell
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.demo import Step, demo
from mcp_server.home import resolve_workspace
from mcp_server.model import shown_name


@shell.command("compile", "compile 'What is left to do?' --explain", "compile 'Write to the bank' --budget 2000")
@click.argument("message", required=False)
@click.option("--session", help="The conversation that the message belongs to.")
@click.option("--project", help="Compile for this project (default: that of the session, else of the folder).")
@click.option("--budget", type=int, help="Tokens (default: context_compiler.token_budget).")
@click.option("--explain", is_flag=True, help="Show how the budget was used, and why each passage is in or out.")
def compile_command(
    message: str | None, session: str | None, project: str | None, budget: int | None, explain: bool
) -> None:
    """Print the exact context for MESSAGE; without MESSAGE, for the session's last user turn."""
    request = CompileRequest(message=message, session=session, project=project, budget=budget, strict=True, known=True)
    compiled = shell.with_memory(lambda memory: compile_context(memory, request, shell.caller()), fresh=True)
    if shell.as_json():
        receipt = compiled.receipt_json()
        shell.print_json(
            {"text": compiled.text, "sha256": compiled.sha256, "tokens": compiled.tokens, "receipt": receipt}
        )
    elif explain:
        show(compiled.receipt_json(), message or "")
    else:
        sys.stdout.buffer.write(compiled.text.encode("utf-8", "replace"))  # bytes: Windows would change the line ends
        sys.stdout.buffer.flush()
        if sys.stdout.isatty():  # only there: in a pipe the output must be exact to the byte
            click.echo()


TERMS_SHOWN = 3
IN_SHOWN = 25
LONGEST_MESSAGE = 300
LONGEST_NAME, LONGEST_PATH = 30, 46
OUT_SHOWN = 12
_TRANSCRIPT = re.compile(r"raw/conversations/(\d+)/(\d+)/(\d+)/\d{4}-(.*)\.md")


def show(receipt: Mapping[str, Any], message: str = "", to: Console | None = None) -> None:
    """Prints a receipt: the budget, what went in, and what stayed out."""
    to = to or shell.console()
    shell.print_facts({"message": message[:LONGEST_MESSAGE], "budget": _budget(receipt)}, to)
    rows = [_slot(slot, receipt) for slot in receipt["slots"] if slot["tokens"] or slot["included"] or slot["cut"]]
    free = receipt["budget"] - receipt["tokens"]
    rows.append(("free", f"{free:,}", _percent(free, receipt), ""))
    shell.print_table(("slot", "tokens", "share", ""), rows, right=("tokens", "share"), to=to)
    shell.print_facts({"gate": _gate(receipt.get("gate"))}, to)
    inside = [one for one in receipt["considered"] if one["included"]]
    outside = [one for one in receipt["considered"] if not one["included"]]
    went = [
        (f"{one['tokens']:,}", _score(one), f"{_what(one)}{'' if one['whole'] else ' (part)'}", _terms(one))
        for one in inside[:IN_SHOWN]
    ]
    if rest := inside[IN_SHOWN:]:
        went.append((f"{sum(one['tokens'] for one in rest):,}", "", f"… and {len(rest)} more (--json shows all)", ""))
    title = f"went in: {len(inside)}"
    shell.print_table(("tokens", "score", "what", "why"), went, title=title, right=("tokens", "score"), to=to)
    counts = Counter({str(reason): int(count) for reason, count in (receipt.get("left_out") or {}).items()})
    counts.update(one["reason"] for one in outside)
    left: list[tuple[str, str]] = []
    for reason, count in counts.most_common():
        left.append((f"{count:,}", reason))
        named = [one for one in outside if one["reason"] == reason][: max(1, OUT_SHOWN // len(counts))]
        left += [("", f"{_score(one)}  {_what(one)}") for one in named]
    if left:
        shell.print_table(("", "why"), left, title=f"stayed out: {counts.total()}", right=("",), to=to)
    shell.print_facts({"sha256": receipt["sha256"], "index": receipt.get("generation")}, to)


def _budget(receipt: Mapping[str, Any]) -> str:
    named = [f"{name} {shown_name(receipt[name])}" for name in ("session", "project") if receipt.get(name)]
    used = f"{receipt['tokens']:,} of {receipt['budget']:,} tokens ({_percent(receipt['tokens'], receipt)})"
    small = ["The budget is too small for a context, so the context was cut. Give at least 128 tokens."]
    return "   ".join([used, f"delivery {receipt['delivery']}", *named, *(small if receipt.get("too_small") else [])])


def _slot(slot: Mapping[str, Any], receipt: Mapping[str, Any]) -> tuple[str, str, str, str]:
    counts = [f"{slot['included']} in"] if slot["included"] else []
    counts += [f"{slot['cut']} of them in part"] if slot["cut"] else []
    counts += [f"at most {slot['cap']:,}"] if slot["cap"] < receipt["budget"] else []
    counts += [f"{slot['floor']:,} kept free for it"] if slot["floor"] else []
    return slot["name"], f"{slot['tokens']:,}", _percent(slot["tokens"], receipt), ", ".join(counts)


def _gate(gate: Mapping[str, Any] | None) -> str:
    if gate is None:
        return "not evaluated: there was nothing to search for"
    sign, said = ("≥", "open: something") if gate["open"] else ("<", "closed: nothing")
    return f"{said} here is about this   {gate['value']:.3f} {sign} {gate['threshold']:.3f}   {gate['signal']}"


def _terms(one: Mapping[str, Any]) -> str:
    """Returns the score as a sum, such as `answer 0.12 + best 0.11 + 7 more 0.30`, with its factors, or the reason.

    The charge for a passage's length is shown after the score: it counts only when passages are chosen.
    """
    summed = (one.get("relevance") or {}).items()
    parts = sorted(((name, value) for name, value in summed if value), key=lambda part: -abs(part[1]))
    words = [f"{name} {value:.2f}" for name, value in parts[:TERMS_SHOWN]]
    if len(parts) > TERMS_SHOWN:
        words.append(f"{len(parts) - TERMS_SHOWN} more {sum(value for _, value in parts[TERMS_SHOWN:]):.2f}")
    factors = [f"{name} {value:.2f}" for name, value in one["terms"].items() if name != "relevance" and value != 1]
    said = " + ".join(words)
    product = " × ".join([f"({said})" if said and factors else said, *factors]).removeprefix(" × ")
    return (f"{product} − {one['charge']:.2f} length" if one.get("charge") else product) or one["reason"]


def _what(one: Mapping[str, Any]) -> str:
    """Returns a short name: of a transcript its date, name and turn; of a file its path and lines."""
    turn = "" if one.get("turn") is None else f" #{one['turn']}"
    if match := _TRANSCRIPT.fullmatch(one["source"]):
        return f"{match[1]}-{match[2]}-{match[3]} {_tail(match[4], LONGEST_NAME)}{turn}"
    return _tail(one["id"] if one["id"].startswith(one["source"]) else one["source"] + turn, LONGEST_PATH)


def _tail(text: str, length: int) -> str:
    return text if len(text) <= length else "…" + text[1 - length :]


def _score(one: Mapping[str, Any]) -> str:
    return "" if one.get("score") is None else f"{one['score']:.3f}"


def _percent(tokens: int, receipt: Mapping[str, Any]) -> str:
    return f"{tokens / receipt['budget']:.0%}" if receipt["budget"] else ""


PICTURE_COLUMNS = 92


@shell.command("demo")
@click.argument("file", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--ask", help="The message to compile a context for.")
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the before-and-after into this file."
)
def demo_command(file: Path | None, ask: str | None, svg: Path | None) -> None:
    """Show the main functions on a new memory: import, serve, observe, search, remember, compile, explain.

    FILE is a conversation or a folder of notes of your own; without it, the package's own conversation is used. The
    memory is temporary, unless --workspace says where to keep it.
    """
    option = shell.chosen_workspace()
    kept = resolve_workspace(option, {}) if option else None
    with tempfile.TemporaryDirectory(prefix="context-manager-demo-", ignore_cleanup_errors=True) as folder:
        workspace = kept or Path(folder) / "memory"
        steps = anyio.run(_run, workspace, file, ask)
    if svg is not None:
        svg.write_text(picture(steps), encoding="utf-8")
    if shell.printed_as_json(steps):
        return
    if kept is None:
        click.echo("\nThis memory was temporary. To begin one of your own: context-manager init")


async def _run(workspace: Path, file: Path | None, ask: str | None) -> list[Step]:
    done: list[Step] = []
    async with aclosing(demo(workspace, os.environ, file, ask)) as steps:
        async for step in steps:
            done.append(step)
            if not shell.as_json():
                _show(len(done), step)
    return done


def _show(number: int, step: Step) -> None:
    to = shell.console()
    heading = Text.assemble((f"\n{number} ", "bold green"), (step.title, "bold"), (f"  {step.seconds:.1f} s", "dim"))
    to.print(heading)
    text = shell.visible(step.text, keep_lines=True).strip("\n")
    if text:
        to.print(Padding(Text(text), (0, 0, 0, 2), expand=False))
    if step.receipt is not None:
        show(step.receipt, step.message, to)


def picture(steps: Sequence[Step]) -> str:
    """Returns the before-and-after as an SVG: a prompt without a memory, and the same prompt with the added text."""
    added, idle = (step for step in steps if step.pushed is not None)
    to = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)

    def show(title: str, color: str, prompt: str, lines: Sequence[Text]) -> None:
        text = Group(Text(f"> {shell.visible(prompt)}", "bold"), Text(""), *lines)
        to.print(Panel(text, title=title, title_align="left", border_style=color))

    show("without a memory", "red", added.message, [Text("The model gets nothing else.", "dim")])
    headings = ("[", "<!--", "Memory compiled")
    lines = [
        Text(line, "dim cyan" if line.startswith(headings) else "green")
        for line in shell.visible(added.pushed or "", keep_lines=True).splitlines()
    ]
    show(f"with context-manager · {added.line}", "green", added.message, lines)
    nothing = Text("Nothing is added: no stored text is about this.", "dim")
    show("with context-manager", "green", idle.message, [nothing])
    drawn = to.export_svg(title="What the model gets", unique_id="demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # load no font from another host
