"""Imports an export into a memory, and kills itself when it has read a number of files: WORKSPACE EXPORT FILES."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio

from mcp_server.app import import_memory
from mcp_server.clients.importers import whole_memory
from mcp_server.home import workspace_option
from mcp_server.storage.whole import MovedFile


def main() -> None:
    read = whole_memory.Import.files

    def files(self: whole_memory.Import) -> Iterator[tuple[MovedFile, Iterator[bytes]]]:
        for number, found in enumerate(read(self)):
            if number == int(sys.argv[3]):
                os.kill(os.getpid(), signal.SIGKILL)
            yield found

    whole_memory.Import.files = files  # type: ignore[method-assign]
    anyio.run(import_memory, workspace_option(sys.argv[1]), os.environ, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
