"""A model's API on loopback, for the real Claude Code: it writes down what the model would see, and says what the test
wants said.

with FakeAnthropic(lambda asked: Says("Yes.") if "sure" in asked.prompt else Calls("Bash", {"command": "true"})) as api:
    …                                   # run `claude` with ANTHROPIC_BASE_URL=api.url
    assert "harbour" in api.asked[-1].injected
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.answering import Handler, answering

REMINDER = "<system-reminder>"


@dataclass(frozen=True, slots=True)
class Says:
    """The model answers with a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Calls:
    """The model calls a tool."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


Answer = Says | Calls


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for an answer, as the model gets it."""

    body: Mapping[str, Any]

    @property
    def tools(self) -> list[str]:
        """The names of the tools whose schemas are in it."""
        return [tool.get("name", "") for tool in self.body.get("tools", [])]

    @property
    def prompt(self) -> str:
        """The last that the user said, without what the client put around it; empty after a tool's result."""
        said = [message for message in self.body["messages"] if message["role"] == "user"]
        texts = _texts(said[-1]["content"]) if said else []
        return "\n".join(text for text in texts if not text.lstrip().startswith(REMINDER))

    @property
    def injected(self) -> str:
        """What the client added in the system's name: reminders, hooks' context. Not the system prompt."""
        parts: list[str] = []
        for message in self.body["messages"]:
            for text in _texts(message["content"]):
                if message["role"] == "system" or text.lstrip().startswith(REMINDER):
                    parts.append(text)
        return "\n".join(parts)

    @property
    def everything(self) -> str:
        """All that the model sees."""
        return json.dumps(self.body, ensure_ascii=False)


class FakeAnthropic:
    """Serves while the block runs. `asked` are the requests of conversations, in their order; the client's own side
    requests (titles, token counts) are answered and not listed."""

    def __init__(self, answer: Callable[[Asked], Answer] = lambda asked: Says("Understood.")) -> None:
        self.asked: list[Asked] = []
        self._answer = answer
        self._numbers = itertools.count(1)
        self._serving = answering(self._handler())
        self.url = ""

    def __enter__(self) -> Self:
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._serving.__exit__(*error)

    def _reply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | str:
        """Returns the reply to a POST request: a JSON object, or a stream of events."""
        if "count_tokens" in path:
            return {"input_tokens": 100}
        if "/v1/messages" not in path:
            return {}
        message = self._respond(body)
        return "".join(_events(message)) if body.get("stream") else message

    def _respond(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The whole message that answers one request."""
        asked = Asked(body)
        number = next(self._numbers)
        answer: Answer = Says("Noted.")
        if body.get("tools") or _is_compaction(asked):
            self.asked.append(asked)
            answer = self._answer(asked)
        block: dict[str, Any] = (
            {"type": "text", "text": answer.text}
            if isinstance(answer, Says)
            else {"type": "tool_use", "id": f"toolu_{number}", "name": answer.tool, "input": dict(answer.arguments)}
        )
        return {
            "id": f"msg_{number:06d}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [block],
            "stop_reason": "end_turn" if isinstance(answer, Says) else "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }

    def _handler(self) -> type[Handler]:
        api = self

        class Model(Handler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                self.answer(b'{"data": []}')

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
                reply = api._reply(self.path, body)
                kind = "application/json" if isinstance(reply, dict) else "text/event-stream"
                self.answer((json.dumps(reply) if isinstance(reply, dict) else reply).encode(), kind)

        return Model


def _is_compaction(asked: Asked) -> bool:
    return "summary" in asked.prompt[:2000].lower()


def _texts(content: str | Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts of a message; a tool's result is none."""
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content if block.get("type") == "text"]


def _events(message: Mapping[str, Any]) -> Iterator[str]:
    """A message as the stream of events that the real API makes of it."""
    (block,) = message["content"]
    if block["type"] == "text":
        opened, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        opened, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    start = {**message, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    for event in (
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": opened},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
