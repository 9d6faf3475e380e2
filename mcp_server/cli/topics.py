"""`context-manager topics list|activate|deactivate|test`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from mcp_server.cli.command import (
    apply_option,
    console,
    examples,
    json_option,
    print_json,
    print_list,
    print_result,
    print_table,
    print_text,
    visible,
    with_memory,
)

if TYPE_CHECKING:
    from mcp_server.context.try_message import Trial
    from mcp_server.memory import Memory
    from mcp_server.topics.gate_log import Quality
    from mcp_server.topics.judge import Verdict
    from mcp_server.topics.listing import Switched, TopicsView
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

    found = with_memory(lambda memory: try_message(memory, message, direction=direction, paths=files))
    if as_json:
        print_json(found)
        return
    for part in _parts(found, show_all=show_all):
        console().print(part)
    if show_text and found.text:
        print_text(f"\n{found.text}")


def _parts(found: Trial, *, show_all: bool) -> Iterator[RenderableType]:
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
        terms = one.decision.deliberation.terms.items() if one.by == "arithmetic" else ()
        parts = " + ".join(f"{name} {value:.3f}" for name, value in terms if value)
        total = (f"   {parts.replace('+ meant -', '− meant ')}" if one.by == "arithmetic" else "", "dim")
        yield Text.assemble(("          ", "dim"), (visible(one.why), "green" if one.active else "yellow"), total)


def _where(text: str, start: int, end: int) -> Text:
    """Returns the match with a few characters around it."""
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
    filled, mark = (min(BAR - 1, round(BAR * value / FULL)) for value in (score, threshold))
    cells = ["━" if place < filled else "·" for place in range(BAR)]
    cells[mark] = "┃"
    drawn = Text()
    for place, cell in enumerate(cells):
        drawn.append(cell, "bold" if place == mark else "green" if place < filled else "dim")
    return drawn


def _injected(found: Trial) -> Iterator[RenderableType]:
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


STYLES = {"active": "bold green", "off": "dim", "waiting": ""}

session_option = click.option("--session", help="In this conversation (default: the one last heard of).")


@click.group("topics", epilog=examples("topics list", "topics test 'write to the bank'", "topics tune --apply"))
def topics_command() -> None:
    """List, try and tune the playbooks that are added automatically: the files in topics/."""


@topics_command.command("list")
@session_option
@json_option
def list_(session: str | None, as_json: bool) -> None:
    """List the topics with their triggers and states."""
    from mcp_server.errors import NotFound
    from mcp_server.relevance.clarity import session_meant
    from mcp_server.topics.listing import list_topics

    async def ask(memory: Memory) -> TopicsView:
        try:
            meant = await session_meant(memory, session)
        except NotFound:
            if session:
                raise
            meant = None
        return await list_topics(memory, meant)

    found = with_memory(ask)
    if as_json:
        print_json(found)
        return
    if found.topics:
        console().print(_table(found))
    else:
        click.echo("No topic yet. (topics/NAME.md in the memory's folder)")
    for problem in found.problems:
        print_text(f"! {problem}")


for verb, on, about in (
    ("activate", True, "Switch a topic on in a conversation, until you switch it off."),
    ("deactivate", False, "Switch a topic off in a conversation, whatever its triggers."),
):

    @topics_command.command(verb, help=about)
    @click.argument("name")
    @session_option
    @json_option
    def switch_(name: str, session: str | None, as_json: bool, on: bool = on) -> None:
        from mcp_server.relevance.clarity import session_meant
        from mcp_server.topics.listing import switch

        async def act(memory: Memory) -> Switched:
            return await switch(memory, name, await session_meant(memory, session), on=on)

        done = with_memory(act)
        print_result(done, done.markdown, as_json)


topics_command.add_command(test)


def _table(view: TopicsView) -> Table:
    title = f"topics in session {view.session}" if view.session else "topics"
    table = Table(title=Text(visible(title), style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("topic", "state", "set off by", "activation", "priority", "triggers"):
        table.add_column(column, overflow="fold", no_wrap=column == "topic")
    for row in view.topics:
        name = Text(visible(row.name)) + Text(" !" if row.problem else "", "bold red")
        cells = (row.activation, row.priority, row.triggers)
        state = f"active, {row.left} more" if row.state == "active" and row.left is not None else row.state
        table.add_row(name, Text(state, STYLES[row.state]), visible(row.by), *cells)
    return table


USEFUL = {True: "yes", False: "no", None: ""}


@topics_command.command("log")
@click.option("--topic", help="Only of this topic.")
@click.option("--session", help="Only of this conversation.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Most decisions shown.")
@json_option
def log(topic: str | None, session: str | None, limit: int, as_json: bool) -> None:
    """List the last decisions about topics, newest first."""
    from mcp_server.topics.gate_log import decisions

    async def ask(memory: Memory) -> list[dict[str, Any]]:
        found = (
            line
            for line in decisions(memory)
            if topic in (None, line.get("topic_name")) and session in (None, line.get("session_id"))
        )
        return list(islice(found, limit))

    print_list(
        with_memory(ask),
        as_json,
        "No decision is logged. (`context-manager topics test MESSAGE` shows how one comes about)",
        ("at (UTC)", "topic", "", "score", "matched", "why", "useful"),
        lambda line: (
            str(line.get("timestamp", ""))[:16].replace("T", " "),
            line.get("topic_name"),
            "in" if line.get("gate_result") else "out",
            f"{line.get('tier2_score') or 0:.3f}",
            ", ".join(line.get("matched") or ()) or "likeness",
            line.get("why"),
            USEFUL.get(line.get("was_useful"), ""),
        ),
        right=("score",),
    )


@topics_command.command("tune")
@apply_option
@json_option
def tune(apply: bool, as_json: bool) -> None:
    """Propose thresholds that would have decided better.

    Writes nothing unless --apply is given.
    """
    from mcp_server.topics.gate_log import tune as run

    found = with_memory(lambda memory: run(memory, apply=apply))
    if as_json:
        print_json(found)
        return
    click.echo(f"{found.logged:,} decisions logged, {found.known:,} of them with a known use")
    for one in found.nuisances:
        print_text(
            f"! {one.topic}: {one.matched} brought it in {one.times} times, never of use: "
            "narrow the trigger, or say in `not_for` what is not meant"
        )
    if not found.proposals:
        click.echo("No threshold would have decided better. (At least 8 decisions of a topic must have a known use.)")
        return
    rows: list[tuple[object, ...]] = [
        (one.topic, one.known, f"{one.threshold:.2f}", f"{one.proposed:.2f}", *_change(one.before, one.after))
        for one in found.proposals
    ]
    rows.append(("all topics", found.known, "", "", *_change(found.before, found.after)))
    numbers = ("known", "threshold", "proposed")
    print_table(("topic", *numbers, "precision", "recall"), rows, right=numbers, title="Thresholds")
    if found.written:
        print_text(f"written: {', '.join(found.written)}")
    else:
        click.echo("Nothing is written. `topics tune --apply` puts them into the topics' files.")


def _change(before: Quality, after: Quality) -> list[str]:
    pairs = ((before.precision, after.precision), (before.recall, after.recall))
    return [f"{old:.2f} → {new:.2f}" for old, new in pairs]
