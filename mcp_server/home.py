"""Where the workspace is, and whether our own packages are: known before anything else is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from mcp_server.errors import Unavailable

HOME_VARIABLE = "CONTEXT_MANAGER_HOME"


def resolve_workspace(option: Path | None, environ: Mapping[str, str]) -> Path:
    """The workspace's folder: the option, else CONTEXT_MANAGER_HOME, else ~/.context-manager. It may not exist yet."""
    named = environ.get(HOME_VARIABLE)
    chosen = option or (Path(named) if named else Path.home() / ".context-manager")
    return chosen.expanduser().absolute()


def check_neighbours() -> None:
    """Raises Unavailable if `tools`, `resources` or `prompts` are somebody else's: a folder of that name came first."""
    here = Path(__file__).resolve().parent.parent
    for name in ("tools", "resources", "prompts"):
        spec = importlib.util.find_spec(name)
        found = spec.origin if spec else None
        if found is None or Path(found).resolve().parent.parent != here:
            raise Unavailable(f"the package {name!r} comes from {found}, not from beside mcp_server; start elsewhere")
