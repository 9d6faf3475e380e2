"""`context-manager compile`."""

from __future__ import annotations

import sys

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import json_option, print_json


@click.command("compile")
@click.argument("message", required=False)
@click.option("--session", help="The conversation that the message belongs to.")
@click.option("--project", help="As from this project (default: the session's, else the folder's own).")
@click.option("--budget", type=int, help="Tokens (default: context_compiler.token_budget).")
@click.option("--explain", is_flag=True, help="Show where the budget went, what is in, what is out and why.")
@json_option
def command(
    message: str | None, session: str | None, project: str | None, budget: int | None, explain: bool, as_json: bool
) -> None:
    """Print the context for MESSAGE, exactly; without one, for the session's last user turn."""
    from mcp_server.context.compile import CompileRequest, compile_context
    from mcp_server.context.compiler import Compiled
    from mcp_server.memory import Memory

    request = CompileRequest(message=message, session=session, project=project, budget=budget, strict=True, known=True)

    async def act(memory: Memory) -> Compiled:
        return await compile_context(memory, request, caller())

    compiled = with_memory(act, fresh=True)
    if as_json:
        receipt = compiled.receipt.to_json()
        print_json({"text": compiled.text, "sha256": compiled.sha256, "tokens": compiled.tokens, "receipt": receipt})
    elif explain:
        from mcp_server.cli.explain import show

        show(compiled.receipt.to_json(), message or "")
    else:
        sys.stdout.buffer.write(compiled.text.encode("utf-8", "replace"))  # bytes: Windows would change the line ends
        sys.stdout.buffer.flush()
        if sys.stdout.isatty():  # exact to the byte in a pipe; on a terminal the prompt gets a line of its own
            click.echo()
