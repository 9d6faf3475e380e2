"""A real HTTP endpoint that speaks like Anthropic and like OpenAI, and gives the answers that a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.answering import Handler, answering

IN, OUT = 40, 2
"""Tokens that every answer says it took."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: a text in the protocol's own shape, or `raw` bytes in the place of it; `waits` until it is let go.
    `counted`: the tokens it says that it took; `endless`: the bytes come again and again."""

    text: str = ""
    status: int = 200
    raw: bytes | None = None
    retry_after: str | None = None
    waits: bool = False
    location: str | None = None
    endless: bool = False
    counted: tuple[Any, Any] | None = (IN, OUT)


@dataclass(slots=True)
class Endpoint:
    """What is at `url`: it gives `replies` in order, the last one again and again, and keeps what it was asked."""

    url: str
    replies: list[Reply]
    asked: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def endpoint(*replies: Reply) -> Iterator[Endpoint]:
    """Serves on a free port of this machine until the block ends."""
    lock = threading.Lock()

    class Replying(Handler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                served.asked.append(asked)
                reply = served.replies.pop(0) if len(served.replies) > 1 else served.replies[0]
            if reply.waits:
                served.over.wait()
            body = reply.raw if reply.raw is not None else json.dumps(_shaped(self.path, reply, asked)).encode()
            try:
                self.send_response(reply.status)
                self.send_header("content-type", "application/json")
                if not reply.endless:
                    self.send_header("content-length", str(len(body)))
                if reply.location is not None:
                    self.send_header("location", reply.location)
                if reply.retry_after is not None:
                    self.send_header("retry-after", reply.retry_after)
                self.end_headers()
                served.sent += self.wfile.write(body)
                while reply.endless and not served.over.is_set():
                    served.sent += self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client's patience was over first

    with answering(Replying) as url:
        served = Endpoint(url, list(replies))
        try:
            yield served
        finally:
            served.over.set()


def _shaped(path: str, reply: Reply, asked: dict[str, Any]) -> dict[str, Any]:
    if reply.status != 200:
        return {"type": "error", "error": {"type": "some_error", "message": reply.text}}
    if path.endswith("/embeddings"):
        vectors = [
            {"object": "embedding", "index": index, "embedding": _letters(text, asked.get("dimensions", 26))}
            for index, text in enumerate(asked["input"])
        ]
        return {
            "object": "list",
            "model": asked["model"],
            "data": vectors[::-1],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
    of_messages = path.endswith("/messages")
    names = ("input_tokens", "output_tokens") if of_messages else ("prompt_tokens", "completion_tokens")
    usage = {"usage": dict(zip(names, reply.counted, strict=True))} if reply.counted else {}
    if of_messages:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "small",
            "content": [{"type": "text", "text": reply.text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            **usage,
        }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "small",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply.text}}],
        **usage,
    }


def _letters(text: str, dimensions: int) -> list[float]:
    """How often each letter stands in a text: texts of the same letters are near each other."""
    counts = [0.0] * dimensions
    for letter in text.lower():
        if letter.isascii() and letter.isalpha():
            counts[(ord(letter) - ord("a")) % dimensions] += 1
    return counts
