"""A transcript's front matter. Every field has one line, so that setting a field moves no other line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from mcp_server.errors import Invalid
from mcp_server.model import Delivery, Kind, KnowledgeChange, TranscriptHead, slugify
from mcp_server.text.markdown import is_plain, moment_text, read_moment, yaml_line
from mcp_server.text.prose import clipped

LONGEST = 60


def title_of(content: str) -> str:
    """Returns at most 60 characters of the first line with words, cut at a word; `Conversation` if there is none."""
    for line in content[:4000].splitlines():
        words = " ".join(re.sub(r"^[#>*\-\s`]+", "", "".join(c if c.isprintable() else " " for c in line)).split())
        if re.search(r"\w", words):
            return clipped(words, LONGEST)
    return "Conversation"


def slug_of_title(title: str) -> str:
    """Returns the title as part of a file name."""
    return slugify(title, longest=40) or "conversation"


_FIELDS = (
    *("session_id", "started", "ended", "model", "channel", "topic", "tags", "tokens_in", "tokens_out"),
    *("knowledge_changes", "project", "kind", "delivery", "continues", "timezone"),
)
"""The fields of a transcript's front matter, in the order in which they are written."""


def render_front_matter(head: TranscriptHead) -> str:
    """Returns the fields between their fences, each on one line, unknown ones (`extra`) last."""
    changes = [
        {"path": change.path, "action": change.action, "summary": change.summary, "at": moment_text(change.at)}
        for change in head.knowledge_changes
    ]
    fields: dict[str, object] = {name: getattr(head, name) for name in _FIELDS} | {"knowledge_changes": changes}
    for name, value in (head.extra or {}).items():
        fields.setdefault(name, value)
    return "---\n" + "".join(f"{yaml_line(name)}: {yaml_line(value)}\n" for name, value in fields.items()) + "---\n"


_FIELD = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*): (.+)")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")


def own_fields(raw: str) -> dict[str, object] | None:
    """Returns the fields of a front matter in the form of `render_front_matter`, without a YAML parser; None for
    another form."""
    fields: dict[str, object] = {}
    for line in raw.splitlines():
        if line == "#":
            continue
        found = _FIELD.fullmatch(line)
        if found is None:
            return None
        name, value = found.groups()
        if value[0] in '"[{' or value in ("null", "true", "false") or _NUMBER.fullmatch(value):
            try:
                fields[name] = json.loads(value)
            except (ValueError, RecursionError):
                return None
        elif _TIME.fullmatch(value) or is_plain(value):
            fields[name] = value
        else:
            return None
    return fields


def head_from_fields(fields: Mapping[str, object], where: str, title: str) -> TranscriptHead:
    """Returns the head with these fields; unknown ones are in `extra`. Raises Invalid naming file and field."""

    def read(name: str, wanted: str, convert: Callable[[Any], Any]) -> Any:
        """Returns the converted field; None without one. `convert` returns None for a value that is not `wanted`."""
        value = fields.get(name)
        found = None if value is None else convert(value)
        if found is None and (value is not None or name in ("session_id", "started")):
            raise Invalid(f"{where}: `{name}` must be {wanted}, not {value!r}")
        return found

    def text(name: str) -> Any:
        return read(name, "text", _as_text)

    def one_of(name: str, allowed: tuple[str, ...]) -> Any:
        return read(name, " or ".join(allowed), lambda value: value if value in allowed else None) or allowed[0]

    started = read("started", _A_TIME, read_moment)
    changes = read("knowledge_changes", "a list of {path, action, summary}", lambda value: _as_list(value, Mapping))
    return TranscriptHead(
        session_id=read("session_id", "the session's id", lambda value: _as_text(value) or None),
        started=started,
        title=title,
        slug="",
        project=text("project") or "",
        kind=one_of("kind", get_args(Kind)),
        delivery=one_of("delivery", get_args(Delivery)),
        timezone=text("timezone") or "UTC",
        ended=read("ended", _A_TIME, read_moment),
        model=text("model"),
        channel=text("channel"),
        topic=text("topic"),
        tags=tuple(map(str, read("tags", "a list", lambda value: _as_list(value, object)) or ())),
        tokens_in=read("tokens_in", _A_COUNT, _as_count) or 0,
        tokens_out=read("tokens_out", _A_COUNT, _as_count) or 0,
        knowledge_changes=tuple(
            KnowledgeChange(
                path=str(change.get("path", "")),
                action=str(change.get("action", "")),
                summary=str(change.get("summary", "")),
                at=read_moment(change.get("at")) or started,
            )
            for change in changes or ()
        ),
        continues=text("continues"),
        extra={name: value for name, value in fields.items() if name not in _FIELDS} or None,
    )


_A_TIME, _A_COUNT = "a time such as 2026-02-16T18:45:00Z", "a number, 0 or more"


def _as_text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) else None


def _as_count(value: object) -> int | None:
    value = value or 0
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _as_list(value: object, kind: type) -> list[Any] | None:
    value = value or []
    return value if isinstance(value, list) and all(isinstance(one, kind) for one in value) else None


_SAFE_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")


def file_id(session_id: str) -> str:
    """Returns the id in a form that is safe in a file name. If the id has to be changed, six digits of its hash are
    added."""
    if _SAFE_ID.fullmatch(session_id):
        return session_id
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", session_id).strip("-_")[:50].strip("-_")
    return f"{safe}-{digest}" if safe else digest


def stem_of(path: str) -> str:
    """Returns a transcript's name without folders and suffix; other files refer to the transcript by it."""
    return path.rsplit("/", 1)[-1].removesuffix(".md")


def slug_in(path: str, session_id: str) -> str:
    """Returns the words in the name of a session's transcript."""
    name = stem_of(path)
    _, found, slug = name.partition(f"-{file_id(session_id)}-")
    return slug if found else name
