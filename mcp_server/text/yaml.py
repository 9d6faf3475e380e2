"""Reads YAML 1.2 into plain values, and writes values on one line of YAML. Errors name the file and the line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from mcp_server.errors import Invalid

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_WORDS_OF_YAML = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
# In a JSON string these would end an HTML comment, be no UTF-8, be no YAML, or be invisible.
_UNWRITABLE = re.compile(r"[<>\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def is_plain(text: str) -> bool:
    """Returns whether `text` needs no quotes: it cannot be taken for a number, a date, a list or a YAML keyword."""
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS_OF_YAML


def yaml_line(value: object) -> str:
    """Returns `value` on one line: a plain word if it is unambiguous, else JSON, which is YAML as well."""
    if isinstance(value, datetime):
        return moment_text(value).replace(".000Z", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and is_plain(value):
        return value
    return json_line(value, spaced=True)


def json_line(value: object, *, spaced: bool = False) -> str:
    """Returns `value` as JSON on one line that is valid UTF-8 and safe inside an HTML comment."""
    separators = (", ", ": ") if spaced else (",", ":")
    text = json.dumps(value, ensure_ascii=False, separators=separators, default=_other)
    return _UNWRITABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def moment_text(moment: datetime) -> str:
    """Returns a time in UTC with milliseconds: 2026-02-16T18:45:00.000Z. One without a zone is taken as UTC."""
    return to_utc(moment).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def second_text(moment: datetime) -> str:
    """Returns a time in UTC in whole seconds: 2026-02-16T18:45:00Z."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def minute_text(moment: datetime) -> str:
    """Returns a time in UTC for people: 2026-02-16 18:45."""
    return f"{to_utc(moment):%Y-%m-%d %H:%M}"


def read_moment(value: object) -> datetime | None:
    """Returns a time, given as text or datetime, in UTC; None for anything else."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return to_utc(moment) if isinstance(moment, datetime) else None
    except (ValueError, OverflowError):  # OverflowError: its day in UTC lies before the year 1 or after 9999
        return None


def to_utc(moment: datetime) -> datetime:
    """Returns the same time in UTC; one without a zone is taken as UTC."""
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _other(value: object) -> str:
    return moment_text(value) if isinstance(value, datetime) else str(value)


LONGEST = 1_000_000
MOST_VALUES = 100_000
"""Values of one text, counted each time that an alias (`*name`) repeats them: ten lines can expand to billions."""

CACHED = 10_000
"""Up to this length in characters, texts are parsed once: a topic's fields are read by several rooms, 5 ms each."""

DEEPEST = 4
"""Depth down to which the lines of keys are recorded: no field of ours is deeper."""


def load(text: str, where: str, first_line: int = 1) -> dict[str, Any]:
    """Returns the fields of a YAML mapping; an empty text has none. `text` begins at line `first_line` of `where`.

    Raises Invalid naming file and line if the text is no YAML or no mapping, has a key twice, or expands to more than
    MOST_VALUES values by aliases.
    """
    return located(text, where, first_line)[0]


Step = str | int
"""A key of a mapping, or a position in a list."""

Lines = Mapping[tuple[Step, ...], int]
"""The line of every key and list entry, by the steps that lead to it."""


def located(text: str, where: str, first_line: int = 1) -> tuple[dict[str, Any], Lines]:
    """Returns the fields as `load` does, and the line of every key and list entry."""
    parse = _parsed if len(text) <= CACHED else _parsed.__wrapped__
    fields, lines = parse(text, where, first_line)
    return deepcopy(fields), lines


@lru_cache(maxsize=256)
def _parsed(text: str, where: str, first_line: int) -> tuple[dict[str, Any], Lines]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    if len(text) > LONGEST:
        raise Invalid(f"{where}: line {first_line}: over {LONGEST:,} characters of YAML; is a closing `---` missing?")
    try:
        yaml = YAML(typ="safe", pure=True)
        node = yaml.compose(text)
        value = None if node is None else yaml.constructor.construct_document(node)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark is not None else 0)
        what = str(error.problem or error.context or "no valid YAML").split("\n")[0]
        raise Invalid(f"{where}: line {line}: {what}") from error
    except Exception as error:  # a tag such as `!!bool x` makes the parser raise what its tables raise
        what = (str(error) or type(error).__name__).splitlines()[0]
        raise Invalid(f"{where}: line {first_line}: no valid YAML: {what}") from error
    if "*" in text and _values_in(value, {}) > MOST_VALUES:
        raise Invalid(f"{where}: line {first_line}: aliases repeat more than {MOST_VALUES:,} values; write them out")
    if value is None:
        return {}, {}
    if not isinstance(value, dict):
        raise Invalid(f"{where}: line {first_line}: must be `name: value` lines, not a {type(value).__name__}")
    lines: dict[tuple[Step, ...], int] = {}
    _note_lines(node, (), first_line, lines)
    return {str(key): entry for key, entry in value.items()}, lines


def _note_lines(node: Any, steps: tuple[Step, ...], first_line: int, lines: dict[tuple[Step, ...], int]) -> None:
    if len(lines) > MOST_VALUES or len(steps) > DEEPEST or not isinstance(node.value, list):
        return
    for place, entry in enumerate(node.value):
        pair = isinstance(entry, tuple)
        key, inner = entry if pair else (entry, entry)
        here = (*steps, str(key.value) if pair else place)
        lines[here] = first_line + key.start_mark.line
        _note_lines(inner, here, first_line, lines)


def _values_in(value: object, known: dict[int, int]) -> int:
    """Returns the number of values in a value, including itself; MOST_VALUES or more if it contains itself."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    if not inner:
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_VALUES  # what it counts as within itself
        known[id(value)] = 1 + sum(_values_in(each, known) for each in inner)
    return known[id(value)]
