"""Tier 1: every kind of trigger fires where it should, says where, and costs no more than its limit."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import pytest

from mcp_server.topics.patterns import ALL_PATTERNS, PATIENCE, Search, Tier1, Watchers, compile_regex
from mcp_server.topics.topic import Direction, Match, Priority, Scope, Topic, Trigger, WatchedMessage

SECONDS = 0.05
DIRECTIONS: tuple[Direction, ...] = ("input", "output")


def watchers(*triggers: Trigger, people: tuple[str, ...] = ()) -> Watchers:
    return Watchers([Topic("t", "topics/t.md", "", triggers=triggers)], people)


def fired(trigger: Trigger, heard: WatchedMessage | str, people: tuple[str, ...] = ()) -> list[str]:
    message = WatchedMessage(heard) if isinstance(heard, str) else heard
    found = watchers(trigger, people=people).matches(message, SECONDS).matches.get("t", ())
    for one in found:
        assert not one.end or message.text[one.start : one.end] == one.said
    return [one.said for one in found]


@pytest.mark.parametrize(
    ("trigger", "message", "said"),
    [
        (Trigger("pattern", (r"\b(email|inbox)\b",)), "My Inbox is full", ["Inbox"]),
        (Trigger("pattern", (r"\b(email|inbox)\b",)), "the emails", []),
        (Trigger("pattern", ("Inbox",), flags=""), "my inbox", []),
        (Trigger("pattern", (r"^to:",), flags="im"), "hi\nTo: you", ["To:"]),
        (Trigger("keywords", ("deploy", "Roll out")), "We ROLL-OUT, then deploy.", ["ROLL-OUT", "deploy"]),
        (Trigger("keywords", ("deploy",)), "redeploying", []),
        (Trigger("keywords", ("deploy",)), "the deploy's late", ["deploy"]),
        (Trigger("keywords", ("šljiva",)), "dve sljive i jedna Šljiva", ["Šljiva"]),
        (Trigger("keywords", ("café",)), "at the cafe\u0301", ["cafe\u0301"]),
        (Trigger("keywords", ("a", "b", "c"), least=2), "only a", []),
        (Trigger("keywords", ("a", "b", "c"), least=2), "a and c", ["a", "c"]),
        (Trigger("keywords", ("部署",)), "请部署到生产", ["部署"]),
        (Trigger("code", scope="both"), "```go\nx\n```", ["```go\nx\n```"]),
        (Trigger("code", ("py",), scope="both"), "```python\nx\n```", ["```python\nx\n```"]),
        (Trigger("code", ("rust",), scope="both"), "```python\nx\n```", []),
        (Trigger("language", ("de",)), "Kannst du bitte die Rechnung prüfen?", ["de"]),
        (Trigger("language", ("de",)), "Can you check the invoice, please?", []),
        (Trigger("language", ("de",)), "Danke!", []),
        (Trigger("mention", ("David",)), "ask david and @David", ["david"]),
        (Trigger("mention", ("@silas",)), "silas or @Silas", ["Silas"]),
        (Trigger("mention"), "ask @ana-b, not ana@example.org", ["@ana"]),
        (Trigger("mention"), "nobody is named", []),
        (Trigger("mention"), "ask ana kovac about it", ["ana kovac"]),  # somebody who has a file
        (Trigger("url"), "see https://a.example/x", ["https://a.example/x"]),
        (Trigger("url", ("github.com",)), "see https://a.example/x", []),
        (Trigger("url", ("github.com/*/*/pull/",)), "https://github.com/a/b/pull/1", ["https://github.com/a/b/pull/1"]),
        (Trigger("sentiment_shift"), "It is down!!!", ["!!!"]),
        (Trigger("sentiment_shift", least=2), "It is down!!!", []),
    ],
)
def test_a_trigger_fires_and_says_where(trigger: Trigger, message: str, said: list[str]) -> None:
    assert fired(trigger, message, people=("ana kovac", "milan")) == said


def test_paths_of_tools_set_off_globs() -> None:
    heard = WatchedMessage("done", "output", ("/p/src/app.py", "README.md"))
    assert fired(Trigger("glob", ("*.py", "docs/*"), scope="both"), heard) == ["/p/src/app.py"]
    assert fired(Trigger("glob", ("*.rs",), scope="both"), heard) == []
    assert fired(Trigger("glob", ("*.py",), scope="both"), "no paths at all, app.py is only named") == []


@pytest.mark.parametrize(("scope", "hears"), [("input", "input"), ("output", "output"), ("both", "input output")])
def test_a_scope_is_who_speaks(scope: Scope, hears: str) -> None:
    trigger = Trigger("pattern", ("tea",), scope=scope)
    for direction in DIRECTIONS:
        assert bool(fired(trigger, WatchedMessage("tea", direction))) is (direction in hears)


def test_events_are_never_set_off_by_words() -> None:
    made = watchers(Trigger("webhook", ("tea",)), Trigger("cron", ("0 8 * * *",)))
    assert made.matches(WatchedMessage("tea at 0 8 * * *"), SECONDS) == Tier1()


def test_several_triggers_of_several_topics_each_tell_their_own() -> None:
    topics = [
        Topic("one", "topics/one.md", "", triggers=(Trigger("keywords", ("tea",)), Trigger("pattern", ("t.a",)))),
        Topic("two", "topics/two.md", "", triggers=(Trigger("keywords", ("tea", "cup")),)),
        Topic("three", "topics/three.md", "", triggers=(Trigger("keywords", ("coffee",)),)),
    ]
    found = Watchers(topics).matches(WatchedMessage("a cup of tea"), SECONDS).matches
    assert {name: [one.place for one in ones] for name, ones in found.items()} == {"one": [0, 1], "two": [0, 0]}
    assert isinstance(found["one"][0], Match)
    assert [one.kind for one in found["one"]] == ["keywords", "pattern"]


def test_a_catastrophic_pattern_is_cut_off_named_and_then_left_alone() -> None:
    made = watchers(Trigger("pattern", (r"^(a|a)*$",), line=7), Trigger("keywords", ("tea",)))
    evil = WatchedMessage("a" * 60 + "! tea")
    for attempt in range(PATIENCE):
        began = perf_counter()
        found = made.matches(evil, SECONDS)
        assert perf_counter() - began < 20 * SECONDS  # far from the minutes that it would take
        assert [one.said for one in found.matches["t"]] == ["tea"]
        (trouble,) = found.troubles
        assert (trouble.topic, trouble.line) == ("t", 7)
        assert "was cut off after 50 ms" in trouble.what
        assert ("not tried again" in trouble.what) is (attempt == PATIENCE - 1)
    assert made.matches(evil, SECONDS).troubles == ()
    assert made.matches(WatchedMessage("aaa"), SECONDS).matches == {}


class Ticking:
    """Seconds that pass only while a pattern is compiled (5), a language is found (5), or a text is searched (1)."""

    def __init__(self) -> None:
        self.now = 0.0

    def compile_regex(self, pattern: Trigger) -> Search:
        search = compile_regex(pattern)
        self.now += 5

        def searched(text: str, seconds: float) -> tuple[int, int] | None:
            self.now += 1
            found: tuple[int, int] | None = search(text, 1.0)
            return found

        return searched

    def language(self, text: str) -> tuple[str, float]:
        self.now += 5
        return "en", 1.0

    def watchers(self, *topics: Topic) -> Watchers:
        return Watchers(topics, (), lambda: self.now, self.compile_regex, self.language)


def topic(name: str, *triggers: Trigger, priority: Priority = "medium") -> Topic:
    return Topic(name, f"topics/{name}.md", "", triggers=triggers, priority=priority)


def test_only_matching_counts_for_the_time_limit_of_all_patterns() -> None:
    time = Ticking()
    made = time.watchers(
        topic("t", Trigger("language", ("de",)), Trigger("pattern", ("to",)), Trigger("pattern", ("and",)))
    )
    found = made.matches(WatchedMessage("to and fro, to and fro"), 2 / ALL_PATTERNS)
    assert [one.said for one in found.matches["t"]] == ["to", "and"]
    assert found.troubles == ()


def test_a_skipped_pattern_is_named_and_tried_first_with_the_next_message() -> None:
    time = Ticking()
    made = time.watchers(topic("a", Trigger("pattern", (r"\w+",))), topic("b", Trigger("pattern", (r"\d+",), line=3)))
    first = made.matches(WatchedMessage("7"), 1 / ALL_PATTERNS)
    (trouble,) = first.troubles
    assert (list(first.matches), trouble.topic, trouble.line, first.skipped) == (["a"], "b", 3, True)
    assert "was skipped" in trouble.what
    second = made.matches(WatchedMessage("7"), 1 / ALL_PATTERNS)
    assert (list(second.matches), [one.topic for one in second.troubles]) == (["b"], ["a"])


def test_a_retry_tries_only_the_skipped_patterns_with_the_whole_limit() -> None:
    time = Ticking()
    made = time.watchers(*(topic(name, Trigger("pattern", (r"\w+",))) for name in "abc"))
    first = made.matches(WatchedMessage("7"), 2 / ALL_PATTERNS)
    assert list(first.matches) == ["a", "b"]
    second = made.retry(WatchedMessage("7"), 2 / ALL_PATTERNS, first)
    assert (list(second.matches), second.troubles) == (["a", "b", "c"], ())


def test_patterns_of_critical_topics_are_tried_first() -> None:
    time = Ticking()
    made = time.watchers(
        topic("a", Trigger("pattern", (r"\w+",))), topic("z", Trigger("pattern", (r"\w+",)), priority="critical")
    )
    assert list(made.matches(WatchedMessage("7"), 1 / ALL_PATTERNS).matches) == ["z"]


def test_what_cannot_match_is_not_even_compiled() -> None:
    asked: list[str] = []

    def counting(pattern: Trigger) -> Search:
        asked.extend(pattern.match)
        search: Callable[[str, float], tuple[int, int] | None] = compile_regex(pattern)
        return search

    triggers = tuple(Trigger("pattern", (rf"\bword{number:03}\b",)) for number in range(100))
    made = Watchers([Topic("t", "topics/t.md", "", triggers=triggers)], compile_regex=counting)
    made.matches(WatchedMessage("say word007 and WORD042"), SECONDS)
    assert sorted(asked) == [r"\bword007\b", r"\bword042\b"]
