"""Commands `compile` and `demo`."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from mcp_server.cli.command import caller, console, examples, json_option, plain, print_json, visible, with_memory

if TYPE_CHECKING:
    from mcp_server.demo.run import Step


@click.command(
    "compile", epilog=examples("compile 'What is left to do?' --explain", "compile 'Write to the bank' --budget 2000")
)
@click.argument("message", required=False)
@click.option("--session", help="The conversation that the message belongs to.")
@click.option("--project", help="As from this project (default: the session's, else the folder's own).")
@click.option("--budget", type=int, help="Tokens (default: context_compiler.token_budget).")
@click.option("--explain", is_flag=True, help="Show where the budget went, what is in, what is out and why.")
@json_option
def compile_command(
    message: str | None, session: str | None, project: str | None, budget: int | None, explain: bool, as_json: bool
) -> None:
    """Print the context for MESSAGE, exactly; without one, for the session's last user turn."""
    from mcp_server.context.compile import CompileRequest, compile_context

    request = CompileRequest(message=message, session=session, project=project, budget=budget, strict=True, known=True)
    compiled = with_memory(lambda memory: compile_context(memory, request, caller()), fresh=True)
    if as_json:
        receipt = compiled.receipt_json()
        print_json({"text": compiled.text, "sha256": compiled.sha256, "tokens": compiled.tokens, "receipt": receipt})
    elif explain:
        show(compiled.receipt_json(), message or "")
    else:
        sys.stdout.buffer.write(compiled.text.encode("utf-8", "replace"))  # bytes: Windows would change the line ends
        sys.stdout.buffer.flush()
        if sys.stdout.isatty():  # exact to the byte in a pipe; on a terminal the prompt gets a line of its own
            click.echo()


COLOURS: Mapping[str, str] = {
    "safety": "white",
    "identity": "magenta",
    "memory": "blue",
    "active projects": "cyan",
    "project": "bright_cyan",
    "journal": "yellow",
    "last session": "bright_yellow",
    "checkpoint": "bright_red",
    "history": "bright_blue",
    "knowledge": "green",
    "clarity": "bright_green",
    "dropped": "bright_black",
}
OTHER_COLOUR = "bright_magenta"
FREE = "·"
_TRANSCRIPT = re.compile(r"raw/conversations/(\d+)/(\d+)/(\d+)/\d{4}-(.*)\.md")
TERMS_SHOWN = 3
IN_SHOWN = 25
LONGEST_NAME, LONGEST_PATH = 30, 46
OUT_SHOWN = 12


def show(receipt: Mapping[str, Any], message: str = "", to: Console | None = None) -> None:
    """Prints a receipt: the budget, what went in, and what stayed out."""
    to = to or console()
    for part in _parts(receipt, message, to.width, coloured=bool(to.color_system)):
        to.print(part)


def _parts(receipt: Mapping[str, Any], message: str, width: int, *, coloured: bool) -> Iterator[RenderableType]:
    yield Rule(Text("what this message got from memory", style="bold"), align="left", style="dim")
    if message:
        yield Text.assemble(("message  ", "dim"), visible(message)[: 3 * width])
    yield _headline(receipt)
    slots = [slot for slot in receipt["slots"] if slot["tokens"] or slot["included"] or slot["cut"]]
    yield Text("")
    yield budget_bar(receipt, min(width, 100) - 2, coloured=coloured)
    yield _legend(receipt, slots, coloured=coloured)
    yield _gate(receipt.get("gate"))
    inside = [one for one in receipt["considered"] if one["included"]]
    outside = [one for one in receipt["considered"] if not one["included"]]
    yield Text("")
    yield _went_in(inside) if inside else Text("went in: nothing", style="bold")
    yield from _stayed_out(outside, receipt.get("left_out") or {})
    line = Text.assemble(("\nsha256   ", "dim"), receipt["sha256"])
    if receipt.get("generation"):
        line.append("\nindex    ", "dim").append(visible(str(receipt["generation"])))
    yield line


def _headline(receipt: Mapping[str, Any]) -> Text:
    from mcp_server.model import shown_name

    used = receipt["tokens"] / receipt["budget"] if receipt["budget"] else 0
    line = Text.assemble(
        ("budget   ", "dim"),
        (f"{receipt['tokens']:,}", "bold"),
        f" of {receipt['budget']:,} tokens ({used:.0%})",
        ("   delivery ", "dim"),
        receipt["delivery"],
    )
    for name in ("session", "project"):
        if receipt.get(name):
            line.append(f"   {name} ", "dim").append(visible(shown_name(receipt[name])))
    if receipt.get("too_small"):
        line.append("\nThe budget is below what a context needs; it was cut. Give at least 128 tokens.", "bold red")
    return line


def segments(receipt: Mapping[str, Any], width: int) -> list[tuple[str, int]]:
    """Returns (slot, cells) for a bar of `width` cells, in the order of the text; the rest of the bar is free budget.

    Every slot that has tokens gets at least one cell; the others share by largest remainder, so that the sum is exact.
    """
    budget = max(receipt["budget"], receipt["tokens"], 1)
    parts = [(slot["name"], slot["tokens"]) for slot in receipt["slots"] if slot["tokens"]]
    parts.append(("", budget - sum(tokens for _, tokens in parts)))
    exact = [tokens * width / budget for _, tokens in parts]
    cells = [max(int(share), 1 if name else 0) for share, (name, _) in zip(exact, parts, strict=True)]
    by_need = sorted(range(len(parts)), key=lambda place: cells[place] - exact[place])
    while sum(cells) < width:
        for place in by_need[: width - sum(cells)]:
            cells[place] += 1
    while sum(cells) > width:
        largest = max(range(len(cells)), key=lambda place: cells[place] - exact[place] if cells[place] > 1 else -1)
        cells[largest] -= 1
    return [(name, size) for (name, _), size in zip(parts, cells, strict=True)]


def budget_bar(receipt: Mapping[str, Any], width: int, *, coloured: bool = True) -> Text:
    """Returns the budget as one line: a colored segment for each slot, or without colors the slot's letter."""
    letters = _letters(slot["name"] for slot in receipt["slots"])
    bar = Text(" ")
    for name, cells in segments(receipt, width):
        if not name:
            bar.append(FREE * cells, "dim")
        elif coloured:
            bar.append("█" * cells, _colour(name))
        else:
            bar.append(letters[name] * cells)
    return bar


def _legend(receipt: Mapping[str, Any], slots: Sequence[Mapping[str, Any]], *, coloured: bool) -> Table:
    letters = _letters(slot["name"] for slot in receipt["slots"])
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for slot in slots:
        name = slot["name"]
        mark = Text(" ■ ", _colour(name)) if coloured else Text(f" {letters[name]} ")
        counts = [f"{slot['included']} in"] if slot["included"] else []
        counts += [f"{slot['cut']} of them in part"] if slot["cut"] else []
        counts += [f"at most {slot['cap']:,}"] if slot["cap"] < receipt["budget"] else []
        counts += [f"{slot['floor']:,} kept free for it"] if slot["floor"] else []
        table.add_row(mark + Text(name), f"{slot['tokens']:,}", _percent(slot["tokens"], receipt), ", ".join(counts))
    free = receipt["budget"] - receipt["tokens"]
    table.add_row(Text(f" {FREE} free"), f"{free:,}", _percent(free, receipt), "")
    return table


def _gate(gate: Mapping[str, Any] | None) -> Text:
    if gate is None:
        return Text.assemble(("\ngate     ", "dim"), "not asked: there was nothing to search for")
    sign, meaning = (
        ("≥", "open: something here is about this") if gate["open"] else ("<", "closed: nothing here is about this")
    )
    style = "bold green" if gate["open"] else "bold yellow"
    measured = f"   {gate['value']:.3f} {sign} {gate['threshold']:.3f}"
    return Text.assemble(("\ngate     ", "dim"), (meaning, style), measured, (f"   {visible(gate['signal'])}", "dim"))


def _went_in(inside: Sequence[Mapping[str, Any]]) -> Table:
    title = Text(f"went in: {len(inside)}", style="bold")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("what", overflow="fold", ratio=1)
    table.add_column("why", overflow="fold", ratio=1)
    for one in inside[:IN_SHOWN]:
        what = Text("■ ", _colour(one["slot"])) + Text(_what(one)) + Text("" if one["whole"] else " (part)", "dim")
        table.add_row(f"{one['tokens']:,}", _score(one), what, Text(terms(one) or visible(one["reason"])))
    if len(inside) > IN_SHOWN:
        rest = sum(one["tokens"] for one in inside[IN_SHOWN:])
        table.add_row(f"{rest:,}", "", Text(f"… and {len(inside) - IN_SHOWN} more (--json shows all)", "dim"), "")
    return table


def _stayed_out(outside: Sequence[Mapping[str, Any]], left_out: Mapping[str, int]) -> Iterator[RenderableType]:
    counts = Counter({str(reason): int(count) for reason, count in left_out.items()})
    counts.update(one["reason"] for one in outside)
    if not counts:
        return
    yield Text(f"stayed out: {counts.total()}", style="bold")
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for reason, count in counts.most_common():
        table.add_row(f"{count:,}", Text(visible(reason), "yellow"))
        named = [one for one in outside if one["reason"] == reason]
        for one in named[: max(1, OUT_SHOWN // len(counts))]:
            table.add_row("", Text(f"  {_score(one)}  {_what(one)}".rstrip(), "dim"))
    yield table


def terms(one: Mapping[str, Any]) -> str:
    """Returns the score as a sum, such as `answer 0.12 + best 0.11 + 7 more 0.30`, with its factors.

    What a passage is charged for its length counts when it is chosen, not in its score.
    """
    summed = (one.get("relevance") or {}).items()
    parts = sorted(((name, value) for name, value in summed if value), key=lambda part: -abs(part[1]))
    words = [f"{visible(name)} {value:.2f}" for name, value in parts[:TERMS_SHOWN]]
    if len(parts) > TERMS_SHOWN:
        words.append(f"{len(parts) - TERMS_SHOWN} more {sum(value for _, value in parts[TERMS_SHOWN:]):.2f}")
    factors = [f"{visible(k)} {value:.2f}" for k, value in one["terms"].items() if k != "relevance" and value != 1]
    said = " + ".join(words)
    product = " × ".join([f"({said})" if said and factors else said, *factors]).removeprefix(" × ")
    return f"{product} − {one['charge']:.2f} length" if one.get("charge") else product


def _what(one: Mapping[str, Any]) -> str:
    """Returns a short name: of a transcript its date, name and turn; of a file its path and lines."""
    turn = "" if one.get("turn") is None else f" #{one['turn']}"
    if match := _TRANSCRIPT.fullmatch(one["source"]):
        return visible(f"{match[1]}-{match[2]}-{match[3]} {_tail(match[4], LONGEST_NAME)}{turn}")
    return visible(_tail(one["id"] if one["id"].startswith(one["source"]) else one["source"] + turn, LONGEST_PATH))


def _tail(text: str, length: int) -> str:
    return text if len(text) <= length else "…" + text[1 - length :]


def _score(one: Mapping[str, Any]) -> str:
    return "" if one.get("score") is None else f"{one['score']:.3f}"


def _percent(tokens: int, receipt: Mapping[str, Any]) -> str:
    return f"{tokens / receipt['budget']:.0%}" if receipt["budget"] else ""


def _colour(slot: str) -> str:
    return COLOURS.get(slot, OTHER_COLOUR)


def _letters(names: Iterable[str]) -> Mapping[str, str]:
    """Returns a capital letter for each slot: its first letter that no earlier slot has."""
    letters: dict[str, str] = {}
    for name in names:
        free = (letter for letter in name.upper() if letter.isalpha() and letter not in letters.values())
        letters[name] = next(free, "#")
    return letters


PICTURE_COLUMNS = 92


@click.command("demo")
@click.argument("file", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--ask", help="The message to compile a context for.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the before-and-after here.")
@json_option
def demo_command(file: Path | None, ask: str | None, svg: Path | None, as_json: bool) -> None:
    """Show the main job, from nothing: import, serve, observe, search, remember, compile, and why.

    FILE is a conversation or a folder of notes of your own; without it, the package's own conversation is used. The
    memory is temporary, unless --workspace says where to keep it.
    """
    import anyio

    from mcp_server.home import resolve_workspace

    option = click.get_current_context().find_root().obj
    kept = resolve_workspace(option, {}) if option else None
    with tempfile.TemporaryDirectory(prefix="context-manager-demo-", ignore_cleanup_errors=True) as folder:
        workspace = kept or Path(folder) / "memory"
        steps = anyio.run(_run, workspace, file, ask, as_json)
    if svg is not None:
        svg.write_text(picture(steps), encoding="utf-8")
    if as_json:
        print_json([plain(step) for step in steps])
    elif kept is None:
        click.echo("\nThis memory was temporary. To begin one of your own: context-manager init")


async def _run(workspace: Path, file: Path | None, ask: str | None, as_json: bool) -> list[Step]:
    from mcp_server.app import catch_up, open_memory
    from mcp_server.demo.run import demo

    steps: AsyncIterator[Step] = demo(workspace, open_memory, catch_up, os.environ, file, ask)
    done = []
    async for step in steps:
        done.append(step)
        if not as_json:
            _show(len(done), step)
    return done


def _show(number: int, step: Step) -> None:
    to = console()
    heading = Text.assemble((f"\n{number} ", "bold green"), (step.title, "bold"), (f"  {step.seconds:.1f} s", "dim"))
    to.print(heading)
    text = visible(step.text, keep_lines=True).strip("\n")
    if text:
        to.print(Padding(Text(text), (0, 0, 0, 2), expand=False))
    if step.receipt is not None:
        show(step.receipt, step.message, to)


def picture(steps: Sequence[Step]) -> str:
    """Returns the before-and-after as an SVG: a prompt without a memory, and the same prompt with what is added."""
    import io

    added, idle = (step for step in steps if step.pushed is not None)
    to = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)

    def show(title: str, color: str, prompt: str, lines: Sequence[Text]) -> None:
        text = Group(Text(f"> {visible(prompt)}", "bold"), Text(""), *lines)
        to.print(Panel(text, title=title, title_align="left", border_style=color))

    show("without a memory", "red", added.message, [Text("The model gets nothing else.", "dim")])
    headings = ("[", "<!--", "Memory compiled")
    lines = [
        Text(line, "dim cyan" if line.startswith(headings) else "green")
        for line in visible(added.pushed or "", keep_lines=True).splitlines()
    ]
    show(f"with context-manager · {added.line}", "green", added.message, lines)
    nothing = Text("Nothing is added: no stored text is about this.", "dim")
    show("with context-manager", "green", idle.message, [nothing])
    drawn = to.export_svg(title="What the model gets", unique_id="demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # no font from another host
