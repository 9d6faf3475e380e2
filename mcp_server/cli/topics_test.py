"""`context-manager topics test MESSAGE`: tier by tier, for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import console, json_option, print_json, print_text, visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from mcp_server.context.try_message import Trial
    from mcp_server.memory import Memory
    from mcp_server.topics.judge import Verdict
    from mcp_server.topics.topic import Direction

BAR = 30
"""Cells of a score's bar, which ends at `FULL`."""
FULL = 0.6
AROUND = 24
"""Characters of the message that are shown before and after what matched."""
MOST_OUT = 12
"""Topics that stay out which are shown; --all shows every one."""


@click.command("test")
@click.argument("message")
@click.option("--output", "as_output", is_flag=True, help="As if an agent had said it.")
@click.option("--file", "files", multiple=True, help="A file that the message's tools touched (for glob triggers).")
@click.option("--text", "show_text", is_flag=True, help="Also print what would come into the context.")
@click.option("--all", "show_all", is_flag=True, help="Show every topic that was considered.")
@json_option
def test(message: str, as_output: bool, files: tuple[str, ...], show_text: bool, show_all: bool, as_json: bool) -> None:
    """Show which topics MESSAGE would activate, and why. Writes nothing.

    Where an LLM is set up, the gate asks it, as it would in a conversation.
    """
    from mcp_server.context.try_message import try_message

    direction: Direction = "output" if as_output else "input"

    async def ask(memory: Memory) -> Trial:
        return await try_message(memory, message, direction=direction, paths=files)

    found = with_memory(ask)
    if as_json:
        print_json(found)
        return
    for part in view(found, show_all=show_all):
        console().print(part)
    if show_text and found.text:
        print_text(f"\n{found.text}")


def view(found: Trial, *, show_all: bool = False) -> Iterator[RenderableType]:
    """Yields the parts of the view, from top to bottom."""
    from rich.rule import Rule
    from rich.text import Text

    said = "an agent's answer" if found.heard.direction == "output" else "a message"
    yield Rule(Text(f"what {said} would bring in", style="bold"), align="left", style="dim")
    yield Text.assemble(("message  ", "dim"), visible(found.heard.text)[:500])
    come = sum(one.active for one in found.verdicts)
    total = len(found.verdicts) + found.others
    yield Text.assemble(
        ("topics   ", "dim"),
        (f"{come} of {total}", "bold"),
        f" come in, {len(found.verdicts) - come} were considered and stay out",
    )
    quiet = [one for one in found.verdicts if not one.active]
    shown = [one for one in found.verdicts if one.active] + (quiet if show_all else quiet[:MOST_OUT])
    for one in shown:
        yield from _verdict(found, one)
    if len(shown) < len(found.verdicts):
        yield Text(f"\n… and {len(found.verdicts) - len(shown)} more that stay out (--all)", "dim")
    for trouble in found.troubles:
        yield Text(f"! {trouble.topic}: line {trouble.line}: {visible(trouble.what)}", "bold red")
    for problem in found.problems:
        yield Text(f"! {visible(problem)}", "bold red")
    yield from _injected(found)


def _verdict(found: Trial, one: Verdict) -> Iterator[Text]:
    from rich.text import Text

    mark, style = ("●", "bold green") if one.active else ("○", "dim")
    yield Text("")
    yield Text.assemble(
        (f"{mark} {one.topic}", style),
        ("  comes in" if one.active else "  stays out", style),
        (f"   {one.about.activation}, {one.about.priority}, {visible(one.about.path)}", "dim"),
    )
    if not one.matches:
        none = "no trigger of its own" if not one.about.triggers else "no trigger matched"
        yield Text.assemble(("  tier 1  ", "dim"), none)
    for place, match in enumerate(one.matches):
        yield Text.assemble(
            ("  tier 1  " if place == 0 else "          ", "dim"),
            (f"{match.kind.replace('_', ' ')} ", "cyan"),
            _where(found.heard.text, match.start, match.end) if match.end else Text(visible(match.said), "bold"),
            (f"   line {match.trigger.line}" if match.trigger.line else "", "dim"),
        )
    likeness = one.decision.likeness
    made = " · ".join(f"{name} {value:.2f}" for name, value in likeness.terms.items())
    yield Text.assemble(
        ("  tier 2  ", "dim"),
        (f"{one.about.similarity} ", "cyan"),
        bar(likeness.score, one.decision.threshold),
        (f" {likeness.score:.3f}", "bold"),
        f"  threshold {one.decision.threshold:g}",
        (f"   {made}" if made else "   no word in common", "dim"),
    )
    yield Text.assemble(("  tier 3  ", "dim"), visible(one.decision.routed.why))
    if one.by != "none":
        yield Text.assemble(("          ", "dim"), (visible(one.why), "green" if one.active else "yellow"), _sum(one))


def _sum(one: Verdict) -> Text:
    from rich.text import Text

    if one.by != "arithmetic":
        return Text("")
    said = one.decision.deliberation
    parts = " + ".join(f"{name} {value:.3f}" for name, value in said.terms.items() if value)
    return Text(f"   {parts.replace('+ meant -', '− meant ')}", "dim")


def _where(text: str, start: int, end: int) -> Text:
    """Returns the match with a few characters around it."""
    from rich.text import Text

    before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    return Text.assemble(
        ("…" if start > AROUND else "") + visible(before),
        ("[", "dim"),
        (visible(text[start:end][:100]), "bold"),
        ("]", "dim"),
        visible(after) + ("…" if end + AROUND < len(text) else ""),
        (f"   at {start}–{end}", "dim"),
    )


def bar(score: float, threshold: float) -> Text:
    """Returns a score as a bar, with a mark at its threshold."""
    from rich.text import Text

    filled, mark = (min(BAR - 1, round(BAR * value / FULL)) for value in (score, threshold))
    cells = ["━" if place < filled else "·" for place in range(BAR)]
    cells[mark] = "┃"
    drawn = Text()
    for place, cell in enumerate(cells):
        drawn.append(cell, "bold" if place == mark else "green" if place < filled else "dim")
    return drawn


def _injected(found: Trial) -> Iterator[RenderableType]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not found.items:
        yield Text("\nNothing would come into the context.", "dim")
        return
    table = Table(
        title=Text(f"What would come into the context: {found.tokens:,} tokens", "bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("tokens", justify="right", no_wrap=True)
    for column in ("what", "why"):
        table.add_column(column, overflow="fold")
    for one in found.items:
        table.add_row(
            f"{one.tokens:,}" if one.included else "out",
            Text(visible(one.id)),
            Text(visible(one.reason)),
            style="" if one.included else "dim",
        )
    yield Text("")
    yield table
