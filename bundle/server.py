"""What Claude Desktop starts: the server, from the wheel in `dist/`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from mcp_server.__main__ import main

if __name__ == "__main__":
    if not sys.argv[-1] or "${" in sys.argv[-1]:  # the user has chosen no folder: the default one
        del sys.argv[1:]
    with contextlib.suppress(OSError):
        os.chdir(Path.home())  # uv started us in the bundle's folder, which is nobody's project
    main()
