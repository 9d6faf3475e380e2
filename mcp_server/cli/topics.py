"""`context-manager topics list|activate|deactivate|test`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from mcp_server.cli import shell
from mcp_server.context.try_message import Trial, try_message
from mcp_server.memory import Memory
from mcp_server.relevance.clarity import session_if_any, session_meant
from mcp_server.topics.gate_log import Quality, decisions
from mcp_server.topics.gate_log import tune as run
from mcp_server.topics.judge import Verdict
from mcp_server.topics.listing import Switched, TopicsView, list_topics, switch
from mcp_server.topics.topic import Direction

AROUND = 24
"""Characters of the message that are shown before and after what matched."""
MOST_OUT = 12
"""Number of topics shown that are not activated; --all shows every one."""


session_option = click.option("--session", help="In this conversation (default: the one with the latest message).")


@shell.group("topics", "topics list", "topics test 'write to the bank'", "topics tune --apply")
def topics_command() -> None:
    """List, try and tune the playbooks that are added automatically: the files in topics/."""


@topics_command.command("test")
@click.argument("message")
@click.option("--output", "as_output", is_flag=True, help="As if an agent had said it.")
@click.option("--file", "files", multiple=True, help="A file that the message's tools touched (for glob triggers).")
@click.option("--text", "show_text", is_flag=True, help="Also print the text that would be added.")
@click.option("--all", "show_all", is_flag=True, help="Show every topic that was considered.")
def test(message: str, as_output: bool, files: tuple[str, ...], show_text: bool, show_all: bool) -> None:
    """Show which topics MESSAGE would activate, and why. Writes nothing.

    If an LLM is configured, the gate asks it, as in a conversation.
    """
    direction: Direction = "output" if as_output else "input"
    found = shell.with_memory(lambda memory: try_message(memory, message, direction=direction, paths=files))
    if shell.printed_as_json(found):
        return
    shell.print_facts({"message": found.heard.text[:500]})
    shell.print_text("\n".join(_shown(found, show_all=show_all)))
    if found.items:
        rows = [(f"{one.tokens:,}" if one.included else "out", one.id, one.reason) for one in found.items]
        title = f"What would come into the context: {found.tokens:,} tokens"
        shell.print_table(("tokens", "what", "why"), rows, title=title, right=("tokens",))
    else:
        click.echo("\nNothing would come into the context.")
    if show_text and found.text:
        shell.print_text(f"\n{found.text}")


def _shown(found: Trial, *, show_all: bool) -> Iterator[str]:
    come = [one for one in found.verdicts if one.active]
    quiet = [one for one in found.verdicts if not one.active]
    total = len(found.verdicts) + found.others
    yield f"{len(come)} of {total} come in, {len(quiet)} were considered and stay out"
    for one in (*come, *(quiet if show_all else quiet[:MOST_OUT])):
        yield from _verdict(found.heard.text, one)
    if len(quiet) > MOST_OUT and not show_all:
        yield f"\n… and {len(quiet) - MOST_OUT} more that stay out (--all)"
    yield from (f"! {trouble.topic}: line {trouble.line}: {trouble.what}" for trouble in found.troubles)
    yield from (f"! {problem}" for problem in found.problems)


def _verdict(text: str, one: Verdict) -> Iterator[str]:
    mark = f"● {one.topic}  comes in" if one.active else f"○ {one.topic}  stays out"
    yield f"\n{mark}   {one.about.activation}, {one.about.priority}, {one.about.path}"
    for match in one.matches:
        line = f"   line {match.trigger.line}" if match.trigger.line else ""
        yield f"  tier 1  {match.kind.replace('_', ' ')} {_where(text, match.start, match.end) or match.said}{line}"
    if not one.matches:
        yield f"  tier 1  no trigger {'matched' if one.about.triggers else 'of its own'}"
    likeness = one.likeness
    made = " · ".join(f"{name} {value:.2f}" for name, value in likeness.terms.items()) or "no word in common"
    yield f"  tier 2  {one.about.similarity} {likeness.score:.3f}  threshold {one.threshold:g}   {made}"
    yield f"  tier 3  {one.routed.why}"
    if one.by == "arithmetic":
        terms = one.deliberation.terms.items()
        summed = " + ".join(f"{name} {value:.3f}" for name, value in terms if value).replace("+ meant -", "− meant ")
        yield f"          {one.why}   {summed}"
    elif one.by != "none":
        yield f"          {one.why}"


def _where(text: str, start: int, end: int) -> str:
    """Returns the match with a few characters around it; "" if it is not in the text."""
    before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    left, right = "…" * (start > AROUND), "…" * (end + AROUND < len(text))
    around = " ".join(f"{left}{before}[{text[start:end][:100]}]{after}{right}".split())
    return f"{around}   at {start}–{end}" if end else ""


@topics_command.command("list")
@session_option
def list_(session: str | None) -> None:
    """List the topics with their triggers and states."""

    async def ask(memory: Memory) -> TopicsView:
        return await list_topics(memory, await session_if_any(memory, session))

    found = shell.with_memory(ask)
    shell.print_result(found, found.markdown)


for verb, on, about in (
    ("activate", True, "Switch a topic on in a conversation, until you switch it off."),
    ("deactivate", False, "Switch a topic off in a conversation, whatever its triggers."),
):

    @topics_command.command(verb, help=about)
    @click.argument("name")
    @session_option
    def switch_(name: str, session: str | None, on: bool = on) -> None:
        async def act(memory: Memory) -> Switched:
            return await switch(memory, name, await session_meant(memory, session), on=on)

        done = shell.with_memory(act)
        shell.print_result(done, done.markdown)


USEFUL = {True: "yes", False: "no", None: ""}


@topics_command.command("log")
@click.option("--topic", help="Only of this topic.")
@click.option("--session", help="Only of this conversation.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of decisions."
)
def log(topic: str | None, session: str | None, limit: int) -> None:
    """List the last decisions about topics, newest first."""

    async def ask(memory: Memory) -> list[dict[str, Any]]:
        found = (
            line
            for line in decisions(memory)
            if topic in (None, line.get("topic_name")) and session in (None, line.get("session_id"))
        )
        return list(islice(found, limit))

    shell.print_list(
        shell.with_memory(ask),
        "No decision is logged. (`context-manager topics test MESSAGE` shows how decisions are made.)",
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
@shell.apply_option
def tune(apply: bool) -> None:
    """Propose thresholds that would have decided better.

    Writes nothing unless --apply is given.
    """
    found = shell.with_memory(lambda memory: run(memory, apply=apply))
    if shell.printed_as_json(found):
        return
    click.echo(f"{found.logged:,} decisions logged, {found.known:,} of them with a known use")
    if not found.proposals:
        click.echo("No threshold would have decided better. (At least 8 decisions of a topic must have a known use.)")
        return
    rows: list[tuple[object, ...]] = [
        (one.topic, one.known, f"{one.threshold:.2f}", f"{one.proposed:.2f}", *_change(one.before, one.after))
        for one in found.proposals
    ]
    rows.append(("all topics", found.known, "", "", *_change(found.before, found.after)))
    numbers = ("known", "threshold", "proposed")
    shell.print_table(("topic", *numbers, "precision", "recall"), rows, right=numbers, title="Thresholds")
    if found.written:
        shell.print_text(f"written: {', '.join(found.written)}")
    else:
        click.echo("Nothing is written. `topics tune --apply` puts them into the topics' files.")


def _change(before: Quality, after: Quality) -> list[str]:
    pairs = ((before.precision, after.precision), (before.recall, after.recall))
    return [f"{old:.2f} → {new:.2f}" for old, new in pairs]
