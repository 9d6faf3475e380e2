"""Small conversations in the shape of the data sets, written for these tests."""

from __future__ import annotations

from typing import Any


def locomo() -> list[dict[str, Any]]:
    """Two friends, two sessions with turns, one that is only announced."""
    return [
        {
            "sample_id": "talk-1",
            "conversation": {
                "speaker_a": "Mira",
                "speaker_b": "Oto",
                "session_1_date_time": "1:56 pm on 8 May, 2023",
                "session_1": [
                    {"speaker": "Mira", "dia_id": "D1:1", "text": "I bought a kayak in Bled."},
                    {
                        "speaker": "Oto",
                        "dia_id": "D1:2",
                        "text": "Show me!",
                        "blip_caption": "a red kayak on a lawn",
                        "img_url": ["https://example.org/kayak.jpg"],
                    },
                    {"speaker": "Mira", "dia_id": "D1:3", "text": "  "},
                ],
                "session_2_date_time": "9:00 am on 2 June, 2023",
                "session_2": [{"speaker": "Oto", "dia_id": "D2:1", "text": "My sister Lena is learning the oboe."}],
                "session_3_date_time": "9:00 am on 3 June, 2023",
            },
            "qa": [
                {"question": "Where was the kayak bought?", "answer": "in Bled", "evidence": ["D1:1"], "category": 4},
                {"question": "What colour is it, who plays?", "evidence": ["D:1:02; D2:1"], "category": 1},
                {"question": "Nothing there", "evidence": ["D9:9"], "category": 5},
                {"question": "No evidence", "evidence": [], "category": 5},
            ],
        }
    ]


def beam() -> list[dict[str, Any]]:
    """Two batches, the first of them with a date."""
    return [
        {
            "batch_number": 1,
            "time_anchor": None,
            "turns": [
                [
                    {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "I keep bees on a roof."},
                    {"role": "assistant", "id": 1, "content": "How many hives?"},
                ],
                [{"role": "user", "id": 2, "content": "Four, and a fifth one in May."}],
            ],
        },
        {
            "batch_number": 2,
            "time_anchor": None,
            "turns": [
                [
                    {
                        "role": "user",
                        "id": 3,
                        "time_anchor": "April-02-2024",
                        "content": "The queen of hive 2 is gone.",
                    },
                    {"role": "oracle", "id": 4, "content": "Hm."},
                    {"role": "assistant", "id": 5, "content": ""},
                    {"role": "assistant", "id": 6, "content": "Requeen within three weeks."},
                ]
            ],
        },
    ]


def probing_questions() -> dict[str, list[dict[str, Any]]]:
    """Questions about `beam()`, with every shape of ids there is."""
    return {
        "abstention": [{"question": "What is the dog's name?"}],
        "knowledge_update": [{"question": "How many hives?", "source_chat_ids": {"first": [2], "second": [[1, 2]]}}],
        "information_extraction": [
            {"question": "Which queen is gone?", "source_chat_ids": [3]},
            {"question": "Nothing", "source_chat_ids": [99]},
        ],
    }
