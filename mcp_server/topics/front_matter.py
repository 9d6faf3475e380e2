"""Front matter of knowledge files: checks it against the file's type, and changes one field at a time.

Unknown fields are allowed and kept. An unknown type is a warning, a malformed field an error that names file, line and
field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mcp_server.errors import Invalid
from mcp_server.text.markdown import Lines, located, moment_of_field, split_front_matter, yaml_line
from mcp_server.text.prose import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

TOPICS = "topics/"

Moment = Annotated[datetime, BeforeValidator(lambda value: moment_of_field(value) or value)]
"""A time. People may also write a day, which means the start of that day."""


class KnowledgeFields(BaseModel):
    """The fields that every knowledge file may have."""

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
    "topic": KnowledgeFields,  # see `_topic_model`: its import takes longer than all others together
    "procedure": KnowledgeFields,
    "reference": KnowledgeFields,
}


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked file: its front matter (`fields` as written, `known` validated), body, warnings, and the line of each
    field in the file."""

    fields: dict[str, Any]
    known: KnowledgeFields
    body: str
    body_line: int
    warnings: tuple[str, ...] = ()
    lines: Lines = field(default_factory=dict)


def check(text: str, where: str) -> Checked:
    """Reads and checks the front matter of a knowledge file; a file without any is valid.

    Raises Invalid naming file, line and field. An unknown type is a warning.
    """
    found = split_front_matter(text)
    is_topic = where.startswith(TOPICS) or re.search(r"^type:[ \t]*['\"]?topic\b", found.raw, re.MULTILINE) is not None
    raw = found.raw
    if is_topic:
        from mcp_server.topics import topic_file

        raw = topic_file.as_entries(raw)
    fields, lines = located(raw, where, first_line=2) if raw else ({}, {})
    kind = fields.get("type", "topic" if is_topic else None)
    model = TYPES.get(kind, KnowledgeFields) if isinstance(kind, str) else KnowledgeFields
    if is_topic and kind == "topic":
        model = _topic_model()
        fields, lines = topic_file.taken_out(fields, lines)
    try:
        known = model.model_validate(fields)
    except ValidationError as error:
        raise Invalid(_error_message(error, where, lines)) from error
    warnings: tuple[str, ...] = ()
    if isinstance(kind, str) and kind not in TYPES:
        line = lines.get(("type",), 1)
        warnings = (
            f"{where}: line {line}: type {kind!r} is not one of {', '.join(TYPES)}; it is read as plain knowledge",
        )
    return Checked(fields, known, found.body, found.body_line, warnings, lines)


@cache
def _topic_model() -> type[KnowledgeFields]:
    """Returns the model of a topic file. Imports the triggers only when needed, because that takes long."""
    from mcp_server.topics.topic_file import TopicFields

    class Topic(TopicFields, KnowledgeFields):
        """The front matter of a topic file."""

    return Topic


def _error_message(error: ValidationError, where: str, lines: Lines) -> str:
    """Returns file, line, field and error in one sentence. The error's location also contains the trigger's type, which
    is not a key in the file and is left out."""
    problem = error.errors()[0]
    line = 1
    steps: tuple[str | int, ...] = ()
    part: list[str] = []
    for step in problem["loc"]:
        if (*steps, step) in lines:
            steps = (*steps, step)
            line = lines[steps]
            part.append(str(step))
        elif step == problem["loc"][-1]:
            part.append(str(step))
    said = {
        "union_tag_invalid": _unknown_type_message(problem),
        "union_tag_not_found": "a trigger needs a `type`: pattern, keywords, glob, …",
        "missing": "field required",
    }.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    silent = problem["type"] in ("missing", "union_tag_not_found", "union_tag_invalid")
    given = "" if silent else f", not {str(problem['input'])[:60]!r}"
    name = ".".join(part) or "front matter"
    return f"{where}: line {line}: `{name}`: {said[:1].lower()}{said[1:]}{given}"


def _unknown_type_message(problem: ErrorDetails) -> str:
    """Returns the message for an unknown `type` of a trigger; it suggests the nearest type."""
    told = problem.get("ctx", {})
    tag, known = str(told.get("tag")), re.findall(r"\w+", str(told.get("expected_tags")))
    hint = did_you_mean(tag, known) or f"; the types are {', '.join(known)}"
    return f"{tag!r} is not a type of trigger{hint}"


def with_field(text: str, name: str, value: object) -> str:
    """Returns `text` with front-matter field `name` set to `value` on one line; all other bytes stay the same.

    A new field is added at the end; a file without front matter gets a front matter. If the old value continues on
    further lines, these are removed; a comment at the end of the field's line stays.
    """
    field, found = f"{name}: {yaml_line(value)}", split_front_matter(text)
    end = "\r\n" if "\r\n" in text[: len(text) - len(found.body)] else "\n"
    if found.body_line == 1:
        return f"---{end}{field}{end}---{end}{end}{text}"
    lines = found.raw.splitlines(keepends=True)
    escaped = re.escape(name)
    field_line = re.compile(rf"(?:{escaped}|\"{escaped}\"|'{escaped}')[ \t]*:(?:[ \t\r\n]|$)")
    place = next((index for index, line in enumerate(lines) if field_line.match(line)), None)
    start = text.index(found.raw, 3) if found.raw else text.index("\n") + 1
    if place is None:
        raw = f"{found.raw}{field}{end}"
    else:
        after = place + 1
        while after < len(lines) and re.match(r"[ \t]+\S|-(?:[ \t]|\r?$)", lines[after]):
            after += 1
        comment = re.search(r"[ \t]+#[^\"'\]}]*?(?=\r?\n?$)", lines[place])
        ending = lines[place][len(lines[place].rstrip("\r\n")) :] or end
        fresh = f"{field}{comment.group() if comment else ''}{ending}"
        raw = "".join((*lines[:place], fresh, *lines[after:]))
    return text[:start] + raw + text[start + len(found.raw) :]
