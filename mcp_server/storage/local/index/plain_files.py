"""Reads files of the workspace for the search index."""

from __future__ import annotations

import stat
import time

from mcp_server.errors import ContextManagerError
from mcp_server.storage.index.file_reader import FileContent, IndexedFile, read_content
from mcp_server.storage.local.files import WorkspaceFiles


def read_file(files: WorkspaceFiles, path: str, known: IndexedFile | None) -> FileContent:
    """Reads a file and splits it into passages. Never raises.

    A symbolic link, and anything but a plain file, counts as gone: a link in somebody's commit may lead to `.local/`,
    and reading a pipe never ends.
    """
    looked_ns = time.time_ns()
    try:
        place = files.resolve(path)
        about = place.stat()
        if not stat.S_ISREG(about.st_mode) or files.relative(path) != path:
            return FileContent(path, gone=True)
        data = place.read_bytes()
    except FileNotFoundError:
        return FileContent(path, gone=True)
    except (OSError, ContextManagerError) as error:
        return FileContent(path, looked_ns=looked_ns, problem=f"{path}: cannot be read ({error})", size=-1)
    return read_content(path, data, about.st_size, about.st_mtime_ns, looked_ns, known)
