"""Links in a message, and whether they lead to a site that a trigger names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

_URL = re.compile(r"\b(?:https?://|www\.)[^\s<>\"'`|\\^{}]+", re.IGNORECASE)
_TRAILING = ".,;:!?*_…"


@dataclass(frozen=True, slots=True)
class Url:
    """A link as written, in characters `start` to `end`; `host` in lower case without port, `path` with its query."""

    text: str
    host: str
    path: str
    start: int
    end: int


def urls(text: str) -> Iterator[Url]:
    """The links of a text in order. Punctuation and brackets that close a sentence around one are not part of it."""
    if "://" not in text and "www." not in text.lower():
        return
    for match in _URL.finditer(text):
        said = match[0].rstrip(_TRAILING)
        while said and said[-1] in ")]" and said.count(said[-1]) > said.count("(["[")]".index(said[-1])]):
            said = said[:-1].rstrip(_TRAILING)
        rest = said.split("://", 1)[-1]
        host, slash, path = rest.partition("/")
        host = host.rpartition("@")[2].partition(":")[0].partition("?")[0].partition("#")[0].lower()
        if "." in host or host == "localhost":
            yield Url(said, host, slash + path, match.start(), match.start() + len(said))


def hosts(url: Url) -> Iterator[str]:
    """The hosts by which a site may be named that a link leads to: its own, and those above it."""
    host = url.host.removeprefix("www.")
    while host:
        yield host
        host = host.partition(".")[2]


def host_of(site: str) -> str:
    """The host that a site names, lower case; empty for one with a `*` in it."""
    host = site.split("://", 1)[-1].partition("/")[0].lower().removeprefix("www.")
    return "" if "*" in host or "?" in host or "[" in host else host


def leads_to(url: Url, site: str) -> bool:
    """`github.com` means the host and what is below it, `github.com/*/*/pull/` also how the path begins; `*` stands for
    anything within one step."""
    host, slash, path = site.split("://", 1)[-1].partition("/")
    host = host.lower().removeprefix("www.")
    here = url.host.removeprefix("www.")
    if not (here == host or here.endswith(f".{host}") or fnmatchcase(here, host)):
        return False
    if not slash:
        return True
    wanted = path.strip("/").lower().split("/") if path.strip("/") else []
    steps = re.split(r"[?#]", url.path, maxsplit=1)[0].strip("/").lower().split("/")
    return len(steps) >= len(wanted) and all(fnmatchcase(step, want) for step, want in zip(steps, wanted, strict=False))
