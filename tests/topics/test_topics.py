"""Topic files: read whole, errors that name file, line and field, one broken file stops no other."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from mcp_server.errors import Invalid
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.topics import TopicFiles, named
from mcp_server.topics.listing import describe_triggers
from mcp_server.topics.topic import Trigger
from mcp_server.topics.topic_file import parse_topic
from tests.topics.playbooks import EMAIL

SEED = EMAIL.replace("max_context_kb: 4\n", "max_context_kb: 4\nowner: Ana\n")


def test_the_topic_of_the_seed_is_read_with_all_its_fields() -> None:
    topic, warnings = parse_topic("topics/email-triage.md", SEED)
    assert warnings == ()
    assert (topic.name, topic.path, topic.first_line) == ("email-triage", "topics/email-triage.md", 18)
    assert topic.triggers == (
        Trigger("webhook", ("email",), event="new_message", line=4),
        Trigger("pattern", ("email|inbox|mail",), line=7),
    )
    assert topic.subscriptions == ("knowledge/procedures/email-workflow.md", "knowledge/people/_index.md")
    assert (topic.activation, topic.priority, topic.max_context_kb) == ("gated", "high", 4)
    assert topic.description.startswith("When a new email arrives: 1. Classify")
    assert topic.instructions.startswith("\n# Email Triage")
    assert describe_triggers(topic) == "webhook, pattern"


def test_a_file_without_front_matter_is_a_topic_by_likeness() -> None:
    topic, _ = parse_topic("topics/Tea Time.md", "# Tea\n\nHow we brew it.\n")
    assert (topic.name, topic.description, topic.triggers, topic.activation) == (
        "tea-time",
        "How we brew it.",
        (),
        "gated",
    )
    assert describe_triggers(topic) == "likeness"


@pytest.mark.parametrize(
    "front",
    [
        "triggers:\n  - type: url\n  - similarity_threshold: 0.2\n  - activation: auto\n  - type: mention",
        "triggers:\n  - type: url\n  # tier 2\n  similarity_threshold: 0.2  # as the seed has it\n  activation: auto\n"
        "  - type: mention",
        "triggers: [{type: url}, {similarity_threshold: 0.2, activation: auto}, {type: mention}]",
        "similarity_threshold: 0.2\nactivation: auto\ntriggers:\n- type: url\n- type: mention",
        "triggers:\n  - activation: manual\n  - type: url\n  - type: mention\nactivation: auto\n"
        "similarity_threshold: 0.2",
    ],
)
def test_keys_of_the_topic_may_stand_inside_the_list(front: str) -> None:
    topic, warnings = parse_topic("topics/x.md", f"---\n{front}\n---\n")
    assert (topic.similarity_threshold, topic.activation, warnings) == (0.2, "auto", ())
    assert describe_triggers(topic) == "url, mention"
    text = f"---\n{front}\n---\n".splitlines()
    assert all(one.line == 1 or "type:" in text[one.line - 1] for one in topic.triggers)


@pytest.mark.parametrize(
    ("trigger", "made"),
    [
        ("{type: pattern, match: /a b/}", Trigger("pattern", ("a b",), flags="", line=3)),
        ("{type: pattern, match: /a b/mi}", Trigger("pattern", ("a b",), flags="im", line=3)),
        (
            "{type: pattern, match: print, scope: output, correction_hint: ' Use   Python 3 '}",
            Trigger("pattern", ("print",), scope="output", correction="Use Python 3", line=3),
        ),
        ("{type: webhook, source: git, event: '*'}", Trigger("webhook", ("git",), line=3)),
        ("{type: cron, schedule: '0  8 * * *'}", Trigger("cron", ("0 8 * * *",), line=3)),
    ],
)
def test_triggers_as_they_are_meant(trigger: str, made: object) -> None:
    topic, _ = parse_topic("topics/x.md", f"---\ntriggers:\n  - {trigger}\n---\n")
    assert topic.triggers == (made,)


@pytest.mark.parametrize(
    "trigger",
    [
        "{type: keywords, words: tea}",
        "{type: keyword, match: [tea, 7]}",
        "{type: glob, paths: '*.py'}",
        "{type: language, language: DE}",
        "{type: mention, names: [Ana]}",
        "{type: url, sites: github.com}",
        "{type: code, languages: python}",
        "{type: sentiment_shift, at_least: 2}",
    ],
)
def test_the_names_that_people_guess_are_understood(trigger: str) -> None:
    topic, warnings = parse_topic("topics/x.md", f"---\ntriggers:\n  - {trigger}\n---\n")
    assert len(topic.triggers) == 1
    assert warnings == ()


@pytest.mark.parametrize(
    ("front", "says_"),
    [
        (
            "triggers:\n  - type: patern\n    match: x",
            r"line 3: `triggers\.0`: 'patern' is not a type of trigger; did you",
        ),
        ("triggers:\n  - type: telepathy", r"line 3: `triggers\.0`: 'telepathy' is not a type of trigger; the types"),
        ("triggers:\n  - match: x", r"line 3: `triggers\.0`: a trigger needs a `type`"),
        (
            "triggers:\n  - type: url\n  - type: pattern\n    match: '(('",
            r"line 5: `triggers\.1\.match`: invalid regular expre",
        ),
        ("triggers:\n  - {type: pattern, match: /x/q}", r"line 3: `triggers\.0\.match`: 'q' is not a flag"),
        ("triggers:\n  - type: pattern", r"line 3: `triggers\.0\.match`: field required"),
        ("triggers:\n  - {type: pattern, match: x, scope: all}", r"line 3: `triggers\.0\.scope`: .*not 'all'"),
        ("triggers:\n  - {type: cron, schedule: daily}", r"line 3: `triggers\.0\.schedule`: must be a cron expression"),
        (
            "triggers:\n  - {type: cron, schedule: 0 0 31 2 *}",
            r"line 3: `triggers\.0\.schedule`: must be a cron expression",
        ),
        (
            "triggers:\n  - {type: language, match: german}",
            r"line 3: `triggers\.0\.match`: 'german' is not a language code",
        ),
        ("triggers:\n  - {type: webhook, source: a/b}", r"line 3: `triggers\.0\.source`"),
        ("triggers: soon", r"line 2: `triggers\.0`"),
        ("\nactivation: maybe", r"line 3: `activation`: .*not 'maybe'"),
        ("similarity_threshold: 2", r"line 2: `similarity_threshold`"),
        ("max_context_kb: 0", r"line 2: `max_context_kb`"),
        ("type: reference", r"line 2: `type`: 'reference' is not a topic"),
        ("name: '!!'", r"line 2: `name`: '!!' must contain a letter"),
        ("triggers: [", r"line [23]: "),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_field(front: str, says_: str) -> None:
    with pytest.raises(Invalid, match=r"topics/x\.md: " + says_):
        parse_topic("topics/x.md", f"---\n{front}\n---\nbody\n")


@pytest.mark.parametrize(
    ("package", "extra", "front", "where"),
    [
        ("vaderSentiment", "sentiment", "similarity: sentiment", r"line 2: `similarity`"),
        ("py3langid", "language", "triggers:\n  - {type: language, match: de}", r"line 3: `triggers\.0\.match`"),
    ],
)
def test_a_topic_that_needs_a_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, extra: str, front: str, where: str
) -> None:
    text = f"---\n{front}\n---\nbody\n"
    parse_topic("topics/x.md", text)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Invalid, match=rf"{where}: .*{package}.*pip install 'context-manager-mcp\[{extra}\]'"):
        parse_topic("topics/x.md", text)


def test_a_field_that_is_nearly_a_known_one_is_pointed_out() -> None:
    front = "subscription: [a]\ntriggers:\n  - type: pattern\n    match: x\n    correction_hnt: y\ncolour: red"
    _, warnings = parse_topic("topics/x.md", f"---\n{front}\n---\n")
    assert warnings == (
        "topics/x.md: line 2: `subscription` is not a known field; did you mean `subscriptions`?",
        "topics/x.md: line 6: `correction_hnt` is not a known field; did you mean `correction_hint`?",
    )


@pytest.fixture
def topics(tmp_path: Path) -> TopicFiles:
    (tmp_path / "topics").mkdir()
    return TopicFiles(WorkspaceFiles(tmp_path))


def write(root: Path, name: str, text: str) -> None:
    path = root / "topics" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_files_are_read_again_when_they_change_and_only_then(topics: TopicFiles, tmp_path: Path) -> None:
    assert topics.read().topics == {}
    write(tmp_path, "tea.md", "# Tea\n")
    write(tmp_path, "_index.md", "# No topic\n")
    first = topics.read()
    assert list(first.topics) == ["tea"]
    assert topics.read() is first

    assert first.derived("sum", lambda: 7) == first.derived("sum", lambda: 8) == 7
    write(tmp_path, "deep/coffee.md", "# Coffee\n")
    second = topics.read()
    assert list(second.topics) == ["coffee", "tea"]
    assert second.topics["tea"] is first.topics["tea"]
    assert second.derived("sum", lambda: 9) == 9
    (tmp_path / "topics" / "tea.md").unlink()
    assert list(topics.read().topics) == ["coffee"]


def test_a_broken_file_is_named_and_stops_no_other(topics: TopicFiles, tmp_path: Path) -> None:
    write(tmp_path, "bad.md", "---\npriority: urgent\n---\n")
    write(tmp_path, "binary.md", "\0")
    write(tmp_path, "good.md", "# Good\n")
    write(tmp_path, "twin.md", "---\nname: Good\n---\n")
    found = topics.read()
    assert list(found.topics) == ["good"]
    assert [problem.split(".md")[0] for problem in found.problems] == ["topics/bad", "topics/binary", "topics/twin"]
    assert "rename one of them" in found.problems[-1]
    write(tmp_path, "bad.md", "---\npriority: high\n---\n")
    assert sorted(topics.read().topics) == ["bad", "good"]


def test_a_topic_is_found_by_its_name_however_written_or_by_its_path(topics: TopicFiles, tmp_path: Path) -> None:
    write(tmp_path, "email-triage.md", "# Mail\n")
    found = topics.read()
    for name in ("email-triage", "Email Triage", "topics/email-triage.md", "email-triage.md"):
        assert named(found, name) is found.topics["email-triage"]
    assert named(found, "tea") is None


@pytest.mark.skipif(os.name == "nt", reason="symbolic links")
def test_a_topics_folder_that_leads_elsewhere_has_no_topics(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "topics").symlink_to(tmp_path)
    write(tmp_path, "tea.md", "# Tea\n")
    assert TopicFiles(WorkspaceFiles(tmp_path / "w")).read().topics == {}


def test_an_unresolved_conflict_is_no_topic() -> None:
    text = f"{SEED}\n<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> other\n"
    with pytest.raises(Invalid, match=rf"line {SEED.count(chr(10)) + 2} begins an unresolved conflict"):
        parse_topic("topics/email-triage.md", text)


def test_comments_that_never_end_cost_no_time() -> None:
    begun = time.process_time()
    topic, _ = parse_topic("topics/x.md", "# X\n\n<!-- a template's -->\nWhat to do.\n" + "<!-- open\n" * 50_000)
    assert topic.description.startswith("What to do.")
    assert time.process_time() - begun < 5
