"""Where the workspace is, and whether our own packages are: known before anything else is loaded."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from mcp_server.errors import Unavailable

HOME_VARIABLE = "CONTEXT_MANAGER_HOME"


def resolve_workspace(option: Path | None, environ: Mapping[str, str]) -> Path:
    """The workspace's folder: the option, else CONTEXT_MANAGER_HOME, else ~/.context-manager. It may not exist yet.

    Raises Unavailable if that needs a home folder and the user has none.
    """
    named = environ.get(HOME_VARIABLE)
    chosen = option or Path(named or Path("~", ".context-manager"))
    try:
        return chosen.expanduser().absolute()
    except (RuntimeError, OSError) as error:  # a user whom the machine does not know; a working folder that is gone
        raise Unavailable(
            f"{chosen} is no folder that can be found here ({error}); name one with --workspace or {HOME_VARIABLE}"
        ) from error


def user_home() -> Path:
    """The user's home folder; the root of the file system for a user who has none, as in some containers."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.path.abspath(os.sep))  # noqa: PTH100 - the drive's root on Windows, too


def working_folder() -> str:
    """The folder that this process works in; the home folder if that one is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return str(user_home())


def check_neighbours() -> None:
    """Raises Unavailable if `tools`, `resources` or `prompts` are somebody else's: a folder of that name came first."""
    here = Path(__file__).resolve().parent.parent
    for name in ("tools", "resources", "prompts"):
        spec = importlib.util.find_spec(name)
        found = spec.origin if spec else None
        if found is None or Path(found).resolve().parent.parent != here:
            raise Unavailable(f"the package {name!r} comes from {found}, not from beside mcp_server; start elsewhere")
