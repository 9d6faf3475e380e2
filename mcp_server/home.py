"""Finds the workspace, and checks that the packages `tools`, `resources` and `prompts` are this project's. Imports
nothing heavy."""

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
    """Returns a user's workspace option: the address of a team's memory as text, anything else as a path."""
    return text if text.startswith(ADDRESSES) else Path(text)


def team_address(option: Path | str | None, environ: Mapping[str, str]) -> str | None:
    """Returns the address of a team's memory if the option, or else CONTEXT_MANAGER_HOME, is one; otherwise None."""
    chosen = option or environ.get(HOME_VARIABLE)
    return chosen if isinstance(chosen, str) and chosen.startswith(ADDRESSES) else None


def address_of(address: str, workspace: str) -> str:
    """Returns the address of another workspace in the same database."""
    parts = urlsplit(address)
    options = [(name, value) for name, value in parse_qsl(parts.query) if name != "workspace"]
    return urlunsplit(parts._replace(query=urlencode([*options, ("workspace", workspace)])))


def resolve_workspace(option: Path | str | None, environ: Mapping[str, str]) -> Path:
    """Returns the workspace's folder: the option, else CONTEXT_MANAGER_HOME, else ~/.context-manager. It may not exist
    yet.

    Raises Unavailable if the memory is on PostgreSQL, or if the home or working folder that the path needs is missing.
    """
    if team_address(option, environ):
        raise Unavailable(
            "the memory is on PostgreSQL, but this works only with a memory in a folder of this machine (docs/team.md)"
        )
    option = Path(option) if isinstance(option, str) else option
    named = environ.get(HOME_VARIABLE)
    chosen = option or Path(named or Path("~", ".context-manager"))
    try:
        return chosen.expanduser().absolute()
    except (RuntimeError, OSError) as error:  # an unknown user, or a deleted working folder
        raise Unavailable(
            f"the folder {chosen} cannot be resolved ({error}); set another one with --workspace or {HOME_VARIABLE}"
        ) from error


def user_home() -> Path:
    """Returns the user's home folder; for a user without one, as in some containers, the root of the file system."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.path.abspath(os.sep))  # noqa: PTH100 - the drive's root on Windows, too


def working_folder() -> str:
    """Returns the working folder of this process, or the home folder if the working folder was deleted."""
    try:
        return str(Path.cwd())
    except OSError:
        return str(user_home())


def check_neighbours() -> None:
    """Raises Unavailable if Python finds another package named `tools`, `resources` or `prompts` before ours."""
    here = Path(__file__).resolve().parent.parent
    for name in ("tools", "resources", "prompts"):
        spec = importlib.util.find_spec(name)
        found = spec.origin if spec else None
        if found is None or Path(found).resolve().parent.parent != here:
            raise Unavailable(
                f"Python finds the package {name!r} at {found}, not in {here}; start the program in another folder"
            )
