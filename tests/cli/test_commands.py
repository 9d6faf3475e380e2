"""Each command does its work on a real workspace, for a person and for a program."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_server.cli.main import main
from tests.clients.importers import data
from tests.conftest import Run

pytestmark = pytest.mark.usefixtures("empty_memory")


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False)
    monkeypatch.setattr("mcp_server.cli.record.sys", SimpleNamespace(stdin=stdin))


def observed(run: Run, *arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run("observe", "--json", *arguments))
    return answer


def test_a_message_is_recorded_once_and_found(run: Run) -> None:
    said = run("observe", "The greenhouse pump needs a new seal.", "--turn-id", "m1")
    session = said.splitlines()[0].removeprefix("session: ")
    again = observed(run, "The greenhouse pump needs a new seal.", "--turn-id", "m1", "--session", session)
    assert (again["recorded"], again["turn"]) == (False, 1)
    assert "greenhouse pump" in run("search", "pump seal")
    (hit,) = json.loads(run("search", "pump seal", "--json"))["hits"]
    assert "greenhouse" in json.dumps(hit)


def test_content_comes_through_a_pipe_without_the_newline_of_echo(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, "čekaj\nmalo\n".encode())
    session = observed(run, "--role", "assistant")["session"]
    shown = json.loads(run("session", "show", session, "--json"))
    assert shown["turns"][0]["content"] == "čekaj\nmalo"
    assert shown["turns"][0]["role"] == "agent"


def test_bytes_that_are_no_text_are_refused_in_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"\xff\xfe")
    error = run("observe", code=1)
    assert error.count("\n") == 1
    assert "UTF-8" in error


def test_sessions_are_listed_shown_and_ended(run: Run) -> None:
    assert "No conversations yet" in run("session", "list")
    session = observed(run, "Hello there, old friend.", "--at", "2026-02-01T10:00:00Z")["session"]
    assert session in run("session", "list")
    assert "old friend" in run("session", "show", session)
    assert f"old friend.\n{session}, open" in run("session", "show", session[:6])
    assert f"did you mean '{session}'?" in run("session", "show", session[:5], code=1)
    observed(run, "Hello there, you.", "--session", f"{session[:6]}-other")
    assert "no session" in run("session", "show", session[:6], code=1)
    run("session", "end", f"{session[:6]}-other")
    assert f"{session} is closed" in run("session", "end", session)
    rows = json.loads(run("session", "list", "--json"))
    assert [row["status"] for row in rows] == ["closed", "closed"]
    assert json.loads(run("session", "list", "--open", "--json")) == []
    assert "context-manager:" in run("session", "end", "nosuch", code=1)


def test_topics_are_listed_and_switched(run: Run, workspace: Path) -> None:
    before = json.loads(run("topics", "list", "--json"))
    activation = {topic["name"]: topic["activation"] for topic in before["topics"]}
    assert list(activation) == ["pull-request-review", "python-3", "deployment", "email-triage", "weekly-review"]
    assert [name for name in activation if activation[name] == "manual"] == ["deployment", "weekly-review"]
    assert before["session"] is None
    assert "no conversation yet" in run("topics", "activate", "deployment", code=1)

    said = run("observe", "Please go through my inbox and sort the unread mails", "--session", "s")
    assert "topics now active: email-triage (pattern “go through my inbox" in said
    listed = run("topics", "list")
    assert "# Topics: 5, 1 active in s" in listed
    assert "for 3 more exchanges" in listed
    assert "deployment is active now, until you deactivate it (session s)" in run("topics", "activate", "Deployment")
    assert json.loads(run("topics", "deactivate", "deployment", "--json"))["changed"] is True
    assert "is already off" in run("topics", "deactivate", "deployment")
    active = json.loads(run("status", "topics", "--session", "s", "--json"))["topics"]["active"]
    assert active.keys() == {"email-triage"}

    (workspace / "topics" / "bad.md").write_text("---\ntriggers:\n  - type: patern\n---\n", encoding="utf-8")
    assert "- topics/bad.md: line 3: `triggers.0`: 'patern' is not a type of trigger" in run("topics", "list")
    assert "did you mean 'email-triage'?" in run("topics", "activate", "emial", code=1)
    assert "no session 'x'" in run("topics", "list", "--session", "x", code=1)


def test_compile_prints_exactly_the_compiled_bytes(
    workspace: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXT_MANAGER_SEARCH__EMBEDDER", "none")
    here = ["--workspace", str(workspace)]
    question = ["compile", "oven degrees bakery", "--budget", "500"]
    assert main([*here, "observe", "The oven in the bakery runs at 235 °C, says Đorđe."]) == 0
    capsysbinary.readouterr()
    assert main([*here, *question]) == 0
    printed = capsysbinary.readouterr().out
    assert main([*here, *question, "--json"]) == 0
    answer = json.loads(capsysbinary.readouterr().out)
    assert printed == answer["text"].encode()
    assert hashlib.sha256(printed).hexdigest() == answer["sha256"] == answer["receipt"]["sha256"]
    assert "Đorđe" in answer["text"]


def test_facts_are_written_and_shown_as_a_diff(run: Run, workspace: Path) -> None:
    assert "+" in run("remember", "The van is serviced in March.", "--kind", "fact", "--project", "global")
    assert "van is serviced" in (workspace / "knowledge/memory/MEMORY.md").read_text(encoding="utf-8")
    done = json.loads(run("remember", "Bread is sold in grams.", "--project", "global", "--json"))
    assert done["path"] == "knowledge/memory/MEMORY.md"


def test_projects_are_listed_renamed_and_merged(run: Run) -> None:
    assert "No projects yet" in run("project", "list")
    observed(run, "First.", "--project", "bakery")
    observed(run, "Second.", "--project", "greenhouse")
    assert {row["slug"] for row in json.loads(run("project", "list", "--json"))} == {"bakery", "greenhouse"}
    assert "bakery would be called ovens: 1 conversation" in run("project", "rename", "bakery", "ovens")
    assert "ovens" in run("project", "rename", "bakery", "ovens", "--apply")
    assert "no project 'bakery'; there are: greenhouse, ovens" in run("project", "merge", "bakery", "ovens", code=1)
    assert "no project 'oven'; did you mean 'ovens'?" in run("project", "merge", "greenhouse", "oven", code=1)
    run("project", "merge", "greenhouse", "ovens", "--apply")
    (row,) = json.loads(run("project", "list", "--json"))
    assert (row["slug"], row["sessions"]) == ("ovens", 2)
    assert "ovens" in run("project", "list")


def test_after_a_merge_the_core_memory_has_one_line_of_the_project(run: Run, workspace: Path) -> None:
    for project, said in (("bakery", "Decision: the oven is a Bongard"), ("greenhouse", "Decision: basil in row two")):
        observed(run, said, "--project", project, "--session", project)
        run("session", "end", project)
    core = workspace / "knowledge/memory/MEMORY.md"
    assert core.read_text("utf-8").count("decided: ") == 2
    run("project", "merge", "bakery", "greenhouse", "--apply")
    (line,) = [row for row in core.read_text("utf-8").splitlines() if "decided: " in row]
    assert "[[greenhouse/context|greenhouse]] — decided: " in line


def test_files_are_imported_and_searchable_at_once(run: Run, tmp_path: Path) -> None:
    chats = data.chats()
    said = "From here on write all commit messages in English."
    chats[1]["chat_messages"][0]["text"] = said
    (tmp_path / "talk.json").write_text(json.dumps(chats), encoding="utf-8")
    told = run("import", str(tmp_path / "talk.json"))
    assert "2 sessions, 3 turns" in told
    assert " 1 rule, " in told.partition("Learned: ")[2]
    assert said in told
    assert json.loads(run("import", str(tmp_path / "talk.json"), "--json"))["new_turns"] == 0
    assert "kayak" in run("search", "kayak")


def test_the_index_is_rebuilt_and_tells_its_state(run: Run) -> None:
    observed(run, "Something to find.")
    assert json.loads(run("reset", "--index", "--apply", "--json"))["passages"] >= 1
    assert "passages" in run("status", "index")
    assert "Nothing was changed yet" in run("reset", "--index")


def test_an_earlier_version_is_listed_shown_and_brought_back(run: Run, workspace: Path) -> None:
    user = workspace / "knowledge/identity/USER.md"
    first = user.read_text(encoding="utf-8")
    assert "Nothing to recover" in run("recover")
    user.write_text("All is lost.\n", encoding="utf-8")
    (listed,) = json.loads(run("recover", "--json"))
    assert listed["id"] in run("recover", "--query", "who the user is")
    assert f"recover {listed['id']} --apply" in run("recover", listed["id"])
    assert user.read_text(encoding="utf-8") == "All is lost.\n"
    undo = json.loads(run("recover", listed["id"], "--apply", "--json"))["undo"]
    assert user.read_text(encoding="utf-8") == first
    assert "Undo it with: context-manager recover before-" in run("recover", undo, "--apply")
    assert user.read_text(encoding="utf-8") == "All is lost.\n"
    assert "--query" in run("recover", listed["id"], "--query", "x", code=2)
    assert "--apply needs" in run("recover", "--apply", code=2)
    assert "context-manager:" in run("recover", "nothing", code=1)


def test_status_shows_how_full_each_open_conversation_is(run: Run) -> None:
    run("observe", "The greenhouse pump needs a new seal.")
    shown = run("status")
    assert "·········· 0% of 200,000  The greenhouse pump" in shown
    assert "·" not in run("status", "--json")


def test_notes_of_a_project_without_one_name_the_option(run: Run) -> None:
    note = ("remember", "The API is frozen.", "--kind", "project")
    assert "--project NAME" in run(*note, code=1)
    assert "knowledge/projects/atlas/notes.md" in run(*note, "--project", "atlas")
