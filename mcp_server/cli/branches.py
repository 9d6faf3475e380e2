"""What `explore merge` and `reconstruct merge` say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.printing import print_json

if TYPE_CHECKING:
    from mcp_server.history.merging import Joined

SHOWN_FILES = 20


def print_joined(name: str, done: Joined | None, as_json: bool) -> None:
    """What became of a branch that was merged; None: it had nothing of its own."""
    if as_json:
        print_json(done)
    elif done is None:
        click.echo(f"{name} had nothing of its own; it is gone")
    else:
        more = f" and {len(done.paths) - SHOWN_FILES} more files" if len(done.paths) > SHOWN_FILES else ""
        click.echo(f"merged as {done.commit[:10]}: {', '.join(done.paths[:SHOWN_FILES]) or 'no file changed'}{more}")
        for path in done.contested:
            click.echo(f"{path}: the same was edited here and there; both versions stand in it")
        if done.tag:
            click.echo(f"tagged {done.tag}; taken back file by file: context-manager recover PATH@{done.commit[:10]}~1")
