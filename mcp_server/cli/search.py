"""`context-manager search`."""

from __future__ import annotations

from typing import Any, get_args

import click

from mcp_server.cli import shell
from mcp_server.conversations.projects import project_asked
from mcp_server.conversations.read import read
from mcp_server.memory import Memory
from mcp_server.model import Category
from mcp_server.search.search import SearchAnswer, SearchRequest, search

CATEGORIES = get_args(Category)


@shell.command(
    "search",
    "search pump seal",
    "search '\"winter berth\" -price since:2026-01-01'",
    "search boiler --session ses_1f2e",
)
@click.argument("query", nargs=-1, required=True)
@shell.limit_option(10, "Maximum number of passages.", 100)
@shell.choice_option(
    "--category", values=CATEGORIES, about=f"Only this kind of file: {', '.join(CATEGORIES)}.", metavar="CATEGORY"
)
@shell.choice_option(
    "--scope", values=["project", "all"], about="project: this project and global files.", default="all"
)
@shell.choice_option(
    "--mode", values=["hybrid", "keyword", "vector"], about="By words, by meaning, or both.", default="hybrid"
)
@click.option("--session", help="Only this conversation.")
@click.option("--project", help="Search for this project (default: that of the folder).")
@click.option("--since", help="Only passages from this date on.")
@click.option("--until", help="Only passages up to this date.")
def search_command(query: tuple[str, ...], project: str | None, **options: Any) -> None:
    """Find passages by words and meaning. QUERY may have "phrases", -without, category:journal, since:2026-01-31."""

    async def ask(memory: Memory) -> SearchAnswer:
        found = await project_asked(memory, shell.caller(), project)
        return await search(
            memory, SearchRequest(query=" ".join(query), project=found, **options), max_tokens=1_000_000
        )

    answer = shell.with_memory(ask, fresh=True)
    if shell.printed_as_json(answer):
        return
    for note in answer.notes:
        click.echo(note, err=True)
    if not answer.hits:
        click.echo("Nothing found.")
        return
    rows = []
    for place, (hit, snippet) in enumerate(zip(answer.hits, answer.snippets, strict=True), start=1):
        found = hit.passage
        lines = f"{found.start}" if found.end == found.start else f"{found.start}-{found.end}"
        where, when = f"{place}. {found.path}:{lines}", shell.moment(found.at)
        if found.turn:
            said = f"{found.speaker or found.role}: {snippet}"
            rows.append((f"{where} #{found.turn}", f"{hit.score:.3f}", when, said))
        else:
            rows.append((where, f"{hit.score:.3f}", when[:10], snippet))
    shell.print_table(("where", "score", "when", ""), rows, right=("score",), whole=("where",))


@shell.command("read", "read knowledge/memory/MEMORY.md", "read topics/email.md --at 2026-02-01")
@click.argument("path")
@click.option("--start", type=click.IntRange(1), help="First line.")
@click.option("--end", type=click.IntRange(1), help="Last line.")
@click.option("--at", help="As it was at a commit, a tag or a date.")
def read_command(path: str, start: int | None, end: int | None, at: str | None) -> None:
    """Print a file of the memory; PATH is as `search` shows it."""
    answer = shell.with_memory(lambda memory: read(memory, path, start, end, at, max_tokens=1_000_000))
    shell.print_result(answer, answer.markdown)
