"""`python -m mcp_server` and the command `context-manager-mcp`: the MCP server."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Serves, and exits with a code."""
    from mcp_server import set_up_process

    set_up_process()  # first of all: what is imported makes hundreds of thousands of objects, and none is garbage
    from mcp_server.serve import main as serve

    sys.exit(serve(sys.argv[1:], os.environ))


if __name__ == "__main__":
    # `-m` puts the folder where it was started first: one that has its own `tools/` would give us the wrong ones.
    if not sys.flags.safe_path:
        del sys.path[0]
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    main()
