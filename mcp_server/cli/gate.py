"""`context-manager gate log|tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_table, print_text

if TYPE_CHECKING:
    from mcp_server.memory import Memory
    from mcp_server.topics.gate_tuning import GateTuning

USEFUL = {True: "yes", False: "no", None: ""}


@click.group("gate")
def command() -> None:
    """Which topics came in and which did not, whether it was of use, and what to change."""


@command.command("log")
@click.option("--topic", help="Only of this topic.")
@click.option("--session", help="Only of this conversation.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Most decisions shown.")
@json_option
def log(topic: str | None, session: str | None, limit: int, as_json: bool) -> None:
    """The last decisions, newest first: what matched, the score, who decided and why, and whether it was useful."""
    from mcp_server.topics.gate_log import decisions

    async def ask(memory: Memory) -> list[dict[str, Any]]:
        found = []
        for line in decisions(memory):
            if topic in (None, line.get("topic_name")) and session in (None, line.get("session_id")):
                found.append(line)
                if len(found) == limit:
                    break
        return found

    found = with_memory(ask)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No decision is logged. (`context-manager topics test MESSAGE` shows how one comes about)")
    else:
        rows = [
            (
                str(line.get("timestamp", ""))[:16].replace("T", " "),
                line.get("topic_name"),
                "in" if line.get("gate_result") else "out",
                f"{line.get('tier2_score') or 0:.3f}",
                ", ".join(line.get("matched") or ()) or "likeness",
                line.get("why"),
                USEFUL.get(line.get("was_useful"), ""),
            )
            for line in found
        ]
        print_table(("at (UTC)", "topic", "", "score", "matched", "why", "useful"), rows, right=("score",))


@command.command("tune")
@click.option("--apply", "apply_", is_flag=True, help="Write the proposed thresholds into the topics' files.")
@json_option
def tune(apply_: bool, as_json: bool) -> None:
    """Propose thresholds that would have decided better, from what is known of past decisions.

    Writes nothing unless --apply is given.
    """
    from mcp_server.topics.gate_tuning import tune as run

    async def ask(memory: Memory) -> GateTuning:
        return await run(memory, apply=apply_)

    found = with_memory(ask)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: GateTuning) -> None:
    click.echo(f"{found.logged:,} decisions logged, {found.known:,} of them with a known use")
    for one in found.nuisances:
        print_text(
            f"! {one.topic}: {one.matched} brought it in {one.times} times, never of use: "
            "narrow the trigger, or say in `not_for` what is not meant"
        )
    if not found.proposals:
        click.echo("No threshold would have decided better. (At least 8 decisions of a topic must have a known use.)")
        return
    rows = [
        (
            one.topic,
            one.known,
            f"{one.threshold:.2f}",
            f"{one.proposed:.2f}",
            f"{one.before.precision:.2f} → {one.after.precision:.2f}",
            f"{one.before.recall:.2f} → {one.after.recall:.2f}",
        )
        for one in found.proposals
    ]
    rows.append(
        (
            "all topics",
            found.known,
            "",
            "",
            f"{found.before.precision:.2f} → {found.after.precision:.2f}",
            f"{found.before.recall:.2f} → {found.after.recall:.2f}",
        )
    )
    numbers = ("known", "threshold", "proposed")
    print_table(("topic", *numbers, "precision", "recall"), rows, right=numbers, title="Thresholds")
    if found.written:
        print_text(f"written: {', '.join(found.written)}")
    else:
        click.echo("Nothing is written. `gate tune --apply` puts them into the topics' files.")
