"""`context-manager doctor`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_table


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Check this machine: Python, SQLite, git, embedder, tokenizer, disk. Exit 1 if something is missing."""
    from mcp_server.actions.doctor import examine

    checks = with_memory(examine)
    if as_json:
        print_json(checks)
    else:
        rows = [("ok" if check.ok else "NO", check.name, check.detail, check.advice) for check in checks]
        print_table(("", "what", "found", "what to do"), rows)
    if not all(check.ok for check in checks):
        click.get_current_context().exit(1)
