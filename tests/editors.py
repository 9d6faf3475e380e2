"""Somebody who saves a file in an editor while the program works with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcp_server.storage.files import Files


def saves_first(
    patch: pytest.MonkeyPatch, files: Files, path: str, edited: Callable[[str], str], times: int = 1
) -> None:
    """Right before each of the program's next writes of a file, it is saved as `edited` changes it."""
    write, left = type(files).write_atomic, list(range(times))

    def late(files: Files, written: str, text: str, expected: str | None = None, *, new: bool = False) -> None:
        if written == path and left:
            left.pop()
            write(files, path, edited(files.read_text(path)))
        write(files, written, text, expected, new=new)

    patch.setattr(type(files), "write_atomic", late)
