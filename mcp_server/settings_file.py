"""Reads `Settings` of a workspace from its settings files and the environment, and writes the files with every default.

`memory-config.yaml` belongs to the memory and is shared with it. `.local/settings.yaml` belongs to this machine: it may
have any setting, and those in `settings.MACHINE` are read only from there. `CONTEXT_MANAGER_<SECTION>__<KEY>` overrides
both. An unknown key or invalid value never prevents a start: the setting keeps its default, and `Settings.problems`
describes the problem for `status` and `doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter, ValidationError

from mcp_server.errors import Invalid
from mcp_server.settings import (
    MACHINE_FILE,
    SECTIONS,
    Section,
    Settings,
    belongs_to_machine,
    machine_settings,
    sections_of,
    split_document,
)
from mcp_server.storage.files import SETTINGS, Files
from mcp_server.storage.git_process import ask_git
from mcp_server.storage.values import LOCAL
from mcp_server.text.markdown import load
from mcp_server.text.prose import did_you_mean

ENVIRONMENT_PREFIX = "CONTEXT_MANAGER_"
PAUSE_VARIABLE = "CONTEXT_MANAGER_PAUSE"
"""The variable that switches pushing off, overriding all settings."""


def read_settings(
    document: Mapping[str, Any], environ: Mapping[str, str], where: str, machine: Mapping[str, Any] | None = None
) -> Settings:
    """Returns the settings of the memory's file (`document`, called `where`), this machine's file and the environment.

    The environment overrides this machine's file, which overrides `document`. `problems` describe errors, and settings
    of `document` that are ignored because they belong to the machine.
    """
    problems: list[str] = []
    chosen: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    shared, _ = split_document(document)
    for place, values in ((where, shared), (MACHINE_FILE, machine or {})):
        _choose_sections(chosen, values, place, problems)
    for variable, text in environ.items():
        section, *keys = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        if variable.startswith(ENVIRONMENT_PREFIX) and all(keys) and keys and section in SECTIONS:
            given: Any = text
            for key in reversed(keys[1:]):
                given = {key: given}
            place = f"{ENVIRONMENT_PREFIX}{section.upper()}__"
            _choose(chosen[section], SECTIONS[section], {keys[0]: given}, place, problems)
    if environ.get(PAUSE_VARIABLE, "").strip().lower() not in ("", "0", "false", "no", "off"):
        chosen["hooks"]["inject"] = False
    sections = {name: kind(**chosen[name]) for name, kind in SECTIONS.items()}
    names = [
        name
        for name, value in machine_settings(document).items()
        if value != getattr(sections[name.partition(".")[0]], name.partition(".")[2])
    ]
    if names:
        problems.append(
            f"{where}: {', '.join(names)} {'is' if len(names) == 1 else 'are'} ignored: such settings belong to each "
            f"machine and are read from {MACHINE_FILE}"
        )
    return Settings.model_validate({**sections, "problems": tuple(problems)})


def _choose_sections(
    chosen: dict[str, dict[str, Any]], document: Mapping[str, Any], where: str, problems: list[str]
) -> None:
    for name, values in document.items():
        if name not in SECTIONS:
            problems.append(f"{where}: no section {name!r}{_nearest(str(name), SECTIONS)}; it is ignored")
        elif isinstance(values, Mapping):
            _choose(chosen[name], SECTIONS[name], values, f"{where}: {name}.", problems)
        elif values is not None:
            problems.append(f"{where}: {name} must hold keys and values, not {values!r}; its defaults are used")


def _choose(
    chosen: dict[str, Any], kind: type[Section], values: Mapping[str, Any], where: str, problems: list[str]
) -> None:
    inner = sections_of(kind)
    for written, value in values.items():
        # Older files have capitals, and one name with a typo.
        key = "importance_boost" if str(written) == "IMPORTANCE_BOOT" else str(written).lower()
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


def _nearest(name: str, known: Mapping[str, object]) -> str:
    return did_you_mean(name, known) or f" (known: {', '.join(known)})"


@cache
def default_document() -> str:
    """Returns `memory-config.yaml` as `init` writes it: each setting of the memory with its default and a comment."""
    lines = ["# Settings of this memory, for every machine with a copy of it. Change any of them.", ""]
    return "\n".join([*lines, *_blocks(machine=False)])


def machine_document() -> str:
    """Returns a new `.local/settings.yaml`: each setting of the machine with its default."""
    lines = [
        "# Settings of this machine. They are never in git, so no other machine can change them.",
        "# Settings of memory-config.yaml can be set here too, for this machine only.",
        "",
    ]
    return "\n".join([*lines, *_blocks(machine=True)])


def _blocks(*, machine: bool) -> Iterator[str]:
    for name, kind in SECTIONS.items():
        if any(belongs_to_machine(name, key) == machine for key in kind.model_fields):
            yield from _block(name, name, kind, "", machine)
            yield ""


def _block(section: str, name: str, kind: type[Section], indent: str, machine: bool) -> Iterator[str]:
    yield f"{indent}# {(kind.__doc__ or '').splitlines()[0]}"
    yield f"{indent}{name}:"
    inner = sections_of(kind)
    for key, field in kind.model_fields.items():
        if belongs_to_machine(section, key) != machine:
            continue
        if key in inner:
            yield from _block(section, key, inner[key], f"{indent}  ", machine)
        else:
            value = TypeAdapter(Any).dump_json(field.default).decode().strip('"')
            yield f"{indent}  {f'{key}: {value}':<30} # {field.description}"


def settings_of(root: Path, environ: Mapping[str, str]) -> Settings:
    """Returns the settings of the workspace at `root`.

    A broken file gives the defaults, and `problems` says so.
    """
    problems: list[str] = []
    machine = _document((root / MACHINE_FILE).read_text, MACHINE_FILE, problems)
    if machine and read_settings({}, {}, SETTINGS, machine) != Settings() and ask_git(root, "ls-files", "--", LOCAL):
        machine = {}
        problems.append(
            f"git tracks {MACHINE_FILE}, so it may come from another machine and is ignored; look at it, then run "
            f"`git -C {root} rm -r --cached {LOCAL}` and commit"
        )
    chosen = read_settings(_document((root / SETTINGS).read_text, SETTINGS, problems), environ, SETTINGS, machine)
    return chosen.model_copy(update={"problems": (*problems, *chosen.problems)})


def _document(read: Callable[[str], str], path: str, problems: list[str]) -> Mapping[str, object]:
    """Returns the fields of a settings file; none if it is missing or broken. `read` takes an encoding."""
    try:
        return load(read("utf-8"), path)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, Invalid) as error:
        problems.append(f"{path} cannot be read ({error}); the defaults are used until you correct it")
        return {}


def team_settings(files: Files, environ: Mapping[str, str]) -> Settings:
    """Returns the settings of a team's memory. Settings of a machine come only from the environment."""
    problems: list[str] = []
    document = _document(lambda _: files.text_or_none(SETTINGS) or "", SETTINGS, problems)
    chosen = read_settings(document, environ, SETTINGS, {})
    return chosen.model_copy(update={"problems": (*problems, *chosen.problems)})


def timezone_of(settings: Settings) -> str:
    """Returns the user's time zone as an IANA name; UTC if neither the setting nor the machine gives a valid one."""
    from tzlocal import get_localzone_name

    for name in (settings.workspace.timezone, None):
        try:
            chosen = name if name not in (None, "auto") else get_localzone_name()
            ZoneInfo(chosen or "UTC")
        except Exception:  # tzlocal and zoneinfo may raise any error
            continue
        return chosen or "UTC"
    return "UTC"
