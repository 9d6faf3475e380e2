"""Tier 1: finds the triggers that a message fires.

The triggers are not evaluated one by one. Words, phrases and names are in one inverted index. A regular expression is
evaluated only if the text contains a literal that every match must contain (`matchers.required`).

Users write the regular expressions, so matching has a time limit for each expression, and one for all expressions of a
message. Expressions that a limit stops or skips are reported. After three stops an expression is not tried again until
its file changes; a skipped one is tried first with the next message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain
from typing import Any

from mcp_server.text.words import has_no_spaces
from mcp_server.topics import matchers
from mcp_server.topics.matchers import Spoken, spoken
from mcp_server.topics.topic import Kind, Match, Topic, Trigger, Trouble, WatchedMessage

MOST_SAID = 5
"""Most matches of one trigger that are returned."""

LEAST_SURE = 0.6
"""Least certainty (0..1) of a message's language. `LEAST_LETTERS` is the least number of letters, because a single word
may belong to any language."""
LEAST_LETTERS = 8

LONGEST_JUDGED = 2_000
"""Characters of a message from which its language is identified; it seldom changes within a message."""

PATIENCE = 3
"""A regular expression that the time limit stopped this many times is not tried again."""

ALL_PATTERNS = 5
"""The time limit of all patterns together for one message, as a multiple of the limit of one pattern."""

_Said = tuple[int, int] | str
"""A match: its place in the text, or what matched if that is not in the text."""

Search = Callable[[str, float], tuple[int, int] | None]
"""Returns the first match in a text; raises TimeoutError after the given seconds."""


@dataclass(frozen=True, slots=True)
class Tier1:
    """The triggers that fired: matches by topic, and the patterns that a time limit stopped or skipped."""

    matches: Mapping[str, tuple[Match, ...]] = field(default_factory=dict)
    troubles: tuple[Trouble, ...] = ()

    @property
    def skipped(self) -> bool:
        """True if a pattern was not tried, so that the same message may fire it later."""
        return any(not one.fault for one in self.troubles)


@dataclass(slots=True, eq=False)
class _Entry:
    """A trigger of a topic. `critical`: whether the topic's priority is "critical".

    A pattern is compiled on first use (`search`). A text without any of the literals `wanted` cannot match it.
    `cut_off` counts how often a limit stopped it; `skipped`: the last message left no time for it.
    """

    topic: str
    place: int
    trigger: Trigger
    critical: bool = False
    wanted: frozenset[str] = frozenset()
    search: Search | None = None
    cut_off: int = 0
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class _Phrase:
    """A word or phrase of a trigger: the words after its first one, and whether an `@` must precede it."""

    entry: _Entry
    rest: tuple[str, ...]
    at: bool = False


class _Message:
    """A message and the values that several triggers read, each computed once, on first use."""

    def __init__(self, watched: WatchedMessage) -> None:
        self.paths = watched.paths
        self.text = watched.text
        self.direction = watched.direction

    def is_for(self, entry: _Entry) -> bool:
        """Returns whether a trigger looks in messages of this direction."""
        return entry.trigger.scope in (self.direction, "both")

    def is_called(self, start: int) -> bool:
        """Returns whether an `@` precedes the word at `start`, and is not part of an e-mail address."""
        return self.text[start - 1 : start] == "@" and not self.text[start - 2 : start - 1].isalnum()

    @cached_property
    def folded(self) -> str:
        return matchers.folded(self.text)

    @cached_property
    def spoken(self) -> Spoken:
        return spoken(self.text)

    @cached_property
    def code(self) -> tuple[matchers.CodeBlock, ...]:
        return tuple(matchers.blocks(self.text))

    @cached_property
    def urls(self) -> tuple[matchers.Url, ...]:
        return tuple(matchers.urls(self.text))

    @cached_property
    def voice(self) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(matchers.marks(self.text)))


def compile_regex(pattern: Trigger) -> Search:
    """Returns a search that raises TimeoutError after its time limit."""
    import regex

    compiled = regex.compile(pattern.match[0], flags=sum(int(getattr(regex, flag.upper())) for flag in pattern.flags))

    def search(text: str, seconds: float) -> tuple[int, int] | None:
        found = compiled.search(text, timeout=seconds)
        return None if found is None else found.span()

    return search


def identify_language(text: str) -> tuple[str, float]:
    """Returns the language of a text (ISO 639-1) and the certainty (0..1)."""
    code, sure = _identifier().classify(text[:LONGEST_JUDGED])
    return str(code), float(sure)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class Watchers:
    """The indexed triggers of a set of topics. Only the counts of stopped patterns change.

    `people` are the names of the people that have a file. `clock` measures the time of a message's patterns in seconds;
    the default one always returns 0, so that only the limit of each pattern holds.
    """

    def __init__(
        self,
        topics: Iterable[Topic],
        people: Sequence[str] = (),
        clock: Callable[[], float] = lambda: 0.0,
        compile_regex: Callable[[Trigger], Search] = compile_regex,
        identify_language: Callable[[str], tuple[str, float]] = identify_language,
    ) -> None:
        self._people = people
        self._clock = clock
        self._compile_regex = compile_regex
        self._identify_language = identify_language
        self._words: dict[str, list[_Phrase]] = defaultdict(list)
        self._sites: dict[str, list[tuple[str, _Entry]]] = defaultdict(list)
        self._unspaced: list[tuple[str, _Entry]] = []
        self._regexes: dict[int, dict[str, dict[str, list[_Entry]]]] = {size: {} for size in (3, 2, 1)}
        """Length (at most 3) and beginning of a literal → the literal → the patterns that require it."""
        self._always: list[_Entry] = []
        self._globs: dict[str, list[tuple[str, _Entry]]] = defaultdict(list)
        self._others: dict[Kind, list[_Entry]] = defaultdict(list)
        for topic in topics:
            for place, trigger in enumerate(topic.triggers):
                self._add(_Entry(topic.name, place, trigger, topic.priority == "critical"))

    def _add(self, entry: _Entry) -> None:
        kind, wanted = entry.trigger.kind, entry.trigger.match
        if kind == "pattern":
            self._add_regex(entry)
        elif kind == "glob":
            for pattern in wanted:
                self._globs[matchers.suffix(pattern)].append((pattern, entry))
        elif kind == "url" and wanted:
            for site in wanted:
                self._sites[matchers.host_of(site)].append((site, entry))
        elif kind == "keywords" or kind == "mention":
            for said in wanted or self._people:
                self._add_phrase(said, entry)
        if kind in ("code", "language", "sentiment_shift") or (kind in ("mention", "url") and not wanted):
            self._others[kind].append(entry)

    def _add_phrase(self, said: str, entry: _Entry) -> None:
        if has_no_spaces(said):  # there are no word boundaries
            self._unspaced.append((matchers.folded(said.strip()), entry))
            return
        if words := spoken(said).words:
            self._words[words[0]].append(_Phrase(entry, tuple(words[1:]), said.lstrip().startswith("@")))

    def _add_regex(self, entry: _Entry) -> None:
        entry.wanted = matchers.required(entry.trigger.match[0], entry.trigger.flags)
        if not entry.wanted:
            self._always.append(entry)
        for literal in entry.wanted:
            size = min(3, len(literal))
            self._regexes[size].setdefault(literal[:size], {}).setdefault(literal, []).append(entry)

    def matches(self, watched: WatchedMessage, seconds: float) -> Tier1:
        """Returns the triggers that fire for a message, and the patterns that a time limit stopped or skipped.
        `seconds` is the limit of one pattern; all together have ALL_PATTERNS times as much."""
        message = _Message(watched)
        troubles: list[Trouble] = []
        fired: Iterable[tuple[_Entry, Sequence[_Said]]] = chain(
            self._by_words(message),
            self._by_paths(message),
            self._by_kind(message),
            self._by_regex(self._candidates(message), message, seconds, troubles),
        )
        return Tier1(self._by_topic(message, fired), tuple(troubles))

    def retry(self, watched: WatchedMessage, seconds: float, first: Tier1) -> Tier1:
        """Returns `first` with the matches of the patterns that it skipped. The limits start again for them."""
        message = _Message(watched)
        troubles = [one for one in first.troubles if one.fault]
        skipped = [entry for entry in self._candidates(message) if entry.skipped]
        found = self._by_topic(message, self._by_regex(skipped, message, seconds, troubles))
        added = {name: _ordered((*first.matches.get(name, ()), *ones)) for name, ones in found.items()}
        return Tier1({**first.matches, **added}, tuple(troubles))

    def _by_topic(
        self, message: _Message, fired: Iterable[tuple[_Entry, Sequence[_Said]]]
    ) -> dict[str, tuple[Match, ...]]:
        found: dict[str, list[Match]] = defaultdict(list)
        for entry, spans in fired:
            if not message.is_for(entry):
                continue
            for span in list(dict.fromkeys(spans))[:MOST_SAID]:
                said = span if isinstance(span, str) else message.text[slice(*span)]
                place = () if isinstance(span, str) else span
                found[entry.topic].append(Match(entry.topic, entry.place, entry.trigger, said, *place))
        return {name: _ordered(ones) for name, ones in found.items()}

    def _by_words(self, message: _Message) -> Iterator[tuple[_Entry, list[tuple[int, int]]]]:
        said: dict[_Entry, dict[str, tuple[int, int]]] = defaultdict(dict)
        words, spans = (message.spoken.words, message.spoken.spans) if self._words else ((), ())
        for place, word in enumerate(words):
            for phrase in self._words.get(word, ()):
                end = place + 1 + len(phrase.rest)
                if phrase.rest and tuple(words[place + 1 : end]) != phrase.rest:
                    continue
                start = spans[place][0]
                if not phrase.at or message.is_called(start):
                    said[phrase.entry].setdefault(" ".join(words[place:end]), (start, spans[end - 1][1]))
        for literal, entry in self._unspaced:
            if literal in message.folded and (start := message.text.lower().find(literal)) >= 0:
                said[entry].setdefault(literal, (start, start + len(literal)))
        for entry, found in said.items():
            if len(found) >= entry.trigger.least:
                yield entry, sorted(found.values())

    def _by_paths(self, message: _Message) -> Iterator[tuple[_Entry, list[str]]]:
        if not self._globs or not message.paths:
            return
        found: dict[_Entry, list[str]] = defaultdict(list)
        for path in dict.fromkeys(message.paths):
            name = path.replace("\\", "/").rpartition("/")[2].lower()
            ending = f".{name.rpartition('.')[2]}" if "." in name else ""
            for suffix in {ending, ""}:
                for pattern, entry in self._globs.get(suffix, ()):
                    if matchers.matches(pattern, path):
                        found[entry].append(path)
        yield from found.items()

    def _by_kind(self, message: _Message) -> Iterator[tuple[_Entry, Sequence[_Said]]]:
        for entry in self._others.get("code", ()):
            wanted = {matchers.plain(name) for name in entry.trigger.match}
            spans = [(one.start, one.end) for one in message.code if not wanted or one.language in wanted]
            if spans:
                yield entry, spans
        for entry in self._others.get("url", ()):  # a trigger without sites: any link
            if message.urls:
                yield entry, [(one.start, one.end) for one in message.urls]
        yield from self._by_site(message)
        for entry in self._others.get("sentiment_shift", ()):
            if len(message.voice) >= entry.trigger.least:
                yield entry, message.voice
        for entry in self._others.get("mention", ()):
            named = [(start - 1, end) for start, end in message.spoken.spans if message.is_called(start)]
            if named:
                yield entry, named
        yield from self._by_language(message)

    def _by_site(self, message: _Message) -> Iterator[tuple[_Entry, list[tuple[int, int]]]]:
        found: dict[_Entry, list[tuple[int, int]]] = defaultdict(list)
        links = {one.text: one for one in reversed(message.urls)} if self._sites else {}
        for link in links.values():
            for host in (*matchers.hosts(link), ""):
                for site, entry in self._sites.get(host, ()):
                    if matchers.leads_to(link, site):
                        found[entry].append((link.start, link.end))
        yield from ((entry, sorted(spans)) for entry, spans in found.items())

    def _by_language(self, message: _Message) -> Iterator[tuple[_Entry, Sequence[str]]]:
        entries = [entry for entry in self._others.get("language", ()) if message.is_for(entry)]
        if not entries or sum(map(str.isalpha, message.text)) < LEAST_LETTERS:
            return
        language, sure = self._identify_language(message.text)
        for entry in entries if sure >= LEAST_SURE else ():
            if language in entry.trigger.match:
                yield entry, (language,)

    def _by_regex(
        self, candidates: Iterable[_Entry], message: _Message, seconds: float, troubles: list[Trouble]
    ) -> Iterator[tuple[_Entry, list[tuple[int, int]]]]:
        """Yields the patterns that match. The time for compiling them does not count."""
        spent = 0.0
        for entry in candidates:
            if entry.cut_off >= PATIENCE:
                continue
            limit = min(seconds, ALL_PATTERNS * seconds - spent)
            entry.skipped = limit <= 0
            if entry.skipped:
                what = "was skipped: other patterns used up this message's time; it is tried first next time"
                troubles.append(replace(_trouble(entry, what), fault=False))
                continue
            if entry.search is None:
                entry.search = self._compile_regex(entry.trigger)
            began = self._clock()
            try:
                span = entry.search(message.text, limit)
            except TimeoutError:
                entry.cut_off += 1
                again = "" if entry.cut_off < PATIENCE else "; it is not tried again until the file changes"
                troubles.append(_trouble(entry, f"was cut off after {limit * 1000:.0f} ms{again}"))
                continue
            finally:
                spent += self._clock() - began
            if span is not None:
                yield entry, [span]

    def _candidates(self, message: _Message) -> list[_Entry]:
        """Returns the patterns that may match: skipped ones and those of critical topics first, stopped ones last."""
        asked = {id(entry): entry for entry in self._always}
        for size, by_beginning in self._regexes.items():
            text = message.folded if by_beginning else ""
            places = range(len(text) - size + 1)
            for beginning in by_beginning.keys() & {text[place : place + size] for place in places}:
                for literal, entries in by_beginning[beginning].items():
                    if literal in text:
                        asked.update((id(entry), entry) for entry in entries)

        def order(one: _Entry) -> tuple[object, ...]:
            return one.cut_off, not one.skipped, not one.critical, not one.wanted, one.topic, one.place

        return sorted((one for one in asked.values() if message.is_for(one)), key=order)


def _ordered(matches: Iterable[Match]) -> tuple[Match, ...]:
    return tuple(sorted(matches, key=lambda one: (one.place, one.start)))


def _trouble(entry: _Entry, what: str) -> Trouble:
    (pattern,) = entry.trigger.match
    shown = pattern if len(pattern) <= 60 else f"{pattern[:60]}…"
    return Trouble(entry.topic, entry.trigger.line, f"the pattern {shown!r} {what}")
