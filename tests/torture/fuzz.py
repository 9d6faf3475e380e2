"""Calls that no well-behaved client makes: arguments by each tool's schema and beside it, and raw JSON-RPC lines."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, TextContent

from tests.end_to_end.servers import turns
from tests.end_to_end.test_stdio import raw
from tests.serving import connected
from tests.torture.frame import Case, Trial

T = TypeVar("T")

OUR_FAULT = re.compile(r"Traceback|a bug in context-manager|Error executing tool|\b[A-Z]\w+(?:Error|Exception)\b")

NASTY = [
    "", " ", "\0", "\ud800", "../../etc/passwd", ".git/config", ".local/state.db", "memory://knowledge", "null", "-1",
    "[INST]", "<!-- x -->", "---\na: [\n---", "a" * 5_000, "\u202e\u2066", "ses_1", "9999-12-31", "0001-01-01T00:00Z",
    "'; DROP TABLE files; --", "\"*\" NEAR(", "%00", "C:\\nul", "~", "*", "((((", "\r\n\r\n", "🜁" * 300,
]  # fmt: skip

TEXTS = st.one_of(st.sampled_from(NASTY), st.text(max_size=60))
NUMBERS = st.one_of(st.integers(-3, 300), st.sampled_from([2**31, 2**53 + 1, 2**63, 2**70, -(2**63)]))
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def by_schema(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Returns values that a JSON schema allows, and sometimes values just outside of its limits."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([by_schema(option) for option in schema["anyOf"]])
    match schema.get("type"):
        case "string" if schema.get("format") == "date-time":
            return st.datetimes(timezones=st.just(None) | st.timezones()).map(lambda at: at.isoformat()) | TEXTS
        case "string":
            return TEXTS
        case "integer":
            low, high = schema.get("minimum", -5), schema.get("maximum", 2**70)
            return st.sampled_from([low, low - 1, high, high + 1]) | st.integers(low, high)
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(by_schema(schema.get("items", {})), max_size=4)
        case "object" if "properties" in schema:
            required = set(schema.get("required", ()))
            known = {name: by_schema(value) for name, value in schema["properties"].items()}
            return st.fixed_dictionaries(
                {name: known[name] for name in known if name in required},
                optional={name: known[name] for name in known if name not in required},
            )
        case _:
            return ANYTHING


def examples(trial: Trial, count: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Runs `check` on generated values; Hypothesis shrinks a value that fails."""

    @seed(trial.chance.getrandbits(64))
    @settings(max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def run(value: Any) -> None:
        trial.tally.inputs += 1
        check(value)

    run()


async def tool_calls(trial: Trial) -> None:
    """Calls every tool with generated arguments; each answer is a result or a clear refusal."""
    count = 2 if trial.short else 40
    async with connected(trial.root, profile="full") as client:
        await client.call_tool("observe", {"role": "user", "content": "The blue boat lies in Senj.", "session": "s"})
        for tool in (await client.list_tools()).tools:
            strategy = by_schema(tool.input_schema) | st.dictionaries(
                st.sampled_from([*tool.input_schema["properties"], "zzz"]), ANYTHING, max_size=5
            )

            def check(arguments: dict[str, Any], name: str = tool.name) -> None:
                anyio.from_thread.run(_called, client, name, arguments)

            await anyio.to_thread.run_sync(examples, trial, count, strategy, check)
        answer = await client.call_tool("search", {"query": "blue boat", "scope": "all"})
        assert not answer.is_error, "search fails after the calls"
    for session, spoken in turns(trial.root).items():
        assert [number for number, _ in spoken] == list(range(1, len(spoken) + 1)), f"turns of {session!r}"
    trial.tally.load += 1


async def _called(client: Client, name: str, arguments: dict[str, Any]) -> None:
    result = await _answer(client.call_tool(name, arguments))
    if result is None:
        return
    said = "".join(content.text for content in result.content if isinstance(content, TextContent))
    if result.is_error:
        assert said.strip(), name
        assert not OUR_FAULT.search(said), f"{name}: {said}"


async def _answer(asking: Awaitable[T]) -> T | None:
    """Returns the answer; None for a refusal. Raises MCPError for an internal error, TimeoutError after a minute."""
    try:
        with anyio.fail_after(60):
            return await asking
    except MCPError as error:
        if error.error.code == INTERNAL_ERROR:
            raise
    except UnicodeEncodeError:  # the client itself cannot send half a surrogate pair
        pass
    return None


URIS = st.one_of(
    st.sampled_from(["memory://", "context://compiled/", "context://receipt/", "context://checkpoint/", "x://"]),
    TEXTS,
).flatmap(lambda start: TEXTS.map(lambda rest: start + rest))


async def resources_read(trial: Trial) -> None:
    """Reads resources by generated URIs; none is an internal error."""
    async with connected(trial.root) as client:
        await client.call_tool("observe", {"role": "user", "content": "The blue boat lies in Senj.", "session": "s"})

        def check(uri: str) -> None:
            anyio.from_thread.run(_answer, client.read_resource(uri))

        await anyio.to_thread.run_sync(examples, trial, 15 if trial.short else 300, URIS, check)
    trial.tally.load += 1


METHODS = ["initialize", "tools/call", "tools/list", "resources/read", "prompts/get", "ping", "logging/setLevel", "x"]
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2, None]),
        "id": st.one_of(st.integers(10_000, 2**70), TEXTS, st.none(), st.lists(st.integers(), max_size=2)),
        "method": st.sampled_from(METHODS) | ANYTHING,
        "params": ANYTHING,
        "result": ANYTHING,
        "error": ANYTHING,
    },
)
LINES = st.one_of(
    MESSAGES.map(lambda message: json.dumps(message).encode()),
    ANYTHING.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=80).map(lambda data: data.replace(b"\n", b" ")),
    st.tuples(MESSAGES, st.integers(0, 60)).map(lambda both: json.dumps(both[0]).encode()[: both[1]]),
)


async def raw_lines(trial: Trial) -> None:
    """Sends generated lines to a server's stdin; after each batch a valid call is recorded."""
    sent: list[str] = []

    def run() -> None:
        with raw(trial.root) as server:

            def check(lines: list[bytes]) -> None:
                trial.tally.inputs += len(lines) - 1
                number = len(sent) + 1
                sent.append(f"after {number}")
                arguments = {"role": "user", "content": sent[-1], "session": "s", "turn_id": f"t{number}"}
                server.send(*lines, server.ask(number, "observe", **arguments))
                answer = server.answer(number)
                assert "result" in answer, f"{lines} then {answer}"
                assert not answer["result"].get("isError"), f"{lines} then {answer}"

            examples(trial, 8 if trial.short else 150, st.lists(LINES, min_size=1, max_size=8), check)

    await anyio.to_thread.run_sync(run)
    assert [content for _, content in turns(trial.root)["s"]] == sent
    trial.tally.load += len(sent)


CASES = (
    Case("tool calls", "generated arguments get a result or a clear refusal, from every tool", tool_calls),
    Case("resource URIs", "generated URIs get a resource or a refusal that is no internal error", resources_read),
    Case("raw JSON-RPC", "after generated lines on stdin the next valid call is served and recorded", raw_lines),
)
