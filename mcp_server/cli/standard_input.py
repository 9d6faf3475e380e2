"""Text that comes as an argument or through a pipe."""

from __future__ import annotations

import sys

import click

from mcp_server.errors import Invalid


def given_or_piped(argument: str | None, name: str) -> str:
    """`argument`, else all of stdin without the newline that `echo` puts at its end.

    Raises:
        click.UsageError: there is no argument and stdin is the keyboard.
        Invalid: what is piped in is not UTF-8.
    """
    if argument is not None and argument != "-":
        return argument
    if argument is None and sys.stdin.isatty():
        raise click.UsageError(
            f"Missing argument '{name}': give it, or pipe it in.", click.get_current_context(silent=True)
        )
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"stdin is not UTF-8 ({error.reason} at byte {error.start}); convert it first (iconv)") from None
    return text.removesuffix("\n").removesuffix("\r")
