"""`context-manager hook`, as the help shows it. What clients start goes past click, by `start.py`."""

from __future__ import annotations

import click


@click.command("hook")
@click.argument("event", required=False)
def command(event: str | None) -> int:
    """Answer a hook of a client: its input comes as JSON on stdin, its output goes to stdout.

    EVENT is SessionStart, UserPromptSubmit, PostToolUse, Stop, PreCompact, PostCompact or SessionEnd; without it the
    input says. It never fails: whatever is wrong, it prints nothing and exits 0. With CONTEXT_MANAGER_HOOK_DEBUG=1 in
    the environment it says on stderr why.
    """
    from mcp_server.clients.hooks import command as hook

    workspace = click.get_current_context().find_root().obj
    named = ["--workspace", str(workspace)] if workspace else []
    return hook.main([*([event] if event else []), *named])
