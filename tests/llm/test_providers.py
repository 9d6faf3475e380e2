"""Providers against a real endpoint: success, garbage, refusals, time-outs, the cap. The caller always learns which."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.history.committing import commit_changes
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.llm import Llm, LlmUnavailable
from mcp_server.llm.metered import costs
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.status.status import status
from mcp_server.storage import logs
from mcp_server.storage.llm_ledger import LlmLedger, Spent
from mcp_server.text.destinations import GENERAL_PAGE
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import subjects
from tests.llm.endpoint import IN, OUT, Endpoint, Reply, endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("empty_memory", "fast_notes")]

QUOTE = "Marko sails on the Galeb in June."


@pytest.fixture(params=["anthropic", "openai"])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def asking(
    workspace: Path, provider: str, served: Endpoint, clock: Clock | None = None, **knobs: object
) -> AsyncIterator[tuple[Memory, Llm]]:
    """A memory whose LLM is at the endpoint."""
    given = {
        "llm__provider": provider,
        "llm__model": "large",
        "llm__small_model": "small",
        "llm__base_url": served.url,
        "llm__retries": 0,
        "llm__timeout_seconds": 300,  # importing a provider's package takes seconds of CPU
        **{name if "__" in name else f"llm__{name}": knob for name, knob in knobs.items()},
    }
    environ = {f"CONTEXT_MANAGER_{name.upper()}": str(value) for name, value in given.items()}
    key = f"{provider.upper()}_API_KEY"
    async with open_memory(workspace, {**KEYWORDS_ONLY, **environ, key: "not-a-secret"}, clock=clock) as memory:
        assert memory.llm is not None, memory.problems()
        yield memory, memory.llm


def lines(memory: Memory) -> list[dict[str, Any]]:
    return list(logs.newest_first(memory.files, "llm"))


async def test_an_answer_is_given_and_its_cost_entered(workspace: Path, provider: str) -> None:
    with endpoint(Reply("YES")) as served:
        async with asking(workspace, provider, served, small_input_price=1, small_output_price=5) as (memory, llm):
            assert await llm.complete("Is it?", purpose="gate", max_tokens=1) == "YES"
            spent = await costs(memory)
            (line,) = lines(memory)
            shown = await status(memory, "llm")
    assert served.asked[0]["model"] == "small"
    assert served.asked[0]["messages"] == [{"role": "user", "content": "Is it?"}]
    assert served.asked[0]["max_tokens"] == 1
    assert (spent.today.calls, spent.today.input_tokens, spent.today.output_tokens) == (1, IN, OUT)
    assert spent.today.usd == pytest.approx((IN * 1 + OUT * 5) / 1e6)
    assert list(spent.purposes) == ["gate"]
    assert (line["outcome"], line["purpose"], line["model"]) == ("ok", "gate", "small")
    assert "Is it?" not in str(line), "what was asked stays out of the log"
    assert f"{IN + OUT} of" in shown.markdown


UNUSABLE = {
    "html": (Reply(raw=b"<html>not what you think</html>"), "failed"),
    "another shape": (Reply(raw=b'{"unexpected": true}'), "failed"),
    "cut off": (Reply(raw=b"[1, 2"), "failed"),
    "deep": (Reply(raw=b"[" * 200_000), "failed"),
    "no text": (Reply(raw=b'{"choices": [{"message": {"content": {"a": 1}}}], "content": 7, "usage": null}'), "failed"),
    "empty": (Reply(""), "empty"),
    "500": (Reply("overloaded", status=500), "failed"),
    "404": (Reply("no such model", status=404), "failed"),
    "429": (Reply("slow down", status=429, retry_after="1"), "failed"),
}


async def test_texts_are_written_by_the_large_model_and_no_usable_answer_is_said_and_logged(
    workspace: Path, provider: str
) -> None:
    with endpoint(Reply("A summary."), *(reply for reply, _ in UNUSABLE.values())) as served:
        async with asking(workspace, provider, served) as (memory, llm):
            await llm.complete("Sum up", purpose="summary", max_tokens=100)
            assert served.asked[0]["model"] == "large"
            for number, (name, (_, outcome)) in enumerate(UNUSABLE.items(), 1):
                with pytest.raises(LlmUnavailable):
                    await llm.complete("Is it?", purpose="gate", max_tokens=1)
                line, *_ = lines(memory)
                assert line["outcome"] == outcome, name
                assert line["error"], name
                spent = (await costs(memory)).today
                assert (spent.calls, spent.failed) == (1 + number, number), name


async def test_a_refusal_that_passes_is_tried_again_after_the_time_it_names(workspace: Path, provider: str) -> None:
    with endpoint(Reply("slow down", status=429, retry_after="0.01"), Reply("YES")) as served:
        async with asking(workspace, provider, served, retries=1) as (memory, llm):
            assert await llm.complete("Is it?", purpose="gate", max_tokens=1) == "YES"
            (line,) = lines(memory)
    assert len(served.asked) == 2
    assert line["outcome"] == "ok"


@pytest.mark.parametrize(
    ("reply", "knobs", "outcomes"),
    [
        (Reply("late", waits=True), {"timeout_seconds": 0.3, "retries": 3}, {"time-out"}),
        # One of the two packages would wait for an hour, so until the time-out; the other gives up at once.
        (Reply(status=429, retry_after="3600"), {"timeout_seconds": 3, "retries": 3}, {"time-out", "failed"}),
        (Reply(raw=b'{"more": "' + b"a" * 100_000, endless=True), {"timeout_seconds": 60}, {"failed"}),
    ],
    ids=["late", "in an hour", "endless"],
)
async def test_a_request_ends_at_its_timeout_and_an_endless_answer_is_cut_off(
    workspace: Path, provider: str, reply: Reply, knobs: dict[str, Any], outcomes: set[str]
) -> None:
    with endpoint(reply) as served:
        async with asking(workspace, provider, served, **knobs) as (memory, llm):
            with pytest.raises(LlmUnavailable, match="timeout_seconds" if outcomes == {"time-out"} else None):
                await llm.complete("Is it?", purpose="gate", max_tokens=1)
            assert lines(memory)[0]["outcome"] in outcomes
        assert served.sent < 50_000_000
    assert len(served.asked) == 1


async def test_at_the_cap_nothing_is_asked_until_the_next_day(workspace: Path, clock: Clock) -> None:
    with endpoint(Reply("YES")) as served:
        async with asking(workspace, "openai", served, clock, daily_tokens=50) as (memory, llm):
            await llm.complete("Is it?", purpose="gate", max_tokens=1)
            with pytest.raises(LlmUnavailable, match="daily_tokens"):
                await llm.complete("And is this more than may be asked?", purpose="gate", max_tokens=1)
            assert len(served.asked) == 1
            clock.forward(days=1)
            await llm.complete("Is it?", purpose="gate", max_tokens=1)
            assert list((await costs(memory)).days) == ["2026-02-16", "2026-02-17"]


async def test_calls_at_the_same_moment_share_one_cap(workspace: Path, provider: str) -> None:
    """Each alone would stay under it. Another process asks through a memory of its own."""
    with endpoint(Reply("YES", waits=True)) as served:
        async with (
            asking(workspace, provider, served, daily_tokens=150) as (_, one),
            asking(workspace, provider, served, daily_tokens=150) as (_, other),
            anyio.create_task_group() as group,
        ):
            refused: list[LlmUnavailable] = []

            async def ask(llm: Llm) -> None:
                try:
                    await llm.complete("Is it?", purpose="gate", max_tokens=100)
                except LlmUnavailable as error:
                    refused.append(error)
                    served.over.set()

            group.start_soon(ask, one)
            group.start_soon(ask, other)
    assert len(served.asked) == 1
    assert [str(error) for error in refused if "daily_tokens" in str(error)]


async def test_what_a_dead_process_had_reserved_is_free_again(workspace: Path, clock: Clock) -> None:
    with endpoint(Reply("YES")) as served:
        async with asking(workspace, "openai", served, clock, daily_tokens=150) as (memory, llm):
            ledger = LlmLedger(memory.state)
            late = clock.now + timedelta(minutes=2)
            assert await ledger.reserve("2026-02-16", "dead", Spent(1, 0, 100, 0), clock.now, late, 150, 1.0) is None
            with pytest.raises(LlmUnavailable, match="daily_tokens"):
                await llm.complete("Is it?", purpose="gate", max_tokens=100)
            clock.forward(minutes=3)
            assert await llm.complete("Is it?", purpose="gate", max_tokens=100) == "YES"


async def test_an_endpoint_that_counts_nothing_or_nonsense_does_not_get_around_the_cap(
    workspace: Path, provider: str
) -> None:
    counts: list[tuple[Any, Any] | None] = [None, (-1_000_000, -5), ("many", "few"), (0, 0), (10**30, True)]
    answers = 0
    with endpoint(*(Reply("YES, of course, it is as you say", counted=one) for one in counts)) as served:
        async with asking(workspace, provider, served) as (memory, llm):
            for counted in counts:
                before = (await costs(memory)).today
                try:
                    await llm.complete("Is it so? " * 30, purpose="gate", max_tokens=10)
                except LlmUnavailable:  # an answer without counts is none to one of the two packages
                    continue
                answers += 1
                today = (await costs(memory)).today
                assert today.input_tokens - before.input_tokens == 100, counted
                assert 5 < today.output_tokens - before.output_tokens < 15, counted
    assert answers >= 3


async def test_neither_key_nor_prompt_is_sent_on_to_another_address(workspace: Path, provider: str) -> None:
    with endpoint(Reply("YES")) as other, endpoint(Reply(status=307, location=other.url)) as served:
        async with asking(workspace, provider, served) as (memory, llm):
            with pytest.raises(LlmUnavailable, match="another address"):
                await llm.complete("Is it?", purpose="gate", max_tokens=1)
            assert lines(memory)[0]["outcome"] == "failed"
    assert not other.asked


async def test_an_endpoint_that_quotes_what_it_refuses_does_not_get_it_into_the_log(
    workspace: Path, provider: str
) -> None:
    prompt = "The winter berth in Opatija costs 900 a month. Is it?"
    with endpoint(Reply(f"\x1b[31minput: {prompt} is not valid, key sk-ant-{'a1B2' * 10}", status=422)) as served:
        async with asking(workspace, provider, served) as (memory, llm):
            with pytest.raises(LlmUnavailable):
                await llm.complete(prompt, purpose="gate", max_tokens=1)
            with pytest.raises(LlmUnavailable):
                await llm.complete("Else?", purpose="gate", max_tokens=1)
            lines_of = lines(memory)
            said = str(lines_of)
    assert "quoted" in said
    assert "[redacted:" in said
    assert "sk-ant" not in said
    assert not [one for one in lines_of if "\x1b" in one["error"]]


async def test_the_cap_in_dollars_holds_too(workspace: Path) -> None:
    with endpoint(Reply("YES")) as served:
        async with asking(workspace, "openai", served, daily_usd=0.0001, small_output_price=100) as (_, llm):
            with pytest.raises(LlmUnavailable, match="daily_usd"):
                await llm.complete("Is it?", purpose="gate", max_tokens=10)
    assert not served.asked


@pytest.mark.parametrize(
    ("knobs", "environ", "said"),
    [
        ({"provider": "anthropic"}, {}, "ANTHROPIC_API_KEY"),
        ({"provider": "openai"}, {}, "OPENAI_API_KEY"),
        ({"provider": "openai"}, {"OPENAI_API_KEY": "k"}, "llm.model"),
        ({"provider": "openai", "key_variable": "MY_KEY"}, {"OPENAI_API_KEY": "k"}, "MY_KEY"),
    ],
)
async def test_what_an_llm_lacks_is_said_and_everything_else_works(
    workspace: Path, knobs: dict[str, str], environ: dict[str, str], said: str
) -> None:
    given = {f"CONTEXT_MANAGER_LLM__{key.upper()}": value for key, value in knobs.items()}
    async with open_memory(workspace, {**given, **environ}) as memory:
        assert memory.llm is None
        (problem,) = [one for one in memory.problems() if "llm.provider" in one]
        assert said in problem


async def test_an_endpoint_of_ones_own_needs_no_key(workspace: Path) -> None:
    with endpoint(Reply("YES")) as served:
        knobs = {"PROVIDER": "openai", "MODEL": "mine", "BASE_URL": served.url}
        given = {f"CONTEXT_MANAGER_LLM__{key}": value for key, value in knobs.items()}
        async with open_memory(workspace, given) as memory:
            assert memory.llm is not None
            assert await memory.llm.complete("Is it?", purpose="gate", max_tokens=1) == "YES"


async def test_without_a_provider_there_is_none_and_no_complaint(memory: Memory) -> None:
    assert memory.llm is None
    assert not [one for one in memory.problems() if "llm" in one]
    assert (await costs(memory)).total.calls == 0


GARBAGE = Reply("Well, that depends.")
REFUSED = Reply("no money left", status=403)


def logged(memory: Memory) -> dict[str, dict[str, Any]]:
    """The last line of the log for each purpose."""
    return {line["purpose"]: line for line in reversed(lines(memory))}


async def reviewed(memory: Memory) -> bool:
    said = f"Decision: use two files for the cache. {QUOTE}"
    turn = ImportedTurn("user", said, memory.clock(), "k0")
    await record_session(memory, ImportedSession("cache", (turn,), "import:test", title="Cache"))
    await extract(memory)
    text = memory.files.read_text(GENERAL_PAGE)
    assert "use two files for the cache" in text
    return f"- {QUOTE}" in text or f": {QUOTE}" in text


async def test_what_the_model_says_is_taken_and_the_log_says_what_it_was_for(workspace: Path, clock: Clock) -> None:
    answer = json.dumps({"add": [{"kind": "rule", "turn": 1, "quote": QUOTE}]})
    with endpoint(Reply(answer)) as served:
        async with asking(workspace, "openai", served, clock) as (memory, _):
            assert await reviewed(memory)
            assert (logged(memory)["review"]["outcome"], logged(memory)["review"]["model"]) == ("ok", "large")


@pytest.mark.parametrize(("reply", "outcome"), [(GARBAGE, "ok"), (REFUSED, "failed")])
async def test_without_a_usable_answer_the_rules_serve_and_the_log_says_why(
    workspace: Path, clock: Clock, reply: Reply, outcome: str
) -> None:
    with endpoint(reply) as served:
        async with asking(workspace, "openai", served, clock) as (memory, _):
            assert not await reviewed(memory)
            line = logged(memory)["review"]
            assert line["outcome"] == outcome
            assert ("error" in line) is (outcome == "failed")


async def test_gate_and_commit_messages_may_have_models_of_their_own(workspace: Path) -> None:
    own: dict[str, Any] = {"git__commit_message_model": "tiny", "watchers__gate_model": "judge", "small_input_price": 1}
    with endpoint(Reply("memory: Ana lives in Basel now")) as served:
        async with asking(workspace, "openai", served, **own) as (memory, llm):
            await remember(memory, NewFact("Ana moved to Basel"), Caller())
            await commit_changes(memory)
            assert subjects(memory.disk.root, "-1") == ["memory: Ana lives in Basel now"]
            await llm.complete("Is it?", purpose="gate", max_tokens=1)
            await llm.complete("Say more.", purpose="review", max_tokens=9)
            found = logged(memory)
    models = {name: line["model"] for name, line in found.items()}
    assert models == {"commit message": "tiny", "gate": "judge", "review": "large"}
    assert found["gate"]["usd"] > 0
