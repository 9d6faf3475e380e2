"""The page that lists every command of the five designs is true: each command runs on a small workspace."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_server.model import Role
from tests.conftest import Run
from tests.gitting import git
from tests.pressing import converse, errand

PAGE = (Path(__file__).parent.parent / "docs" / "design" / "designs.md").read_text("utf-8")
COMPILER, OTHERS = PAGE.split("\n## Clarity\n")
"""The part about the memory compiler, and the part about the other designs."""

SESSION, ITEM, WORDS, MESSAGE = "s1", "paint-shed", "tulips", "What about the paint-shed?"

Check = tuple[str, Callable[[Any], bool]]
"""A text that the command prints, and a check of its JSON."""

SHOWN: dict[str, Check] = {
    "status clarity": (
        "paint-shed",
        lambda data: data["exchanges"] == 7 and any("paint-shed" in row["id"] for row in data["top"]),
    ),
    "status clarity --scores": (
        "paint-shed",
        lambda data: all(abs(sum(r["terms"].values()) - r["score"]) < 1e-3 for r in data["scores"]),
    ),
    "anchor ITEM": (ITEM, lambda data: ITEM in json.dumps(data)),
    "anchor ITEM --off": (ITEM, lambda data: ITEM in json.dumps(data)),
    "prune --strategy clarity": ("prune clarity", lambda data: data["session"] == SESSION),
    "status clarity --stats": ("items", lambda data: data["items"] > 0),
    "config get clarity": ("half_life", lambda data: data["clarity"]["scoring"]["half_life"] == 5),
    "compile MESSAGE --session SESSION": ("[CLARITY CONTEXT]", lambda data: "[CLARITY CONTEXT]" in json.dumps(data)),
    "status gauges": (SESSION, lambda data: data[0]["limit"] == 1000 and 0 < data[0]["pct_used"] < 0.5),
    "status gauges --notify-if-pct 0.5": ("", lambda data: data == []),
    "status logs": ("Why chunks were dropped", lambda data: data["stats"]["reasons"]["compaction"] > 0),
    "status logs --session SESSION": ("Tokens saved", lambda data: data["stats"]["compaction"]["total"] > 0),
    "recover --session SESSION": ("compaction, score", lambda data: f"session {SESSION}, turn" in data[0]["path"]),
    "prune --strategy compact --session SESSION --apply": (
        "prune compact",
        lambda data: data["after"] <= data["before"],
    ),
    "prune --strategy compact": ("prune compact", lambda data: data["dry_run"] is True),
    "recover": ("cold", lambda data: any(one["kind"] == "cold" for one in data)),
    "recover CHUNK --apply": ("recovered", lambda data: data["applied"] and data["content"]),
    "recover --query WORDS": ("cold", lambda data: any(one["kind"] == "cold" for one in data)),
    "reset": ("Nothing was deleted yet", lambda data: data["done"] is False),
    "reset --apply": ("Done.", lambda data: data["done"] is True),
    "prune --strategy advisor --session SESSION": ("prune advisor", lambda data: data["dry_run"] is True),
    "prune --strategy advisor": ("prune advisor", lambda data: data["strategy"] == "advisor"),
    "prune": ("prune auto", lambda data: data["dry_run"] is True),
    "prune --lexicon": ("layers", lambda data: "layers" in data["lexicon"]),
}


def listed(part: str) -> list[str]:
    """Returns the commands of the tables' second columns, in their order."""
    cells = re.findall(r"^\|[^\n]*?\| (`context-manager [^|]+) \|", part, re.MULTILINE)
    return list(dict.fromkeys(one for cell in cells for one in re.findall(r"`context-manager ([^`]+)`", cell)))


def test_the_page_lists_exactly_what_is_tried_here() -> None:
    assert sorted(listed(OTHERS)) == sorted(SHOWN)


@pytest.mark.usefixtures("empty_memory", "small_contexts", "fast_notes")
def test_every_command_runs_and_shows_something_true(run: Run, workspace: Path) -> None:
    said: list[tuple[Role, str]] = []
    for number in range(7):
        said += [("user", errand(number)), ("agent", f"Part {number} is noted.")]
    converse(workspace, said, SESSION)
    run("status", "index")

    for command in listed(OTHERS):
        text, true = SHOWN[command]
        for more in ((), ("--json",)):
            if "--off" in command:
                run("anchor", ITEM)
            values = {"SESSION": SESSION, "ITEM": ITEM, "WORDS": WORDS, "MESSAGE": MESSAGE}
            if "CHUNK" in command:
                values["CHUNK"] = json.loads(run("recover", "--session", SESSION, "--json"))[0]["id"]
            shown = run(*(values.get(word, word) for word in command.split()), *more)
            if more:
                assert true(json.loads(shown)), (command, shown)
            else:
                assert text in shown, (command, shown)
                assert shown or command == "status gauges --notify-if-pct 0.5"


def test_every_command_for_the_memory_compiler_runs(run: Run, workspace: Path) -> None:
    run("observe", f"Decision: we plant {WORDS} in bed four.", "--session", SESSION)
    run("session", "end", SESSION)
    run("remember", f"The {WORDS} are from Ana.", "--kind", "fact")
    git(workspace, "add", "knowledge")
    git(workspace, "commit", "--quiet", "--message", "memory: tulips")
    commit = git(workspace, "rev-parse", "--short", "HEAD")
    values = {
        **{"SESSION": SESSION, "WORDS": WORDS, "MESSAGE": MESSAGE, "NAME": "trial", "TOPIC": "deployment"},
        **{"PATH": "knowledge/reference/general.md", "DAY": "yesterday", "COMMIT": commit},
    }
    for command in listed(COMPILER):
        words = (re.sub("[A-Z]+", lambda name: values.get(name[0], name[0]), word) for word in shlex.split(command))
        assert run(*words), command
