"""Checks paths, which are relative to the workspace and valid on every system."""

from __future__ import annotations

import re

from mcp_server.errors import Refused

_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)


_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\:]")


def is_usable(name: str) -> bool:
    """Returns True if a file or folder of this name can be part of a path on every system."""
    forbidden = _FORBIDDEN.search(name) or _DEVICE.fullmatch(name) or name.endswith((".", " "))
    return not forbidden and len(name.encode()) <= 255


def parts_of(path: str) -> list[str]:
    """Returns the parts of a relative path that is valid on every system. Raises Refused for any other path."""
    if not path.strip():
        raise Refused("the path is empty; name a file inside the workspace, such as knowledge/memory/MEMORY.md")
    found = _FORBIDDEN.search(path)
    if found:
        raise Refused(
            f"{path!r} holds {found.group()!r}, which no path here may; use letters, digits, '-', '_', '.' and '/'"
        )
    if path.startswith(("/", "~")):
        raise Refused(f"{path!r} is absolute; give a path relative to the workspace")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for part in parts:
        if part == "..":
            raise Refused(f"{path!r} leaves the workspace ('..'); give a path inside it")
        if part.lower() == ".git":
            raise Refused(f"{path!r} leads into git's own folder; use the history tools instead")
        if _DEVICE.fullmatch(part) or part.endswith((".", " ")):
            raise Refused(f"{path!r} holds {part!r}, a name that Windows reserves; choose another one")
        if len(part.encode()) > 255:
            raise Refused(f"{part[:60]}… is too long for a file name; choose a shorter one")
    return parts
