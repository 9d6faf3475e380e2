"""YAML 1.2 as people write it, read into plain values; errors name file and line."""

from __future__ import annotations

from typing import Any

from mcp_server.core.text.yaml_line import yaml_line
from mcp_server.errors import Invalid

LONGEST = 1_000_000


def load(text: str, where: str, first_line: int = 1) -> dict[str, Any]:
    """The fields of a YAML mapping; an empty text has none. `first_line` is the line of `where` that `text` begins
    with.

    Raises Invalid naming file and line for a text that is no YAML, holds a key twice, or is no mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(text) > LONGEST:
        raise Invalid(f"{where}: line {first_line}: over {LONGEST:,} characters of YAML; is a closing `---` missing?")
    try:
        value = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark is not None else 0)
        what = str(error.problem or error.context or "no valid YAML").split("\n")[0]
        raise Invalid(f"{where}: line {line}: {what}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise Invalid(f"{where}: line {first_line}: no valid YAML: {str(error).splitlines()[0]}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Invalid(f"{where}: line {first_line}: must be `name: value` lines, not a {type(value).__name__}")
    return {str(key): entry for key, entry in value.items()}


def dump_line(value: object) -> str:
    """`value` on one line of YAML; lists and mappings in flow style."""
    return yaml_line(value)
