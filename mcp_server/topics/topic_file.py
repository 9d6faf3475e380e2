"""Reads topic files: front matter and text become a `Topic`."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from mcp_server.errors import Invalid
from mcp_server.model import slugify
from mcp_server.settings import is_schedule
from mcp_server.text.markdown import Lines, marked_line, sections, without_comments
from mcp_server.topics import front_matter
from mcp_server.topics.front_matter import Checked
from mcp_server.topics.topic import Activation, Method, Priority, Scope, Topic, Trigger

LONGEST_PATTERN = 2000
_LITERAL = re.compile(r"/(.*)/([a-z]*)", re.DOTALL)
_FLAGS = "imsx"


def _require(package: str, extra: str) -> None:
    """Raises ValueError, with the command that installs it, if a package of an extra is missing."""
    if find_spec(package) is None:
        raise ValueError(
            f"needs the package {package}, which is not installed (pip install 'context-manager-mcp[{extra}]')"
        )


def _listed(value: object) -> object:
    """Returns a single value as a list of one, and numbers as text."""
    values = value if isinstance(value, list) else [value]
    return tuple(str(one) if isinstance(one, int | float) else one for one in values)


Texts = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=500)], ...], BeforeValidator(_listed)]
Some = Annotated[Texts, Field(min_length=1)]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)


class _TextFields(_Fields):
    """The fields of all triggers on texts."""

    scope: Scope = "input"
    correction_hint: Annotated[str, Field(max_length=2000)] = ""


class Pattern(_TextFields):
    type: Literal["pattern"]
    match: Annotated[str, Field(min_length=1, max_length=LONGEST_PATTERN)]

    @field_validator("match")
    @classmethod
    def _compiles(cls, value: str) -> str:
        expression, flags = _expression_and_flags(value)
        unknown = set(flags) - set(_FLAGS)
        if unknown:
            raise ValueError(f"{''.join(sorted(unknown))!r} is not a flag of a pattern; the flags are i, m, s and x")
        import regex

        try:
            regex.compile(expression, flags=sum(int(getattr(regex, flag.upper())) for flag in set(flags)))
        except (regex.error, OverflowError, RecursionError) as error:
            raise ValueError(f"invalid regular expression: {str(error) or 'it is nested too deeply'}") from error
        return value


def _expression_and_flags(match: str) -> tuple[str, str]:
    """Returns expression and flags: `/…/flags` has its own flags, anything else ignores case."""
    literal = _LITERAL.fullmatch(match)
    return (literal[1], "".join(sorted(set(literal[2])))) if literal else (match, "i")


class Glob(_TextFields):
    type: Literal["glob"]
    match: Annotated[Some, Field(validation_alias=AliasChoices("match", "paths", "path"))]
    scope: Scope = "both"


class Keywords(_TextFields):
    type: Literal["keywords", "keyword"]
    match: Annotated[Some, Field(validation_alias=AliasChoices("match", "words", "keywords"))]
    at_least: Annotated[int, Field(ge=1, validation_alias=AliasChoices("at_least", "least", "min"))] = 1


class Code(_TextFields):
    type: Literal["code"]
    match: Annotated[Texts, Field(validation_alias=AliasChoices("match", "languages", "language"))] = ()
    scope: Scope = "both"


class Language(_TextFields):
    type: Literal["language"]
    match: Annotated[Some, Field(validation_alias=AliasChoices("match", "languages", "language"))]

    @field_validator("match")
    @classmethod
    def _codes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for code in value:
            if not re.fullmatch(r"[a-zA-Z]{2}", code):
                raise ValueError(f"{code!r} is not a language code of two letters, such as `de`")
        _require("py3langid", "language")
        return tuple(code.lower() for code in value)


class Mention(_TextFields):
    type: Literal["mention"]
    match: Annotated[Texts, Field(validation_alias=AliasChoices("match", "names", "name"))] = ()


class Url(_TextFields):
    type: Literal["url"]
    match: Annotated[Texts, Field(validation_alias=AliasChoices("match", "sites", "hosts", "host", "url"))] = ()


class SentimentShift(_TextFields):
    type: Literal["sentiment_shift"]
    at_least: Annotated[int, Field(ge=1, le=100, validation_alias=AliasChoices("at_least", "least", "min"))] = 1


Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[\w.:-]+$")]


class Webhook(_Fields):
    type: Literal["webhook"]
    source: Name
    event: Annotated[str, Field(max_length=100, pattern=r"^(?:\*|[\w.:-]*)$")] = ""


class Cron(_Fields):
    type: Literal["cron"]
    schedule: Annotated[str, Field(max_length=200)]

    @field_validator("schedule")
    @classmethod
    def _fires_at_some_time(cls, value: str) -> str:
        if not is_schedule(value):
            raise ValueError("must be a cron expression of five fields that comes true, such as '0 8 * * *'")
        return value


OneOf = Pattern | Glob | Keywords | Code | Language | Mention | Url | SentimentShift | Webhook | Cron
TriggerFields = Annotated[OneOf, Field(discriminator="type")]


def _trigger(fields: OneOf, line: int) -> Trigger:
    """Returns the trigger of these fields, which is on `line` of its file."""
    match fields:
        case Webhook():
            return Trigger("webhook", (fields.source,), event=fields.event.strip("*"), line=line)
        case Cron():
            return Trigger("cron", (" ".join(fields.schedule.split()),), line=line)
        case Pattern():
            expression, flags = _expression_and_flags(fields.match)
            found = Trigger("pattern", (expression,), flags)
        case Keywords():
            found = Trigger("keywords", fields.match, least=min(fields.at_least, len(fields.match)))
        case SentimentShift():
            found = Trigger("sentiment_shift", least=fields.at_least)
        case _:
            found = Trigger(fields.type, fields.match)
    return replace(found, scope=fields.scope, correction=" ".join(fields.correction_hint.split()), line=line)


def _as_list(value: object) -> object:
    return () if value is None else _listed(value) if isinstance(value, str) else value


class TopicFields(BaseModel):
    """The front-matter fields that only topic files have."""

    name: str | None = None
    description: str = ""
    keywords: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    triggers: Annotated[tuple[TriggerFields, ...], BeforeValidator(_as_list)] = ()
    subscriptions: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    activation: Activation = "gated"
    priority: Priority = "medium"
    max_context_kb: float | None = Field(None, gt=0)
    not_for: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    similarity: Method = "tfidf"
    similarity_threshold: float | None = Field(None, ge=0, le=1)

    @field_validator("similarity")
    @classmethod
    def _is_installed(cls, value: Method) -> Method:
        if value == "sentiment":
            _require("vaderSentiment", "sentiment")
        return value


OF_THE_TOPIC = ("similarity_threshold", "similarity", "activation")
"""Keys of the whole topic that people often write inside the list of triggers."""

_TRIGGERS = re.compile(r"^triggers:[ \t]*(?:#.*)?\r?\n((?:[ \t]+.*|-.*|[ \t]*)(?:\r?\n|\Z))*", re.MULTILINE)
_DASH = re.compile(r"^([ \t]*)-(?=[ \t])", re.MULTILINE)


def as_entries(raw: str) -> str:
    """Returns front matter in which a key of OF_THE_TOPIC between the entries of `triggers`, which is invalid YAML, is
    made an entry itself. Line numbers stay the same."""
    block = _TRIGGERS.search(raw)
    dash = _DASH.search(block[0]) if block else None
    if block is None or dash is None or not dash[1]:
        return raw
    keys = "|".join(OF_THE_TOPIC)
    mended = re.sub(rf"^{re.escape(dash[1])}(?=(?:{keys})[ \t]*:)", f"{dash[1]}- ", block[0], flags=re.MULTILINE)
    return raw[: block.start()] + mended + raw[block.end() :]


def taken_out(fields: dict[str, Any], lines: Lines) -> tuple[dict[str, Any], Lines]:
    """Moves the keys of OF_THE_TOPIC out of the list of triggers; fields that the file has outside the list take
    precedence. Returns the fields and their lines."""
    triggers = fields.get("triggers")
    if not isinstance(triggers, list):
        return fields, lines
    inside = {
        place: one
        for place, one in enumerate(triggers)
        if isinstance(one, dict) and one and not {*one} - {*OF_THE_TOPIC}
    }
    if not inside:
        return fields, lines
    left = [place for place in range(len(triggers)) if place not in inside]
    moved = {steps: line for steps, line in lines.items() if steps[:1] != ("triggers",) or len(steps) == 1}
    for new, old in enumerate(left):
        moved |= {("triggers", new, *steps[2:]): at for steps, at in lines.items() if steps[:2] == ("triggers", old)}
    hoisted: dict[str, Any] = {}
    for place, one in inside.items():
        hoisted |= one
        moved |= {(key,): lines[("triggers", place, key)] for key in one if (key,) not in lines}
    return {**hoisted, **fields, "triggers": [triggers[place] for place in left]}, moved


LONGEST_DESCRIPTION = 1000


def parse_topic(path: str, text: str) -> tuple[Topic, tuple[str, ...]]:
    """Returns the topic of a file, and warnings. Raises Invalid naming file, line and field."""
    if (line := marked_line(text)) is not None:
        raise Invalid(f"{path}: line {line} begins an unresolved conflict; the topic is not used until you resolve it")
    checked = front_matter.check(text, path)
    known = checked.known
    if not isinstance(known, TopicFields):
        line = checked.lines.get(("type",), 1)
        raise Invalid(
            f"{path}: line {line}: `type`: {known.type!r} is not a topic; files in topics/ must have `type: topic`"
        )
    named = known.name if known.name is not None else path.rsplit("/", 1)[-1].removesuffix(".md")
    name = slugify(named)
    if not name:
        line = checked.lines.get(("name",), 1)
        raise Invalid(f"{path}: line {line}: `name`: {named!r} must contain a letter or a digit")
    lines = [checked.lines.get(("triggers", place), 1) for place in range(len(known.triggers))]
    topic = Topic(
        name=name,
        path=path,
        instructions=checked.body,
        description=(known.description.strip() or _first_paragraph(checked.body))[:LONGEST_DESCRIPTION],
        keywords=known.keywords,
        triggers=tuple(map(_trigger, known.triggers, lines)),
        subscriptions=known.subscriptions,
        activation=known.activation,
        priority=known.priority,
        max_context_kb=known.max_context_kb,
        similarity=known.similarity,
        similarity_threshold=known.similarity_threshold,
        not_for=known.not_for,
        first_line=checked.body_line,
        digest=hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
    )
    return topic, (*checked.warnings, *_misspelt(path, checked, known))


def _first_paragraph(body: str) -> str:
    """Returns the first paragraph, on one line; if the text has only headings, the first heading."""
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
                yield f"{path}: line {line}: `{key}` is not a known field; did you mean `{close[0]}`?"

    yield from near((), known.model_extra, list(type(known).model_fields))
    for place, one in enumerate(known.triggers):
        yield from near(("triggers", place), one.model_extra, list(type(one).model_fields))
