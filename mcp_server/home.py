"""Where the workspace is, and whether our own packages are: known before anything else is loaded."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mcp_server.errors import Unavailable

HOME_VARIABLE = "CONTEXT_MANAGER_HOME"

ADDRESSES = ("postgresql://", "postgres://")


def workspace_option(text: str) -> Path | str:
    """Returns what a user gave as a workspace: the address of a team's memory as text, anything else as a path."""
    return text if text.startswith(ADDRESSES) else Path(text)


def team_address(option: Path | str | None, environ: Mapping[str, str]) -> str | None:
    """Returns the address of a team's memory, if the option or else CONTEXT_MANAGER_HOME is one."""
    chosen = option or environ.get(HOME_VARIABLE)
    return chosen if isinstance(chosen, str) and chosen.startswith(ADDRESSES) else None


def address_of(address: str, workspace: str) -> str:
    """Returns the address of another workspace in the same database."""
    parts = urlsplit(address)
    options = [(name, value) for name, value in parse_qsl(parts.query) if name != "workspace"]
    return urlunsplit(parts._replace(query=urlencode([*options, ("workspace", workspace)])))


def resolve_workspace(option: Path | str | None, environ: Mapping[str, str]) -> Path:
    """The workspace's folder: the option, else CONTEXT_MANAGER_HOME, else ~/.context-manager. It may not exist yet.

    Raises Unavailable if that needs a home folder and the user has none, or if the memory is in no folder.
    """
    if team_address(option, environ):
        raise Unavailable("the memory is on PostgreSQL, and this needs one in a folder of this machine (docs/team.md)")
    option = Path(option) if isinstance(option, str) else option
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
