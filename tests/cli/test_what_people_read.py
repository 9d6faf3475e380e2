"""The output of the commands is correct, complete and in plain words: problems that a new user met."""

from __future__ import annotations

import json
import socket
from datetime import datetime
from pathlib import Path

import pytest

from mcp_server.text.markdown import minute_text
from tests.cli.test_commands import pipe
from tests.conftest import Run

pytestmark = pytest.mark.usefixtures("empty_memory", "fast_notes")


def test_lines_of_several_files_stand_under_their_own_file(run: Run, workspace: Path) -> None:
    for name in ("ana", "bo"):
        (workspace / f"knowledge/people/{name}.md").write_text(
            f"# {name}\n\n- lives in Basel [src: raw/conversations/{name}.md#1]\n"
        )

    said = run("history", "where", "lives in Basel")

    places = [said.index(place) for place in ("people/ana.md", "/ana.md#1", "people/bo.md", "/bo.md#1")]
    assert places == sorted(places)
    assert "[src:" not in said


def test_nothing_is_recorded_of_an_empty_message(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b" \n")
    assert "nothing to record" in run("observe", code=1)
    assert "No conversations yet" in run("session", "list")


def test_what_is_hidden_since_a_recovery_is_not_shown_and_can_be(run: Run) -> None:
    run("observe", "Plan the statement export", "--session", "s1")
    made = json.loads(run("checkpoint", "create", "--session", "s1", "--json"))["id"]
    run("observe", "Let us write CSV instead", "--session", "s1")
    run("recover", made, "--apply")

    shown = run("session", "show", "s1")

    assert "statement export" in shown
    assert "CSV" not in shown
    assert "wound back to turn 1: turn 2 is hidden" in shown
    assert "CSV" in run("session", "show", "s1", "--all")
    told = json.loads(run("session", "show", "s1", "--json"))
    assert (told["seen"], len(told["turns"])) == (1, 2)
    whole = run("read", told["paths"][0])
    assert "CSV" in whole
    assert "turn 2 is hidden" in whole
    run("observe", "CSV it is", "--session", "s1")
    assert "hidden" not in run("session", "show", "s1")


def test_a_checkpoint_is_listed_with_its_time_subject_and_next_step_and_its_id_last(run: Run) -> None:
    run("observe", "Which store should the ledger of the harbor have?", "--session", "s1")
    run("observe", "SQLite it is. Next step: move the old invoices.", "--session", "s1")
    made = json.loads(run("checkpoint", "create", "--session", "s1", "--note", "before SQLite", "--json"))
    about = "Which store should the ledger of the harbor have?; next: move the old invoices."
    for command in (("checkpoint", "list"), ("recover",)):
        (line,) = [line for line in run(*command).splitlines() if made["id"] in line]
        assert line.strip().startswith(minute_text(datetime.fromisoformat(made["at"])))
        assert about in line
        assert "(asked for: before SQLite)" in line
        assert line.rstrip().endswith(made["id"])


def test_who_asks_for_a_session_or_a_project_that_there_is_not_is_told(run: Run) -> None:
    run("observe", "The pump needs a new seal", "--session", "pump-talk", "--project", "greenhouse")
    assert "did you mean 'pump-talk'?" in run("search", "pump", "--session", "pump-tlak", code=1)
    for command in ("search", "compile"):
        assert "did you mean 'greenhouse'?" in run(command, "pump", "--project", "grenhouse", code=1)
        run(command, "pump", "--project", "greenhouse")


def test_projects_are_shown_by_the_name_that_people_gave_them(run: Run) -> None:
    run("observe", "The pump needs a new seal", "--session", "s1", "--project", "greenhouse")
    assert "name:" not in run("session", "list")
    assert "project greenhouse" in run("compile", "pump seal", "--session", "s1", "--explain")
    run("project", "rename", "greenhouse", "glasshouse", "--apply")
    assert " glasshouse " in run("session", "list")


def test_who_asks_why_something_is_not_in_a_context_is_told(run: Run, workspace: Path) -> None:
    for project in ("greenhouse", "boat"):
        run("observe", "We begin.", "--session", project, "--project", project)
    src = "[src: raw/conversations/2026/02/16/1845-s-talk.md#1]"
    rows = ["- 2026-02-10: The pump runs on 12 volts.", "- 2026-02-11: The pump runs on 24 volts instead of 12."]
    notes = workspace / "knowledge/projects/greenhouse/notes.md"
    notes.parent.mkdir(parents=True, exist_ok=True)
    notes.write_text("\n".join(["# greenhouse", "", "## Facts", *(f"{row} {src}" for row in rows), ""]), "utf-8")
    journal = workspace / "knowledge/journal/2026-02-11.md"
    journal.write_text(f"## 2026-02-11\n\n### boat\n- The bilge pump runs on 6 volts. {src}\n", "utf-8")
    asked = ("compile", "How many volts does the pump run on?", "--project", "greenhouse")
    shown = run(*asked, "--explain")
    assert "no longer so: a newer line says otherwise" in shown
    assert "another project's: boat" in shown
    assert "knowledge/journal/2026-02-11.md:4-4" in shown
    context = run(*asked)
    assert "24 volts" in context
    assert "on 12 volts" not in context
    assert "bilge" not in context


def test_status_is_short_and_in_words(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXT_MANAGER_ADVISOR__ENABLED", "false")
    said = run("status")
    assert "None" not in said
    assert "## LLM" in said
    assert "half life" not in said
    assert "## Settings\n- search:\n  - embedder: none\n- advisor:\n  - enabled: no\n" in said
    assert "half life: 5\n" in run("status", "settings")


def test_in_a_narrow_terminal_a_row_is_a_paragraph_and_no_id_is_cut(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "11111111-2222-4333-8444-555555555555"
    run("observe", "Plan the statement export, which is due on the third of the month", "--session", name)
    for width, table in ((50, False), (80, False), (160, True)):
        monkeypatch.setenv("COLUMNS", str(width))
        said = run("session", "list")
        assert name in said
        assert ("─" in said) == table
        assert max(map(len, said.splitlines())) <= width


def test_the_path_of_a_passage_is_whole_so_that_it_can_be_read(run: Run) -> None:
    run("observe", "The greenhouse pump needs a new seal before the frost comes", "--session", "a" * 60)
    found = run("search", "pump seal")
    (line,) = [line for line in found.splitlines() if "raw/conversations/" in line]
    path = line.split()[1].rpartition(":")[0]
    assert "pump" in run("read", path)


def test_a_checkpoint_made_by_hand_says_which_command_goes_back(run: Run) -> None:
    run("observe", "Plan the statement export", "--session", "s1")
    said = run("checkpoint", "create", "--session", "s1")
    assert "context-manager recover ckp_" in said
    assert "recover(id=" not in said


def test_a_date_is_said_in_the_same_words_everywhere(run: Run) -> None:
    run("status", "logs", "--since", "yesterday")
    run("search", "pump", "--since", "yesterday")
    assert "%Y" not in run("status", "logs", "--help")


def test_the_passages_of_a_search_are_paragraphs_in_a_terminal_of_80_columns(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("observe", "The greenhouse pump needs a new seal before the frost comes. " * 3, "--session", "s1")
    for width, table in ((80, False), (160, True)):
        monkeypatch.setenv("COLUMNS", str(width))
        found = run("search", "pump seal")
        assert ("─" in found) == table
        assert len(found.splitlines()) < 20
        assert max(map(len, found.splitlines())) <= width


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["serach", "pump"], 2, ["no command 'serach'", "did you mean 'search'?"]),
        (["session", "show", "ses_nope"], 1, ["no session 'ses_nope'", "`session list` shows them"]),
        (["checkpoint", "show", "nope"], 1, ["no checkpoint 'nope'", "lists them"]),
        (["recover", "nope"], 1, ["'nope' names nothing to recover", "`recover` lists"]),
        (["read", "knowledge/none.md"], 1, ["no file 'knowledge/none.md'", "use search to find stored texts"]),
        (["import", "nothing.zip"], 2, ["'nothing.zip' does not exist", "import --help"]),
        (["search", "pump", "--limt", "3"], 2, ["No such option '--limt'", "Did you mean '--limit'?"]),
        (["search", "pump", "--since", "soon"], 1, ["since='soon' is not a date", "2026-05-08"]),
        (["remember", ""], 1, ["nothing to remember"]),
        (["compile", "oven", "--budget", "5"], 1, ["128"]),
        (["config", "set", "serach.embedder", "none"], 2, ["no setting 'serach.embedder'", "'search.embedder'?"]),
        (["config", "set", "search.embedder", "x"], 2, ["cannot be 'x'", "'wordllama'"]),
        (["--workspace", "foreign", "search", "x"], 1, ["is not a memory", "nothing was written", "init --adopt"]),
        (["forget"], 2, ["give TEXT, --turn"]),
        (["forget", "it"], 1, ["fewer than 3"]),
        (["forget", "--path", "knowledge/memory/MEMORY.md", "--lines", "x"], 2, ["A-B"]),
        (["approve", "--apply"], 2, ["name a proposal"]),
        (["approve", "x", "--all"], 2, ["not both"]),
        (["approve", "x"], 1, ["no proposal 'x'"]),
        (["--workspace", "none", "search", "x"], 1, ["there is no memory in", "init"]),
        (["status", "--workspace", "x"], 2, ["context-manager --workspace DIR"]),
        (["--json", "status"], 2, ["context-manager COMMAND --json"]),
        (["status", "nope"], 2, ["No such command 'nope'"]),
        (["status", "logs", "--since", "soonish"], 2, ["'soonish' is not a date; write 2026-03-01"]),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_wrong_input_gets_one_line_that_says_what_is_wrong_and_what_to_do(
    run: Run, tmp_path: Path, arguments: list[str], code: int, says: list[str]
) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("Dear Ana")
    said = run(*arguments, code=code)
    assert said.count("\n") == 1
    assert all(words in said for words in says)
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["letter.txt"]


def test_a_binary_file_is_named_and_not_imported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "photo.md").write_bytes(bytes(range(256)) * 8)
    run("import", str(tmp_path / "photo.md"), code=1)
    assert json.loads(run("status", "sizes", "--json"))["sizes"]["bytes"]["raw"] == 0


def test_wrong_yaml_is_named_with_its_file_and_line_and_the_memory_still_answers(run: Run, workspace: Path) -> None:
    run("observe", "The greenhouse pump needs a new seal", "--session", "s1")
    (workspace / "memory-config.yaml").write_text("search: [1\nb: 2\n")
    assert "memory-config.yaml: line 1: the list that opens here" in run("status")
    assert "pump" in run("search", "pump")


def test_without_a_server_the_commands_work_and_a_taken_port_is_named(run: Run) -> None:
    run("observe", "The greenhouse pump needs a new seal", "--session", "s1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in run("serve", "--http", "--port", str(port), code=1)


def test_a_date_that_is_none_is_named_beside_the_hits(run: Run) -> None:
    run("observe", "The pump needs a new seal")
    assert "since:banana is not a date" in json.loads(run("search", "pump since:banana", "--json"))["notes"][0]
