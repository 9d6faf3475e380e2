"""A small export of claude.ai, written for these tests."""

from __future__ import annotations

from typing import Any


def chats() -> list[dict[str, Any]]:
    """Two conversations with three messages that have text, and one that has none."""

    def message(number: int, sender: str, text: str) -> dict[str, Any]:
        return {"uuid": f"m{number}", "sender": sender, "created_at": f"2025-03-01T10:0{number}:00Z", "text": text}

    kayak = [
        message(1, "human", "I bought a kayak in Bled."),
        message(2, "assistant", "Which colour is it?"),
        message(3, "human", "  "),
    ]
    return [
        {"uuid": "c1", "name": "Kayaks", "created_at": "2025-03-01T10:00:00Z", "chat_messages": kayak},
        {
            "uuid": "c2",
            "name": "Oboes",
            "created_at": "2025-03-01T10:04:00Z",
            "chat_messages": [message(4, "human", "My sister Lena is learning the oboe.")],
        },
    ]
