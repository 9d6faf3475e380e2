"""The advisor's lexicon: the file that ships, or the user's own in its place (`advisor.lexicon`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.relevance.advisor_items import Lexicon
from mcp_server.text.markdown import Lines, located
from mcp_server.text.words import words

SHIPPED = Path(__file__).parents[1] / "data" / "lexicon.yaml"


GROUPS, LISTS = ("technologies", "layers"), ("generic",)


def read_lexicon(read: Callable[[str], bytes], chosen: str | None) -> tuple[Lexicon, str]:
    """Returns the lexicon of the user's file `chosen`, whose bytes `read` returns, or the built-in one, and the problem
    of the user's file if the built-in one is used instead."""
    if not chosen:
        return parsed(SHIPPED.read_text("utf-8"), SHIPPED.name), ""
    try:
        return parsed(read(chosen).decode("utf-8"), chosen), ""
    except UnicodeDecodeError:
        problem = f"advisor.lexicon: {chosen} cannot be read: it is no UTF-8 text"
    except OSError as error:
        problem = f"advisor.lexicon: {chosen} cannot be read: {error.strerror}"
    except ContextManagerError as error:
        problem = f"advisor.lexicon: {error}"
    return parsed(SHIPPED.read_text("utf-8"), SHIPPED.name), f"{problem}; the lexicon that ships is used until then"


@lru_cache(16)
def parsed(text: str, where: str) -> Lexicon:
    """Returns the lexicon of a YAML text. Raises Invalid with `where` and the line."""
    fields, lines = located(text, where)
    grouped: dict[str, dict[str, frozenset[str]]] = {name: {} for name in GROUPS}
    generic: frozenset[str] = frozenset()
    for name, value in fields.items():
        at = f"{where}: line {lines[name,]}: "
        if name in LISTS:
            generic = _listed(value, (name,), lines, where)
        elif name not in GROUPS:
            raise Invalid(f"{at}{name!r} is not one of {', '.join((*GROUPS, *LISTS))}")
        elif not isinstance(value, dict):
            raise Invalid(f"{at}{name} must hold `group: [word, word]` lines")
        else:
            grouped[name] = {str(one): _listed(inner, (name, str(one)), lines, where) for one, inner in value.items()}
    return Lexicon(grouped["technologies"], grouped["layers"], generic)


def _listed(value: object, steps: tuple[str, ...], lines: Lines, where: str) -> frozenset[str]:
    """Returns the folded words of the list at `steps` of the file."""
    if not isinstance(value, list):
        raise Invalid(f"{where}: line {lines[steps]}: {steps[-1]} must be a list of words: [one, two]")
    found: set[str] = set()
    for place, entry in enumerate(value):
        inner = isinstance(entry, list | dict)
        folded = [] if inner else words(str(entry))
        if len(folded) != 1:
            said = "a list or mapping" if inner else repr(entry)
            raise Invalid(f"{where}: line {lines[*steps, place]}: {said} is not one word; give each word by itself")
        found.add(folded[0])
    return frozenset(found)
