"""Values on one line of YAML, as in our front matter: readable for any YAML parser and for people."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime

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
