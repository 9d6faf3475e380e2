"""What watchers need that core cannot do by itself: regular expressions with a limit of time, and languages.

Both libraries are imported when a topic's trigger first needs them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mcp_server.core.topics import Pattern
from mcp_server.core.watchers.patterns import Search, Senses, Watchers
from mcp_server.store.topic_files import TopicSet

LONGEST_JUDGED = 2_000
"""Characters whose language is asked for: it does not change in the middle of a message."""


def watchers(topics: TopicSet) -> Watchers:
    """Tier 1 of these topics; made once for as long as they are."""
    return topics.derived("watchers", lambda: Watchers(topics.topics.values(), senses(topics.people)))


def senses(people: tuple[str, ...]) -> Senses:
    """The senses, with the names of the people who have a file among `people`."""
    names = [path.rsplit("/", 1)[-1].removesuffix(".md").replace("-", " ") for path in people]
    return Senses(compile_regex, language, [name for name in names if not name.startswith("_")])


def compile_regex(pattern: Pattern) -> Search:
    """A search that raises TimeoutError when its time is over."""
    import regex

    compiled = regex.compile(pattern.match, flags=sum(int(getattr(regex, flag.upper())) for flag in pattern.flags))

    def search(text: str, seconds: float) -> tuple[int, int] | None:
        found = compiled.search(text, timeout=seconds)
        return None if found is None else (found.start(), found.end())

    return search


def language(text: str) -> tuple[str, float]:
    """The language of a text (ISO 639-1), and how sure that is (0..1)."""
    code, sure = _identifier().classify(text[:LONGEST_JUDGED])
    return str(code), float(sure)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
