"""Identifies projects: a raw key never changes, and a map in git gives each key a slug that people can rename."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from mcp_server.model import GLOBAL

_PREFIXES = ("name:", "git:", "root:", "dir:")
_SCP = re.compile(r"^(?:[^@/\s]+@)?(?P<host>[^:/\s]+):(?!//)(?P<path>.+)$")
_URL = re.compile(
    r"^[a-z][a-z0-9+.-]*://(?:[^/\s]*@)?(?P<host>\[[^\]]+\]|[^:/]+)(?::\d+)?/+(?P<path>.+)$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Project:
    """`key` is what a transcript keeps; `slug` what people and folders call it; `keys` all that the map counts as the
    same.

    The global project has the key GLOBAL, no slug and no keys.
    """

    key: str = GLOBAL
    slug: str | None = None
    keys: frozenset[str] = frozenset()

    @property
    def scope(self) -> frozenset[str]:
        """What passages of this project may carry as their project, without what is global."""
        return self.keys | {f"slug:{self.slug}"} if self.slug else frozenset()


def origin_key(url: str) -> str | None:
    """`git:host/path` of a remote: lower-case host, no scheme, user, port or `.git`. None for a remote that is a
    folder.

    >>> origin_key("ssh://git@GitHub.com:22/Ada/Engine.git")
    'git:github.com/Ada/Engine'
    """
    match = _URL.match(url.strip()) or (
        _SCP.match(url.strip()) if "://" not in url and not _is_windows_path(url) else None
    )
    if match is None or not match["host"] or url.lower().startswith("file:"):
        return None
    path = match["path"].strip("/").removesuffix(".git").strip("/")
    return f"git:{match['host'].lower()}/{path}" if path else None


def _is_windows_path(url: str) -> bool:
    return len(url) > 2 and url[1] == ":" and url[2] in "\\/"


def argument_key(argument: str) -> str:
    """The raw key of a project that the caller named: a full key as it is, anything else as a name."""
    argument = argument.strip()
    if not argument or argument == "global":
        return GLOBAL
    return argument if argument.startswith(_PREFIXES) else f"name:{argument}"


def slug_of(key: str, *, longest: int = 48) -> str:
    """A short lower-case ASCII name for a key: its last path component, without accents. Never empty."""
    tail = key.partition(":")[2].rstrip("/").rpartition("/")[2] if ":" in key else key
    return slugify(tail[:12] if key.startswith(("root:", "dir:")) else tail, longest=longest) or "project"


def shown_name(key: str) -> str:
    """What people are shown for a raw key: without its prefix, of a remote the last part. GLOBAL for none."""
    return slug_of(key) if key.startswith(_PREFIXES) else key


def slugify(text: str, *, longest: int = 48) -> str:
    """Lower-case ASCII words joined by `-`; empty if the text holds no letter or digit."""
    folded = unicodedata.normalize("NFKD", text.replace("đ", "dj").replace("Đ", "dj").replace("ß", "ss"))
    words = re.findall(r"[a-z0-9]+", folded.encode("ascii", "ignore").decode().lower())
    slug = ""
    for word in words:
        if slug and len(slug) + 1 + len(word) > longest:
            break
        slug = f"{slug}-{word}" if slug else word[:longest]
    return slug


def known_as(names: tuple[str, ...], keys: Mapping[str, str]) -> str | None:
    """The slug under which the map knows any of a folder's keys: a later `origin` joins what the root commit named."""
    return next((keys[name] for name in names if name in keys), None)


def free_slug(wanted: str, taken: frozenset[str]) -> str:
    """`wanted`, or `wanted-2`, `wanted-3` … if another project has it."""
    slug, number = wanted, 1
    while slug in taken:
        number += 1
        slug = f"{wanted}-{number}"
    return slug
