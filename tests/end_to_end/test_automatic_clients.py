"""Real clients with our hooks: a fact of one session is in a request of another one, without a tool call.

Every turn is recorded, with its tools, and nothing is left in a client's configuration after `uninstall`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_server.clients.adapters import ADAPTERS
from tests.clients.hooks.boathouse import FACTS
from tests.conftest import project_folder
from tests.end_to_end.fake_models import FakeModels
from tests.end_to_end.programs import CLAUDE, CODEX, PROGRAMS, Desk, Program
from tests.end_to_end.servers import served, transcripts, turns

pytestmark = pytest.mark.anyio

FACT = "For your notes: the staging database is called walrus and listens on port 6543."
ELSEWHERE = "told-elsewhere"
RULE = "Never deploy the harbour app on a Friday."
KNOWN, QUESTION, KEY = FACTS[1]
ABOUT_IT = f"Which port does the staging database listen on? {QUESTION} Now run it."
PUSHED = ("From the memory.", "Memory for this message:")
WITH_THE_PROMPT = "search gives more"  # ends what is pushed with a prompt; a brief has no such line


@pytest.fixture
def api() -> Iterator[FakeModels]:
    with FakeModels() as running:
        running.commands["Now run it"] = "echo ran"
        yield running


@pytest.mark.parametrize("program", [pytest.param(program, id=name) for name, program in PROGRAMS.items()])
async def test_a_fact_told_elsewhere_comes_into_a_session_and_its_transcript_is_recorded_with_its_tools(
    program: Program, api: FakeModels, tmp_path: Path
) -> None:
    desk = Desk(api, tmp_path / "my home")
    desk.prepare(program)
    before = desk.files()
    assert json.loads(desk.our("install", program.client, "--json"))["works"]

    desk.our("remember", RULE, "--kind", "rule")  # comes with the start of a session
    desk.our("remember", KNOWN, "--path", "knowledge/reference/harbour.md")  # comes with a prompt only
    desk.our("observe", FACT, "--session", ELSEWHERE)

    with desk.patient():
        async with served(desk.workspace, env=desk.env):  # a client's own server may start too slowly
            desk.wait_for_server()
            desk.ask(program, ABOUT_IT)
            desk.wait_for_record(ABOUT_IT)
    request = next(request for request in api.requests if ABOUT_IT in request.everything).everything
    for pushed in (RULE, "port 6543", KEY, WITH_THE_PROMPT):
        assert pushed in request
    (row,) = [row for row in json.loads(desk.our("session", "list", "--json")) if row["session"] != ELSEWHERE]
    assert not program.reports_the_end or row["status"] == "closed"
    desk.our("uninstall", program.client)
    assert {name: data for name, data in desk.files().items() if name in before} == before

    ((_, asked), (_, tool), (_, answer)) = turns(desk.workspace)[row["session"]]
    assert (asked.strip('"'), answer) == (ABOUT_IT, "Fine.")
    assert re.match(r"> \[tool:\w+\] say so → .*ran", tool)
    said = "".join(transcripts(desk.workspace).values())
    assert not any(line in said for line in PUSHED)

    own = ADAPTERS[program.client].transcripts_folder(desk.env, desk.home)
    imported = tmp_path / "a memory of the program's own files"
    desk.our("--workspace", str(imported), "import", str(own))
    assert [[line for _, line in said] for said in turns(imported).values()] == [[asked, tool, answer]]


async def test_a_fact_told_in_codex_or_claude_code_arrives_in_the_other_and_a_conversation_goes_on_there(
    api: FakeModels, tmp_path: Path
) -> None:
    desk = Desk(api, tmp_path / "my home")
    project_folder(desk.project, "harbour")
    for program in (CODEX, CLAUDE):
        desk.prepare(program)
        desk.our("install", program.client)
    by_codex, asks_codex, port = FACTS[0]
    by_claude, asks_claude, seconds = FACTS[4]
    prompts = {
        CODEX: f"For your notes: {by_codex}",
        CLAUDE: f"{asks_codex} And for your notes: {by_claude}",
    }
    with desk.patient():
        async with served(desk.workspace, env=desk.env):
            desk.wait_for_server()
            for program, prompt in prompts.items():
                desk.ask(program, prompt)
                desk.wait_for_record(prompt)
            desk.ask(CODEX, asks_claude)
            desk.wait_for_record(asks_claude)
            desk.ask(CLAUDE, "/mcp__memory__resume")
            desk.wait_for_record(asks_claude, answers=2)
    told, in_claude, in_codex, resumed = (request.everything for request in api.requests)
    assert port not in told.replace(by_codex, "")
    assert port in in_claude
    assert seconds in in_codex
    assert f"user: {asks_claude}" in resumed
    desk.our("extract", "--apply")
    assert by_codex in (desk.workspace / "knowledge/projects/harbour/context.md").read_text("utf-8")
    assert {row["project"] for row in json.loads(desk.our("session", "list", "--json"))} == {"name:harbour"}
