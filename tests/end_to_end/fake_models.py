"""A model endpoint on loopback in the other wire formats: OpenAI's Responses and Chat Completions, and Gemini's."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.end_to_end.fake_anthropic import Answer, Asked, Calls, FakeAnthropic, Says

SHELLS = {"exec_command": "cmd", "run_shell_command": "command", "bash": "command"}
"""The tools of the clients that run a command, and the argument that takes it."""

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the model."""

    path: str
    body: Mapping[str, Any]

    @property
    def everything(self) -> str:
        """All that the model gets."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The conversation, in the client's wire format."""
        return self.body.get("input") or self.body.get("messages") or self.body.get("contents") or []

    @property
    def ran_a_tool(self) -> bool:
        """Whether the last message is the output of a tool."""
        last = self.messages[-1] if self.messages else {}
        return (
            last.get("type") in ("function_call_output", "custom_tool_call_output")
            or last.get("role") == "tool"
            or "functionResponse" in json.dumps(last)
        )


class FakeModels(FakeAnthropic):
    """Also answers in the other formats. `requests` are all requests for an answer, in every format."""

    def __init__(self) -> None:
        super().__init__(self._answer_to_claude)
        self.requests: list[Request] = []
        self.commands: dict[str, str] = {}
        """Words of a prompt → the shell command that the model runs once; every answer is "Fine."."""
        self._ids = itertools.count(1)

    def _reply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | str:
        wires = {r"/responses$": _responses, r"/chat/completions$": _chat, r":(stream)?[gG]enerateContent": _gemini}
        for pattern, wire in wires.items():
            if re.search(pattern, path.partition("?")[0]):
                request = Request(path, body)
                self.requests.append(request)
                return wire(request, self._answer_to(request), f"{next(self._ids):06d}")
        return super()._reply(path, body)

    def _answer_to_claude(self, asked: Asked) -> Answer:
        self.requests.append(Request("/v1/messages", asked.body))
        return Says("Fine.")

    def _answer_to(self, request: Request) -> Answer:
        shell = next((name for name in SHELLS if f'"{name}"' in json.dumps(request.body.get("tools"))), None)
        if shell and not request.ran_a_tool:
            said = json.dumps(request.messages)  # the prompt need not be last: Codex puts a hook's text after it
            if words := next((words for words in self.commands if words in said), None):
                return Calls(shell, {SHELLS[shell]: self.commands.pop(words), "description": "say so"})
        return Says("Fine.")


def _events(events: Iterable[Mapping[str, Any]], *, named: bool = False) -> str:
    return "".join(
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events
    )


def _responses(request: Request, answer: Answer, number: str) -> dict[str, Any] | str:
    item: dict[str, Any] = (
        {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": answer.text, "annotations": []}],
        }
        if isinstance(answer, Says)
        else {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": answer.tool,
            "arguments": json.dumps(answer.arguments),
            "status": "completed",
        }
    )
    response = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": request.body.get("model")}
    usage = {
        **{"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5},
        **{"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15},
    }
    whole = {**response, "status": "completed", "output": [item], "usage": usage}
    if not request.body.get("stream"):
        return whole
    events: list[Mapping[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    if isinstance(answer, Says):
        delta = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        events.insert(2, {"type": "response.output_text.delta", **delta, "delta": answer.text})
    return _events(
        [{**event, "sequence_number": place} for place, event in enumerate(events)],
        named=True,
    )


def _chat(request: Request, answer: Answer, number: str) -> dict[str, Any] | str:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text if isinstance(answer, Says) else None}
    if isinstance(answer, Calls):
        call = {"name": answer.tool, "arguments": json.dumps(answer.arguments)}
        message["tool_calls"] = [{"index": 0, "id": f"call_{number}", "type": "function", "function": call}]
    end = "stop" if isinstance(answer, Says) else "tool_calls"
    whole = {"id": f"chat-{number}", "created": 1, "model": request.body.get("model")}
    if not request.body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": end}
        return {**whole, "object": "chat.completion", "choices": [choice], "usage": USAGE}
    chunk = {**whole, "object": "chat.completion.chunk"}
    parts = [
        {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
        {**chunk, "choices": [], "usage": USAGE},
    ]
    return _events(parts) + "data: [DONE]\n\n"


def _gemini(request: Request, answer: Answer, number: str) -> dict[str, Any] | str:
    part: dict[str, Any] = (
        {"text": answer.text}
        if isinstance(answer, Says)
        else {"functionCall": {"id": f"call_{number}", "name": answer.tool, "args": dict(answer.arguments)}}
    )
    whole = {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
        "modelVersion": "gemini-2.5-flash",
        "responseId": number,
    }
    return _events([whole]) if "stream" in request.path else whole
