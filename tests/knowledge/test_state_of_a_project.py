"""The state on top of a project's page: what the project is, its last decision, its next step."""

from __future__ import annotations

import pytest

from mcp_server.app import catch_up
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.summaries import with_state
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.text.passages import of_knowledge
from tests.conftest import Clock
from tests.knowledge.test_items import JWT, PAGE, VAULT, snapshot, talk
from tests.understanding.talks import BERTH

pytestmark = pytest.mark.anyio
SRC = "[src: 1](/raw/conversations/2026/02/16/1845-s-talk.md)"
PLAIN = (
    f"# atlas\n\n## Key Decisions\n- 2026-02-16: Use Postgres 15. {SRC}\n- Use tabs, by hand.\n\n"
    f"## Facts\n- 2026-02-16: We draw a new map of the harbor. {SRC}\n\n"
    f"## Open items\n- 2026-02-17: Renew the key. {SRC}\n"
)


def state(memory: Memory) -> list[str]:
    rows = memory.files.read_text(PAGE).split("\n")
    return [row.partition(" [src:")[0] for row in rows if row.startswith("> - ")]


def test_the_state_is_under_the_title_and_writing_it_again_changes_no_byte() -> None:
    page = with_state(PLAIN)
    assert page.startswith(
        f"# atlas\n\n> - What it is: We draw a new map of the harbor {SRC}\n> - Last decision: Use Postgres 15 {SRC}\n"
        f"> - Next: Renew the key {SRC}\n\n## Key Decisions\n"
    )
    assert with_state(page) == page
    assert with_state(f"# atlas\n\n## Facts\n- 2026-02-16: Tea is at four. {SRC}\n").count("> - ") == 0
    own = page.replace("> - Next: Renew the key", "> - Next: my own words").replace(f"words {SRC}", "words")
    assert "> - Next: my own words\n" in with_state(own), "a line without a source is the user's"


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("Sorry in advance, I am no programmer. I'm writing about knots in old rigging.", "I'm writing about knots"),
        ("New repo. Its a seat plan for small theaters on the coast.", "Its a seat plan"),
    ],
)
def test_what_a_project_is_begins_with_a_sentence_that_says_something(said: str, what: str) -> None:
    page = PLAIN.replace("We draw a new map of the harbor.", said)
    assert f"> - What it is: {what}" in with_state(page)


def test_the_next_step_is_the_sentence_that_leaves_something_open() -> None:
    about = "The surveyor tells me that the permit for the crane, once granted, runs for ten years, tested every March."
    more = "I have the feeling that it was lowered in the seventies."
    page = PLAIN.replace("Renew the key.", f"{about} Somebody is to measure whether it clears the gate. {more}")
    assert f"> - Next: Somebody is to measure whether it clears the gate. {more.rstrip('.')} [src" in with_state(page)


def test_search_finds_the_lines_of_a_page_and_not_its_state() -> None:
    assert not any("Last decision" in one.text for one in of_knowledge(PAGE, with_state(PLAIN), 1, {}))


async def test_the_state_follows_the_page(memory: Memory, clock: Clock) -> None:
    await talk(memory, clock, "first", 0, "where do secrets live?", VAULT, "yes please", "Done.", BERTH, "OK.")
    await extract(memory)
    first = f"> - Last decision: {VAULT.rstrip('.')}"
    assert state(memory)[0] == first
    assert "berth" in state(memory)[1]
    before = snapshot(memory)
    assert (await extract(memory, anew=True)).files == {}
    assert snapshot(memory) == before
    await talk(memory, clock, "second", 2, JWT, "OK, Vault uses JWT login now.", "what is next?", "The export.")
    await extract(memory)
    assert "JWT" in state(memory)[0]
    await forget(memory, ForgetTarget(session="second"))
    assert not any("JWT" in row for row in state(memory))
    await extract(memory, anew=True)
    assert state(memory)[0] == first


async def test_a_context_does_not_repeat_the_state(memory: Memory, clock: Clock) -> None:
    await talk(memory, clock, "first", 0, "where do secrets live?", VAULT, "yes please", "Done.")
    await extract(memory)
    await catch_up(memory)
    seen = await compile_context(memory, CompileRequest(project="atlas"), Caller())
    assert "> - Last decision" not in seen.text
    assert seen.text.count("AppRole login") == 1
