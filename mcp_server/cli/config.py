"""`context-manager config get|set|edit`."""

from __future__ import annotations

import io
from typing import Any

import click
from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mcp_server.cli import shell
from mcp_server.errors import Refused
from mcp_server.memory import Memory
from mcp_server.settings import MACHINE_FILE, SECTIONS, belongs_to_machine, knobs, sections_of
from mcp_server.storage.files import SETTINGS
from mcp_server.text.markdown import yaml_line
from mcp_server.text.prose import did_you_mean


@shell.group(
    "config",
    "config get search.embedder",
    "config get clarity",
    "config set hooks.inject false",
    "config edit --machine",
)
def config_command() -> None:
    """Read and change settings: memory-config.yaml, and .local/settings.yaml for this machine."""


@config_command.command("get")
@click.argument("name", required=False)
def get(name: str | None) -> None:
    """Print the value of a setting, of all settings of a section, or of all. The environment is included."""
    found: Any = shell.from_memory(lambda memory: memory.settings.model_dump(mode="json", exclude={"problems"}))
    for key in name.split(".") if name else ():
        if not isinstance(found, dict) or key not in found:
            raise click.UsageError(_unknown(name or ""))
        found = found[key]
    said = "\n".join(_lines(f"{name}." if name else "", found)) if isinstance(found, dict) else _text(found)
    shell.print_result({name: found} if name else found, said)


@config_command.command("set")
@click.argument("name")
@click.argument("value")
def set_(name: str, value: str) -> None:
    """Write a setting into its file, at once, and print the old value. VALUE is YAML: true, 0.5, null, [a, b]."""
    if name not in _names():
        raise click.UsageError(_unknown(name))
    try:
        chosen = _yaml().load(value)
    except YAMLError as error:
        raise click.UsageError(f"VALUE {value!r} is not YAML: {_problem(error)}") from None
    _check(name, chosen)
    section, key, *_ = name.split(".")
    path = MACHINE_FILE if belongs_to_machine(section, key) else SETTINGS

    async def act(memory: Memory) -> object:
        if path != SETTINGS and not memory.disk.here:
            variable = f"CONTEXT_MANAGER_{name.upper().replace('.', '__')}"
            raise Refused(f"on PostgreSQL each process takes {name} from its environment: set {variable} there")
        before: Any = memory.settings.model_dump(mode="json")
        for key in name.split("."):
            before = before[key]
        async with memory.locks.files():
            memory.files.write_atomic(path, _with_setting(memory.files.text_or_none(path) or "", path, name, chosen))
        return before

    before = shell.with_memory(act)
    scope = "this machine" if path != SETTINGS else "every copy of this memory"
    said = f"{name} is now {_text(chosen)} in {path}; it was {_text(before)}."
    said += f"\nIt applies to {scope}; a running server reads it at its next start."
    shell.print_result({"name": name, "before": before, "value": shell.plain(chosen), "file": path}, said)


@config_command.command("edit")
@click.option("--machine", is_flag=True, help="The settings of this machine, .local/settings.yaml.")
def edit(machine: bool) -> None:
    """Open the file of the settings in $EDITOR, and check it afterwards."""
    path = MACHINE_FILE if machine else SETTINGS
    where = shell.from_memory(lambda memory: str(memory.disk.root / path))
    click.edit(filename=where)
    found = shell.from_memory(lambda memory: memory.settings.problems)
    shell.print_result({"file": where, "problems": found}, "\n".join(found) or f"{where} has no problems.")
    if found:
        click.get_current_context().exit(1)


def _names() -> list[str]:
    return [known for section, kind in SECTIONS.items() for known, _ in knobs(kind, section)]


def _unknown(name: str) -> str:
    if name in SECTIONS:
        inside = ", ".join(known for known, _ in knobs(SECTIONS[name], name))
        return f"{name!r} is a section; name one of its settings: {inside}"
    return f"no setting {name!r}" + (did_you_mean(name, [*_names(), *SECTIONS]) or " (config get lists them)")


def _check(name: str, value: object) -> None:
    """Raises UsageError if the setting cannot have this value."""
    section, *inner, key = name.split(".")
    kind = SECTIONS[section]
    for part in inner:
        kind = sections_of(kind)[part]
    try:
        kind(**{key: value})
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise click.UsageError(f"{name} cannot be {value!r}: {problem[:1].lower()}{problem[1:]}") from None


def _with_setting(text: str, path: str, name: str, value: object) -> str:
    """Returns a settings file's text with the setting; comments stay. Raises UsageError if the text is not YAML."""
    yaml = _yaml()
    try:
        document = yaml.load(text) or {}
        held = document
        *sections, key = name.split(".")
        for section in sections:
            if held.get(section) is None:
                held[section] = {}
            held = held[section]
        held[key] = value
    except (YAMLError, AttributeError, TypeError) as error:
        raise click.UsageError(
            f"{path} cannot be changed ({_problem(error)}); fix it: context-manager config edit"
        ) from None
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _yaml() -> Any:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000
    return yaml


def _problem(error: Exception) -> str:
    """Returns what is wrong with YAML, in one line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
    return f"{problem}, line {mark.line + 1}" if mark else " ".join(str(problem).split())


def _lines(prefix: str, values: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for key, value in values.items():
        lines += _lines(f"{prefix}{key}.", value) if isinstance(value, dict) else [f"{prefix}{key}: {_text(value)}"]
    return lines


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "null" if value is None else yaml_line(shell.plain(value))
