"""`context-manager search`."""

from __future__ import annotations

from typing import Any, get_args

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import json_option, moment, print_json, print_table
from mcp_server.model import Category, Passage

CATEGORIES = get_args(Category)


@click.command("search")
@click.argument("query")
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Passages at most.")
@click.option("--category", type=click.Choice(CATEGORIES), help="Only this kind of file.")
@click.option(
    "--scope",
    type=click.Choice(["project", "all"]),
    default="all",
    show_default=True,
    help="project: this one and what is global.",
)
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "keyword", "vector"]),
    default="hybrid",
    show_default=True,
    help="By words, by meaning, or both.",
)
@click.option("--session", help="Only this conversation.")
@click.option("--project", help="As from this project (default: the folder's own).")
@click.option("--since", help="Only what is as new as this date.")
@click.option("--until", help="Only what is as old as this date.")
@json_option
def command(query: str, project: str | None, as_json: bool, **options: Any) -> None:
    """Find passages by words and meaning. QUERY knows "phrases", -without, category:journal, since:2026-01-31."""
    from mcp_server.conversations.projects import project_asked
    from mcp_server.memory import Memory
    from mcp_server.search.search import SearchAnswer, SearchRequest, search

    async def ask(memory: Memory) -> SearchAnswer:
        found = await project_asked(memory, caller(), project)
        return await search(memory, SearchRequest(query=query, project=found, **options), max_tokens=1_000_000)

    answer = with_memory(ask, fresh=True)
    if as_json:
        print_json(answer)
        return
    for note in answer.notes:
        click.echo(note, err=True)
    if not answer.hits:
        click.echo("Nothing found.")
        return
    rows = [
        (f"{place}. {_where(hit.passage)}", f"{hit.score:.3f}", _when(hit.passage), _said(hit.passage) + snippet)
        for place, (hit, snippet) in enumerate(zip(answer.hits, answer.snippets, strict=True), start=1)
    ]
    print_table(("where", "score", "when", ""), rows, right=("score",), whole=("where",))


def _where(passage: Passage) -> str:
    turn = f" #{passage.turn}" if passage.turn else ""
    lines = f"{passage.start}" if passage.end == passage.start else f"{passage.start}-{passage.end}"
    return f"{passage.path}:{lines}{turn}"


def _when(passage: Passage) -> str:
    """A turn's minute; of files only the day is known."""
    return moment(passage.at) if passage.turn else moment(passage.at)[:10]


def _said(passage: Passage) -> str:
    return f"{passage.speaker or passage.role}: " if passage.turn else ""
