"""The screens over a filled memory, without a browser: what they show, and what their forms do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import httpx2
import pytest

from mcp_server.checkpoints import checkpoint
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.push import for_prompt, for_start
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.editing import NewFact
from mcp_server.knowledge.remember import remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.page.door import Door
from mcp_server.storage import logs
from mcp_server.text.destinations import archived_path
from tests.conftest import Clock
from tests.page.test_door import OWN, visitor

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

ME = Caller("tool", "claude-code")
PASSPORT = "My passport lies in the blue drawer of the kitchen."
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> passport '\"><svg/onload=alert(3)> {{ 7*7 }} &lt;"
GENERAL = "knowledge/reference/general.md"


@pytest.fixture
async def site(memory: Memory, clock: Clock) -> AsyncIterator[httpx2.AsyncClient]:
    await observe(memory, NewTurn("user", PASSPORT, "old"), ME)
    await observe(memory, NewTurn("user", HOSTILE, "old"), ME)
    await remember(memory, NewFact("Always answer in grams.", kind="rule", project="global"), ME)
    clock.forward(days=1)
    await memory.index.refresh()
    door = Door(8766)
    async with visitor(memory, door) as client:
        await client.post("/open", content=door.new_code(), headers=OWN)
        yield client


def links(text: str, start: str) -> list[str]:
    """Returns the addresses of a page that begin with `start`."""
    return [unescape(found) for found in re.findall(r'href="([^"]+)"', text) if found.startswith(start)]


def fields(text: str, action: str) -> dict[str, str]:
    """Returns the hidden fields of the first form with this action."""
    form = text.partition(f'action="{action}"')[2].partition("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)
    return {name: unescape(value) for name, value in found}


async def send(site: httpx2.AsyncClient, to: str, /, **form: str) -> str:
    """Sends a form and returns the page that follows."""
    answer = await site.post(to, data=form, headers=OWN)
    if answer.status_code != 303:
        return answer.text
    return (await site.get(answer.headers["location"])).text


async def test_a_push_appears_with_its_text_and_the_words_of_each_passage(
    site: httpx2.AsyncClient, memory: Memory
) -> None:
    done = await for_prompt(memory, "new", "Where is my passport?", ME)
    assert done.text
    listed = (await site.get("/now")).text
    assert "Where is my passport?" in listed
    one = unescape((await site.get(links(listed, "/now/")[0])).text)
    assert done.text in one
    assert PASSPORT in one.partition("In: ")[2]
    assert "user · 2026-02-16" in one
    assert "coverage" in one


async def test_the_list_answers_only_when_something_changed(site: httpx2.AsyncClient, memory: Memory) -> None:
    live = re.findall(r'hx-get="([^"]+)"', (await site.get("/now")).text)[0]
    assert (await site.get(unescape(live))).status_code == 204
    await for_prompt(memory, "new", "Where is my passport?", ME)
    changed = await site.get(unescape(live))
    assert changed.status_code == 200
    assert "Where is my passport?" in changed.text
    assert "<html" not in changed.text


async def test_a_compiled_context_is_logged_and_shown_with_what_stayed_out(
    site: httpx2.AsyncClient, memory: Memory
) -> None:
    made = await compile_context(memory, CompileRequest(message="Where is my passport?"), ME)
    (record,) = logs.newest_first(memory.files, "compiled")
    assert record["text"] == made.text
    assert record["tokens"] == made.tokens
    listed = (await site.get("/now?kind=compiled")).text
    one = unescape((await site.get(links(listed, "/now/")[0])).text)
    assert made.text in one
    assert PASSPORT in one
    assert "Tokens by source" in one


async def test_the_log_of_compiled_contexts_is_bounded_and_holds_no_secret(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_server.context.compile.LONGEST_TEXT", 50)
    monkeypatch.setattr("mcp_server.context.compile.MAX_LEFT_OUT", 3)
    for number in range(12):
        await observe(memory, NewTurn("user", f"The passport number {number} is in the drawer.", f"s{number}"), ME)
    await memory.index.refresh()
    message = "Where is my passport? My key is AKIA" + "IOSFODNN7EXAMPLE."
    made = await compile_context(memory, CompileRequest(message=message, budget=300), ME)
    (record,) = logs.newest_first(memory.files, "compiled")
    assert len(record["text"]) == 50 < len(made.text)
    assert "AKIA" not in record["prompt"]
    assert sum(not one["included"] for one in record["considered"]) <= 3
    outside = [one for one in made.receipt.considered if not one.included]
    assert sum(record["left_out"].values()) == len(outside) + sum(made.receipt.left_out.values()) - 3


async def test_forgetting_a_text_removes_it_from_the_log_of_compiled_contexts(memory: Memory, workspace: Path) -> None:
    await observe(memory, NewTurn("user", PASSPORT, "old"), ME)
    await memory.index.refresh()
    await compile_context(memory, CompileRequest(message="Where is my passport?"), ME)
    log = workspace / ".local/logs/context/compiled.jsonl"
    assert "blue drawer" in log.read_text()
    await forget(memory, ForgetTarget(text="My passport lies in the blue drawer"))
    assert "blue drawer" not in log.read_text()


async def test_a_passage_is_never_pushed_again_until_it_is_allowed(site: httpx2.AsyncClient, memory: Memory) -> None:
    await for_prompt(memory, "one", "Where is my passport?", ME)
    shown = (await site.get(links((await site.get("/now")).text, "/now/")[0])).text
    place = fields(shown, "/never")["place"]
    listed = await send(site, "/never", place=place)
    assert "Never pushed again" in listed
    done = await for_prompt(memory, "two", "Where is my passport?", ME)
    assert "blue drawer" not in done.text
    assert any(row["reason"] == "you said: never push this" for row in done.considered)
    assert "blue drawer" in unescape((await site.get("/find?q=passport")).text)
    number = fields(listed.partition("never pushed</summary>")[2], "/never")["allow"]
    await send(site, "/never", allow=number)
    assert "blue drawer" in (await for_prompt(memory, "three", "Where is my passport?", ME)).text


async def test_a_rule_that_is_never_pushed_leaves_the_brief(site: httpx2.AsyncClient, memory: Memory) -> None:
    assert "grams" in (await for_start(memory, "one", "startup", ME)).text
    line = next(n for n, row in enumerate(memory.files.read_text(GENERAL).split("\n"), 1) if "grams" in row)
    await send(site, "/never", place=f"{GENERAL}:{line}-{line}")
    assert "grams" not in (await for_start(memory, "two", "startup", ME)).text


async def test_pushing_is_paused_and_goes_on(site: httpx2.AsyncClient, memory: Memory) -> None:
    assert "Paused everywhere until" in await send(site, "/pause", **{"for": "2h"})
    assert not (await for_prompt(memory, "one", "Where is my passport?", ME)).text
    assert "added to prompts again" in await send(site, "/resume")
    assert (await for_prompt(memory, "two", "Where is my passport?", ME)).text


async def test_a_line_is_corrected_and_a_change_by_someone_else_is_not_overwritten(
    site: httpx2.AsyncClient, memory: Memory
) -> None:
    edit = links((await site.get("/knows?view=rules")).text, "/knows/edit")[0]
    form = fields((await site.get(edit)).text, "/knows/edit")
    told = await send(site, "/knows/edit", **form, text="Always answer in grams and percent.", how="correct")
    assert "Corrected." in told
    before = memory.files.read_text(GENERAL)
    assert re.search(r"- 2026-02-1[67]: Always answer in grams and percent\.", before)
    late = await site.post("/knows/edit", data={**form, "text": "Ounces.", "how": "correct"}, headers=OWN)
    assert late.status_code == 409
    assert memory.files.read_text(GENERAL) == before


async def test_a_newer_statement_replaces_a_line_which_is_kept(site: httpx2.AsyncClient, memory: Memory) -> None:
    edit = links((await site.get("/knows?view=rules")).text, "/knows/edit")[0]
    form = fields((await site.get(edit)).text, "/knows/edit")
    await send(site, "/knows/edit", **form, text="Ounces are fine from now on.", how="supersede")
    text = memory.files.read_text(GENERAL)
    assert text.index("Ounces are fine") < text.index("Always answer in grams")
    assert "(replaced 2026-02-17" in text


async def test_a_line_that_is_removed_is_in_the_archive(site: httpx2.AsyncClient, memory: Memory) -> None:
    edit = links((await site.get("/knows?view=rules")).text, "/knows/edit")[0]
    form = fields((await site.get(edit)).text, "/knows/edit")
    await send(site, "/knows/edit", **form, how="remove")
    assert "grams" not in memory.files.read_text(GENERAL)
    assert "Always answer in grams" in memory.files.read_text(archived_path(GENERAL)).partition("## Removed")[2]


async def test_forgetting_shows_every_copy_first_and_deletes_only_what_was_shown(
    site: httpx2.AsyncClient, memory: Memory
) -> None:
    ask = links((await site.get("/knows?view=rules")).text, "/forget")[0]
    asked = (await site.get(ask)).text
    assert "Always answer in grams." in asked
    plan = (await site.get(unescape(re.findall(r'hx-get="([^"]+)"', asked)[0]))).text
    assert GENERAL in plan
    assert "grams" in memory.files.read_text(GENERAL)
    form = fields(plan, "/forget")
    wrong = await site.post("/forget", data={**form, "mark": "0"}, headers=OWN)
    assert wrong.status_code == 409
    assert "grams" in memory.files.read_text(GENERAL)
    assert "Forgotten" in await send(site, "/forget", **form)
    assert "grams" not in memory.files.read_text(GENERAL)


async def test_a_proposal_is_approved_only_as_it_was_shown(site: httpx2.AsyncClient, memory: Memory) -> None:
    fact = NewFact("Call me Vesna.", kind="identity", project="global")
    done = await remember(memory, fact, ME)
    assert done.proposal
    shown = (await site.get("/knows")).text
    assert "Call me Vesna." in shown
    await remember(memory, NewFact("I live in Graz.", kind="identity", project="global"), ME, approved=True)
    form = fields(shown, "/knows/decide")
    late = await site.post("/knows/decide", data={**form, "verdict": "approve"}, headers=OWN)
    assert late.status_code == 409
    assert "Call me Vesna." not in memory.files.read_text(done.path)
    again = fields((await site.get("/knows")).text, "/knows/decide")
    assert "Approved" in await send(site, "/knows/decide", **again, verdict="approve")
    assert "Call me Vesna." in memory.files.read_text(done.path)


async def test_a_proposal_is_rejected(site: httpx2.AsyncClient, memory: Memory) -> None:
    done = await remember(memory, NewFact("Call me Vesna.", kind="identity", project="global"), ME)
    form = fields((await site.get("/knows")).text, "/knows/decide")
    assert "Rejected" in await send(site, "/knows/decide", **form, verdict="reject")
    assert "Call me Vesna." not in memory.files.read_text(done.path)
    assert "waits for you" not in (await site.get("/knows")).text


async def test_going_back_to_a_checkpoint_shows_the_change_first(site: httpx2.AsyncClient, memory: Memory) -> None:
    made = await checkpoint.make(memory, "old", "asked", "before the move")
    await observe(memory, NewTurn("user", "The passport is in Graz now.", "old"), ME)
    listed = (await site.get("/days")).text
    assert "before the move" in listed
    path = f"/days/checkpoint/{made.id}"
    assert path in links(listed, "/days/checkpoint/")
    shown = (await site.get(path)).text
    form = fields(shown, path)
    assert "Something changed meanwhile" in await send(site, path, mark="0")
    undo = await send(site, path, **form)
    assert "Went back." in undo
    assert "before going back" in undo


async def test_old_days_are_listed_and_earlier_ones_are_a_click_away(
    site: httpx2.AsyncClient, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_server.page.days.STRIP", 2)
    for year in (2021, 2022, 2023):
        at = datetime(year, 5, 4, 12, tzinfo=UTC)
        session = ImportedSession(f"old-{year}", (ImportedTurn("user", f"We met in {year}.", at, "m1"),), "import:test")
        await record_session(memory, session)
    listed = (await site.get("/days")).text
    (before,) = links(listed, "/days?before=")
    earlier = (await site.get(before)).text
    assert links(earlier, "/days?day=")[0].startswith("/days?day=2021-05-04")
    assert "We met in 2022." in earlier
    assert "Latest days" in earlier


async def test_a_days_commit_shows_its_difference(site: httpx2.AsyncClient, memory: Memory) -> None:
    from mcp_server.history.committing import commit_if_due

    memory.git.commit_files([GENERAL], "memory: a rule")
    await commit_if_due(memory)
    commit = links((await site.get("/days")).text, "/days/commit/")[0]
    shown = (await site.get(commit)).text
    assert "memory: a rule" in shown
    assert '<span class="plus">+- ' in shown


async def test_a_search_explains_its_scores_and_leads_into_the_conversation(site: httpx2.AsyncClient) -> None:
    found = (await site.get("/find?q=passport+drawer&speaker=user&since=2026-02-16")).text
    assert PASSPORT in found
    assert "coverage 0." in found
    inside = (await site.get(links(found, "/find/passage")[0])).text
    assert 'id="meant"' in inside
    assert PASSPORT in inside
    assert "Nothing found." in (await site.get("/find?q=passport&until=2020-01-01")).text


async def test_a_topic_is_tried_and_switched(site: httpx2.AsyncClient) -> None:
    trial = (await site.get("/topics?try=please+review+the+pull+request")).text
    assert "1 of 5 topics would be added" in trial
    assert "is active now" in await send(site, "/topics", name="deployment", on="yes")
    assert "is off now" in await send(site, "/topics", name="deployment", on="no")


async def test_the_state_names_problems_with_their_remedies(site: httpx2.AsyncClient, memory: Memory) -> None:
    await remember(memory, NewFact("Call me Vesna.", kind="identity", project="global"), ME)
    shown = unescape((await site.get("/state?checks=yes")).text)
    assert "1 change waits for your approval" in shown
    assert '<a href="/knows">Decide here</a>' in shown
    assert "every front matter is valid" in shown


async def test_stored_text_is_never_markup(site: httpx2.AsyncClient, memory: Memory) -> None:
    await for_prompt(memory, "new", HOSTILE, ME)
    await compile_context(memory, CompileRequest(message=HOSTILE), ME)
    await remember(memory, NewFact(HOSTILE, kind="rule", project="global"), ME)
    first = [
        "/now",
        "/days",
        "/knows?view=rules",
        "/find?q=alert+passport",
        "/find?q=%3Cscript%3Ealert(1)%3C/script%3E",
    ]
    seen = dict.fromkeys([*first, "/topics?try=%3Cimg+src=x%3E", "/knows?q=%22%3E%3Cimg+src=x%3E"])
    for one in first:
        text = (await site.get(one)).text
        seen |= dict.fromkeys(
            found for start in ("/now/", "/find/", "/knows/edit", "/forget") for found in links(text, start)
        )
    assert len(seen) > 12
    for one in seen:
        text = (await site.get(one)).text
        assert "<script>alert" not in text, one
        assert "<img src=x" not in text, one
        assert "<svg/onload" not in text, one
        assert " 49 " not in text, one
        assert re.findall(r"<[^>]* on\w+=", text) == [], one
        assert re.findall(r"<[^>]* style=", text) == [], one
