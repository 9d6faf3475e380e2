"""The advisor's lexicon: the file that ships, or the user's own in its place (`advisor.lexicon`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcp_server.errors import Invalid
from mcp_server.relevance.advisor_items import Lexicon
from mcp_server.text.words import words

SHIPPED = Path(__file__).parents[2] / "data" / "lexicon.yaml"
GROUPS, LISTS = ("technologies", "layers"), ("generic",)


class LexiconFile:
    """The lexicon file. It is read on first use, and again after a change."""

    def __init__(self, root: Path, chosen: str | None) -> None:
        self._path = root / Path(chosen).expanduser() if chosen else SHIPPED
        self._name = chosen or SHIPPED.name
        self._seen: tuple[int, int] | None = None
        self._lexicon: Lexicon | None = None

    def read(self) -> Lexicon:
        """Returns the lexicon. Raises Invalid with file and line."""
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if self._lexicon is None or stamp != self._seen:
                self._lexicon = parsed(self._path.read_text("utf-8"), self._name)
                self._seen = stamp
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise Invalid(f"advisor.lexicon: {self._name} cannot be read: {what}") from error
        return self._lexicon

    def read_or_shipped(self) -> tuple[Lexicon, str]:
        """Returns the lexicon, and the problem of the user's file if the built-in lexicon is used instead."""
        try:
            return self.read(), ""
        except Invalid as error:
            return LexiconFile(self._path.parent, None).read(), f"{error}; the lexicon that ships is used until then"


def parsed(text: str, where: str) -> Lexicon:
    """Returns the lexicon of a YAML text. Raises Invalid with `where` and the line."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.nodes import MappingNode

    try:
        document = YAML(pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Invalid(f"{where}: line {mark.line + 1 if mark else 1}: {error.problem or 'no valid YAML'}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise Invalid(f"{where}: line 1: no valid YAML: {str(error).splitlines()[0]}") from error
    if document is None:
        return Lexicon({}, {}, frozenset())
    if not isinstance(document, MappingNode):
        raise Invalid(f"{where}: line 1: must hold {', '.join((*GROUPS, *LISTS))}")
    grouped: dict[str, dict[str, frozenset[str]]] = {name: {} for name in GROUPS}
    generic: frozenset[str] = frozenset()
    for name, (line, value) in _entries(document, where).items():
        if name in LISTS:
            generic = _listed(value, f"{where}: line {line}: {name}", where)
        elif name in GROUPS:
            if not isinstance(value, MappingNode):
                raise Invalid(f"{where}: line {line}: {name} must hold `group: [word, word]` lines")
            grouped[name] = {
                group: _listed(inner, f"{where}: line {at}: {group}", where)
                for group, (at, inner) in _entries(value, where).items()
            }
        else:
            raise Invalid(f"{where}: line {line}: {name!r} is not one of {', '.join((*GROUPS, *LISTS))}")
    return Lexicon(grouped["technologies"], grouped["layers"], generic)


def _entries(node: Any, where: str) -> dict[str, tuple[int, Any]]:
    """Returns line and value node of each name in a mapping."""
    found: dict[str, tuple[int, Any]] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in found:
            raise Invalid(f"{where}: line {line}: {name!r} stands there twice (first in line {found[name][0]})")
        found[name] = (line, value)
    return found


def _listed(node: Any, what: str, where: str) -> frozenset[str]:
    """Returns the folded words of a list."""
    from ruamel.yaml.nodes import ScalarNode, SequenceNode

    if not isinstance(node, SequenceNode):
        raise Invalid(f"{what} must be a list of words: [one, two]")
    found: set[str] = set()
    for entry in node.value:
        folded = words(entry.value) if isinstance(entry, ScalarNode) else []
        if len(folded) != 1:
            said = repr(entry.value) if isinstance(entry, ScalarNode) else "a list or mapping"
            raise Invalid(
                f"{where}: line {entry.start_mark.line + 1}: {said} is not one word; give each word by itself"
            )
        found.add(folded[0])
    return frozenset(found)
