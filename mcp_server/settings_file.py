"""`memory-config.yaml` and the environment: read into `Settings` knob by knob, and written with every default.

The file and `CONTEXT_MANAGER_<SECTION>__<KEY>` say what differs from the defaults. A wrong key or value never stops a
start: that knob keeps its default, and the problem is kept in `Settings.problems` for `status` and `doctor`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mcp_server.settings import SECTIONS, Section, Settings, sections_of

ENVIRONMENT_PREFIX = "CONTEXT_MANAGER_"
PAUSE_VARIABLE = "CONTEXT_MANAGER_PAUSE"
"""The one variable that switches off what is pushed, whatever the settings say."""


def read_settings(document: Mapping[str, Any], environ: Mapping[str, str], where: str) -> Settings:
    """Settings from a parsed YAML document and the environment; what is wrong in them ends up in `problems`."""
    problems: list[str] = []
    chosen: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for name, values in document.items():
        if name not in SECTIONS:
            problems.append(f"{where}: no section {name!r}{_nearest(str(name), SECTIONS)}; it is ignored")
        elif isinstance(values, Mapping):
            _choose(chosen[name], SECTIONS[name], values, f"{where}: {name}.", problems)
        elif values is not None:
            problems.append(f"{where}: {name} must hold keys and values, not {values!r}; its defaults are used")
    for variable, text in environ.items():
        section, *keys = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        if variable.startswith(ENVIRONMENT_PREFIX) and all(keys) and keys and section in SECTIONS:
            given: Any = text
            for key in reversed(keys[1:]):
                given = {key: given}
            where = f"{ENVIRONMENT_PREFIX}{section.upper()}__"
            _choose(chosen[section], SECTIONS[section], {keys[0]: given}, where, problems)
    if environ.get(PAUSE_VARIABLE, "").strip().lower() not in ("", "0", "false", "no", "off"):
        chosen["hooks"]["inject"] = False
    sections = {name: kind(**chosen[name]) for name, kind in SECTIONS.items()}
    return Settings.model_validate({**sections, "problems": tuple(problems)})


def _choose(
    chosen: dict[str, Any], kind: type[Section], values: Mapping[str, Any], where: str, problems: list[str]
) -> None:
    inner = sections_of(kind)
    for written, value in values.items():
        key = _known_as(str(written))
        field = kind.model_fields.get(key)
        if field is None:
            problems.append(f"{where}{written} is not a setting{_nearest(key, kind.model_fields)}; it is ignored")
        elif key in inner:
            if isinstance(value, Mapping):
                _choose(chosen.setdefault(key, {}), inner[key], value, f"{where}{key}.", problems)
            elif value is not None:
                problems.append(f"{where}{key} must hold keys and values, not {value!r}; its defaults are used")
        else:
            try:
                kind(**{key: value})
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                problems.append(f"{where}{key} = {value!r}: {reason}; the default {field.default!r} is used")
            else:
                chosen[key] = value


def _known_as(key: str) -> str:
    """A knob's name as we write it: S1 writes its own in capitals, and one of them in its own way."""
    return "importance_boost" if key == "IMPORTANCE_BOOT" else key.lower()


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f" (there are {', '.join(known)})"


def default_document() -> str:
    """`memory-config.yaml` as `init` writes it: every knob at its default, commented."""
    lines = ["# Settings of this memory. Every knob is here, at its default; change what you like.", ""]
    for name, kind in SECTIONS.items():
        lines += [*_block(name, kind, ""), ""]
    return "\n".join(lines)


def _block(name: str, kind: type[Section], indent: str) -> Iterator[str]:
    yield f"{indent}# {(kind.__doc__ or '').splitlines()[0]}"
    yield f"{indent}{name}:"
    inner = sections_of(kind)
    for key, field in kind.model_fields.items():
        if key in inner:
            yield from _block(key, inner[key], f"{indent}  ")
        else:
            value = TypeAdapter(Any).dump_json(field.default).decode().strip('"')
            yield f"{indent}  {f'{key}: {value}':<30} # {field.description}"
