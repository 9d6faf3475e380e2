"""Front matter of knowledge files: checked against what each type may say (S4 §2.3), changed one field at a time.

Unknown fields are allowed and kept, an unknown type is a warning, a malformed field an error naming file, line, field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mcp_server.core.text.markdown import split_front_matter
from mcp_server.errors import Invalid
from mcp_server.store.yaml_text import dump_line, load


def _moment(value: object) -> object:
    """People write a day where the format wants a moment: then the day begins."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return datetime.combine(date.fromisoformat(value), time(), UTC)
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


Moment = Annotated[datetime, BeforeValidator(_moment)]


class KnowledgeFields(BaseModel):
    """What every knowledge file may say of itself."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str | None = None
    updated: Moment | None = None
    tags: tuple[str, ...] = ()


class Identity(KnowledgeFields):
    role: Literal["soul", "user", "rules", "tools"]


class MemoryFile(KnowledgeFields):
    line_count: int | None = Field(None, ge=0)


class Journal(KnowledgeFields):
    date: date
    sessions: tuple[str, ...] = ()


class ProjectFile(KnowledgeFields):
    project: str | None = None


class Person(KnowledgeFields):
    name: str | None = None
    relationship: str | None = None


class Topic(KnowledgeFields):
    triggers: tuple[dict[str, Any], ...] = ()
    subscriptions: tuple[str, ...] = ()
    activation: Literal["auto", "gated", "manual"] = "gated"
    priority: Literal["low", "medium", "high", "critical"] = "medium"
    max_context_kb: float | None = Field(None, gt=0)


TYPES: dict[str, type[KnowledgeFields]] = {
    "identity": Identity,
    "memory": MemoryFile,
    "journal": Journal,
    "project_index": KnowledgeFields,
    "project_context": ProjectFile,
    "project_progress": ProjectFile,
    "project_notes": ProjectFile,
    "person": Person,
    "person_index": KnowledgeFields,
    "topic": Topic,
    "procedure": KnowledgeFields,
    "reference": KnowledgeFields,
}


@dataclass(frozen=True, slots=True)
class Checked:
    """A file's front matter (`fields` as written, `known` as understood), its body, and what is odd about it."""

    fields: dict[str, Any]
    known: KnowledgeFields
    body: str
    body_line: int
    warnings: tuple[str, ...] = ()


def check(text: str, where: str) -> Checked:
    """Reads and checks the front matter of a knowledge file; a file without any is fine.

    Raises Invalid naming file, line and field. A type that we do not know is a warning.
    """
    found = split_front_matter(text)
    fields = load(found.raw, where, first_line=2) if found.raw else {}
    kind = fields.get("type")
    model = TYPES.get(kind, KnowledgeFields) if isinstance(kind, str) else KnowledgeFields
    try:
        known = model.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0]) if problem["loc"] else "front matter"
        line = _line_of(found.raw, name)
        part = ".".join(str(step) for step in problem["loc"]) or name
        given = "" if problem["type"] == "missing" else f", not {str(problem['input'])[:60]!r}"
        raise Invalid(
            f"{where}: line {line}: `{part}`: {problem['msg'][:1].lower()}{problem['msg'][1:]}{given}"
        ) from error
    warnings: tuple[str, ...] = ()
    if isinstance(kind, str) and kind not in TYPES:
        line = _line_of(found.raw, "type")
        warnings = (
            f"{where}: line {line}: type {kind!r} is not one of {', '.join(TYPES)}; it is read as plain knowledge",
        )
    return Checked(fields, known, found.body, found.body_line, warnings)


def with_field(text: str, name: str, value: object) -> str:
    """`text` with front-matter field `name` set to `value`, on one line, and every other byte as it was.

    A field that is not there becomes the last one; a file without front matter gets one. Block values below the old
    line go with it; a comment at its end stays.
    """
    found = split_front_matter(text)
    end = "\r\n" if "\r\n" in text[: len(text) - len(found.body)] else "\n"
    if found.body_line == 1:
        return f"---{end}{name}: {dump_line(value)}{end}---{end}{end}{text}"
    lines = found.raw.splitlines(keepends=True)
    place = next((index for index, line in enumerate(lines) if _is_field(line, name)), None)
    start = text.index(found.raw, 3) if found.raw else text.index("\n") + 1
    if place is None:
        raw = found.raw + f"{name}: {dump_line(value)}{end}"
    else:
        after = place + 1
        while after < len(lines) and re.match(r"[ \t]+\S|-(?:[ \t]|\r?$)", lines[after]):
            after += 1
        comment = re.search(r"[ \t]+#[^\"'\]}]*?(?=\r?\n?$)", lines[place])
        ending = lines[place][len(lines[place].rstrip("\r\n")) :] or end
        fresh = f"{name}: {dump_line(value)}{comment.group() if comment else ''}{ending}"
        raw = "".join((*lines[:place], fresh, *lines[after:]))
    return text[:start] + raw + text[start + len(found.raw) :]


def _is_field(line: str, name: str) -> bool:
    return (
        re.match(rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')[ \t]*:(?:[ \t\r\n]|$)", line)
        is not None
    )


def _line_of(raw: str, name: str) -> int:
    """The line of the file on which field `name` stands; that of the opening fence if it is missing."""
    return next((number for number, line in enumerate(raw.splitlines(), start=2) if _is_field(line, name)), 1)
