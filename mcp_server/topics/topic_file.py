"""Reads topic files: front matter and text become a `Topic`."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from mcp_server.errors import Invalid
from mcp_server.project import slugify
from mcp_server.text.markdown import marked_line, sections, without_comments
from mcp_server.topics import front_matter
from mcp_server.topics.front_matter import Checked
from mcp_server.topics.topic import KINDS, Topic
from mcp_server.topics.trigger_fields import TopicFields

LONGEST_DESCRIPTION = 1000


def parse_topic(path: str, text: str) -> tuple[Topic, tuple[str, ...]]:
    """Returns the topic of a file, and warnings. Raises Invalid naming file, line and field."""
    if (line := marked_line(text)) is not None:
        raise Invalid(f"{path}: line {line} begins an unresolved conflict; the topic is left out until that is mended")
    checked = front_matter.check(text, path)
    known = checked.known
    if not isinstance(known, TopicFields):
        line = checked.lines.get(("type",), 1)
        raise Invalid(
            f"{path}: line {line}: `type`: {known.type!r} is no topic; what lies in topics/ has `type: topic`"
        )
    named = known.name if known.name is not None else path.rsplit("/", 1)[-1].removesuffix(".md")
    name = slugify(named)
    if not name:
        line = checked.lines.get(("name",), 1)
        raise Invalid(f"{path}: line {line}: `name`: {named!r} has no letter or digit to know the topic by")
    triggers = tuple(one.made(checked.lines.get(("triggers", place), 1)) for place, one in enumerate(known.triggers))
    topic = Topic(
        name=name,
        path=path,
        instructions=checked.body,
        description=(known.description.strip() or _first_paragraph(checked.body))[:LONGEST_DESCRIPTION],
        keywords=known.keywords,
        triggers=triggers,
        subscriptions=known.subscriptions,
        activation=known.activation,
        priority=known.priority,
        max_context_kb=known.max_context_kb,
        similarity=known.similarity,
        similarity_threshold=known.similarity_threshold,
        not_for=known.not_for,
        first_line=checked.body_line,
        digest=hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
        extra=dict(known.model_extra or {}),
    )
    return topic, (*checked.warnings, *_misspelt(path, checked, known))


def _first_paragraph(body: str) -> str:
    """Returns the first paragraph under any heading on one line; without any, the first heading."""
    found = sections(without_comments(body))
    for section in found:
        text = section.text.partition("\n")[2] if section.level else section.text
        for paragraph in re.split(r"\n[ \t]*\n", text):
            if paragraph.strip():
                return " ".join(paragraph.split())
    return next((section.title for section in found if section.title), "")


def _misspelt(path: str, checked: Checked, known: TopicFields) -> Iterator[str]:
    """Yields a warning for each unknown field whose name is nearly a known one."""

    def near(steps: tuple[str | int, ...], given: Any, fields: list[str]) -> Iterator[str]:
        for key in given or ():
            close = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.8)
            if close:
                line = checked.lines.get((*steps, key), 1)
                yield f"{path}: line {line}: `{key}` means nothing here; did you mean `{close[0]}`?"

    yield from near((), known.model_extra, list(type(known).model_fields))
    for place, one in enumerate(known.triggers):
        yield from near(("triggers", place), one.model_extra, list(type(one).model_fields))


def describe_triggers(topic: Topic) -> str:
    """Returns the kinds of a topic's triggers in few words: `2 × pattern, cron`; `likeness` if it has none."""
    kinds = [KINDS[type(one)] for one in topic.triggers]
    counted = [f"{kinds.count(kind)} × {kind}" if kinds.count(kind) > 1 else kind for kind in dict.fromkeys(kinds)]
    return ", ".join(counted) or "likeness"
