"""`extract`, `condense`, `prune PATH` and `reconstruct` for a person and for a program."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.model import Hit
from mcp_server.search.search import SearchRequest, find
from tests.conftest import Run
from tests.llm.endpoint import Reply, endpoint

pytestmark = pytest.mark.usefixtures("empty_memory")


def test_a_conversation_becomes_knowledge_when_it_ends_and_can_be_looked_at_before(run: Run, workspace: Path) -> None:
    run("observe", "We have two kittens called Pip and Mia.", "--session", "s")
    looked = run("extract", "--session", "s")
    assert "+## About" in looked
    assert "Nothing was changed yet" in looked
    assert not (workspace / "knowledge/people/user.md").exists()
    run("session", "end", "s")
    assert "kittens" in (workspace / "knowledge/people/user.md").read_text()
    assert "1 known already" in run("extract", "--apply")
    assert json.loads(run("extract", "--anew", "--json"))["files"] == []
    assert "no extractor 'x'" in run("extract", "--only", "x", code=1)


def test_a_conversation_that_ended_is_indexed_and_read_for_the_next_window(
    run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTEXT_MANAGER_SEARCH__EMBEDDER")
    run("observe", "I decided to keep Postgres 15 for the billing tables.", "--session", "s")
    run("observe", "We have two kittens called Pip and Mia.", "--session", "s")
    run("session", "end", "s")

    async def found() -> tuple[Hit, ...]:
        async with open_memory(workspace, {}) as memory:
            return (await find(memory, SearchRequest("which database do the billing tables use?", page=True))).page

    hits = anyio.run(found)
    assert "Postgres 15" in "".join(hit.passage.text for hit in hits)
    assert all(hit.about is not None for hit in hits), "the network has read them"


def test_condensing_and_archiving_say_what_they_did(run: Run, workspace: Path) -> None:
    run("observe", "I decided to keep Postgres 15 for the billing tables.", "--session", "s")
    run("observe", "We have two kittens called Pip and Mia.", "--session", "s")
    run("session", "end", "s")
    memory = workspace / "knowledge/memory/MEMORY.md"
    memory.write_text("\n".join(row for row in memory.read_text().split("\n") if "kittens" not in row))
    assert "+- " in run("condense", "weekly")
    assert (
        json.loads(run("condense", "weekly", "--apply", "--json"))["files"][0]["path"] == "knowledge/memory/MEMORY.md"
    )
    assert "0 files changed" in run("condense", "weekly", "--apply")
    assert "knowledge/people/_index.md" not in run("condense", "daily")
    (journal,) = (workspace / "knowledge/journal").glob("*.md")
    path = f"knowledge/journal/{journal.name}"
    assert "would go" in run("prune", path)
    assert journal.exists()
    assert "bring back: recover" in run("prune", path, "--apply")
    assert (workspace / "archive/journal" / journal.name).exists()
    assert json.loads(run("prune", "--strategy", "files", "--json"))["fates"] == []
    assert "PATH cannot be used with" in run("prune", path, "--strategy", "memory", code=2)


def test_a_reconstruction_by_another_model_is_named_after_it_and_says_what_a_merge_did(
    run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("observe", "I adopted two kittens in Zagreb yesterday.", "--session", "s")
    run("session", "end", "s")
    assert "llm.provider" in run("reconstruct", "create", "b", "--model", "better", code=2)
    assert "exclude each other" in run("reconstruct", "create", "b", "--model", "better", "--no-model", code=2)
    quote = "I adopted two kittens in Zagreb yesterday."
    with endpoint(Reply(json.dumps({"add": [{"kind": "rule", "turn": 1, "quote": quote}]}))) as served:
        for name, value in {"PROVIDER": "openai", "MODEL": "large", "BASE_URL": served.url}.items():
            monkeypatch.setenv(f"CONTEXT_MANAGER_LLM__{name}", value)
        made = json.loads(run("reconstruct", "create", "b", "--model", "better", "--json"))
        run("reconstruct", "create", "rules", "--no-model")
    assert made["by"].startswith("better; ")
    assert {asked["model"] for asked in served.asked} == {"better"}
    assert "better; decisions" in " ".join(run("reconstruct", "list").split())
    shown = run("reconstruct", "compare", "b", "rules")
    assert "b: " in shown
    assert "rules: " in shown
    assert "merge b --apply" in run("reconstruct", "merge", "b")
    merged = run("reconstruct", "merge", "b", "--apply")
    assert "merged as" in merged
    assert "tagged memory/extract/b" in merged
    assert quote in (workspace / "knowledge/reference/general.md").read_text()
    assert "rules is dropped" in run("reconstruct", "drop", "rules", "--apply")
    assert "memory/extract/b" in run("history", "tags")
