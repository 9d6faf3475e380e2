"""`python -m mcp_server` and the command `context-manager-mcp`: the MCP server."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Runs the server, and exits with its exit code."""
    from mcp_server import set_up_process

    set_up_process()  # first: the imports below make hundreds of thousands of objects, none of which is garbage
    from mcp_server.serve import main as serve

    sys.exit(serve(sys.argv[1:], os.environ))


if __name__ == "__main__":
    # `python -m` puts the working folder first on `sys.path`; a folder `tools/` in it would hide ours.
    if not sys.flags.safe_path:
        del sys.path[0]
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    main()
