"""Decisions in 60 real answers, labelled by hand.

The answers are every 8.6th of the 516 assistant messages of five BEAM chats (`index * 516 // 60`), which we do not
ship: `decision_labels.json` holds the numbers of chat, message (from 0) and lines (from 1) only. A line is labelled if
the answer commits itself there: it says what it did or will do, chooses one of several ways for this user's work, or
confirms the user's own. Not labelled are instructions, advice, options left open, explanations of code, and results
of calculations. Messages at even places served for tuning; those at odd places were read and labelled only afterwards.

Run with CONTEXT_MANAGER_BEAM=<folder with 1/chat.json … 5/chat.json> and `-s` to see the figures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcp_server.core.checkpoints.decisions import explicit, extract
from mcp_server.core.checkpoints.prose import bare
from mcp_server.core.checkpoints.trigger import decision_at

FOLDER = os.environ.get("CONTEXT_MANAGER_BEAM", "")
LABELS = json.loads(Path(__file__).with_name("decision_labels.json").read_text("utf-8"))

pytestmark = pytest.mark.skipif(
    not (Path(FOLDER) / "1" / "chat.json").is_file() if FOLDER else True,
    reason="needs the BEAM chats: name their folder in CONTEXT_MANAGER_BEAM",
)


@dataclass(frozen=True)
class Sample:
    """An answer, the user's message after it, and the lines that hold a decision."""

    answer: str
    reply: str
    decisions: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    captured: int
    right: int
    with_decision: int

    @property
    def precision(self) -> float:
        return self.right / self.captured if self.captured else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.with_decision if self.with_decision else 1.0


def messages(turns: Sequence[Any]) -> Iterator[dict[str, str]]:
    for item in turns:
        if isinstance(item, list):
            yield from messages(item)
        else:
            yield item


def samples() -> list[Sample]:
    chats = {}
    for number in {label["chat"] for label in LABELS}:
        batches = json.loads((Path(FOLDER) / str(number) / "chat.json").read_text("utf-8"))
        chats[number] = [message for batch in batches for message in messages(batch["turns"])]
    found = []
    for label in LABELS:
        chat, place = chats[label["chat"]], label["message"]
        assert chat[place]["role"] == "assistant"
        lines = chat[place]["content"].splitlines()
        reply = chat[place + 1]["content"] if place + 1 < len(chat) else ""
        decisions = tuple(" ".join(bare(lines[number - 1]).replace("**", "").split()) for number in label["lines"])
        found.append(Sample(chat[place]["content"], reply, decisions))
    return found


def measured(what: str, chosen: Sequence[Sample], capture: Callable[[Sample], str | None]) -> Figures:
    captured = [(capture(sample), sample) for sample in chosen]
    right = sum(
        said is not None and any(said.rstrip("…") in line for line in sample.decisions) for said, sample in captured
    )
    figures = Figures(sum(said is not None for said, _ in captured), right, sum(bool(one.decisions) for one in chosen))
    print(
        f"\n{what}: {len(chosen)} answers, {figures.with_decision} with a decision; captured {figures.captured}, "
        f"right {figures.right}: precision {figures.precision:.2f}, recall {figures.recall:.2f}",
        end="",
    )
    return figures


def by_extraction(sample: Sample) -> str | None:
    return extract(sample.answer)


def by_trigger(sample: Sample) -> str | None:
    return explicit(sample.answer) or decision_at("user", sample.reply, sample.answer)


def test_the_labels_are_sixty_answers_chosen_evenly() -> None:
    assert len(samples()) == len(LABELS) == 60
    sizes = [len(sample.answer) for sample in samples()]
    assert min(sizes) < 1_500 < 4_500 < max(sizes)


def test_what_is_taken_for_a_decision_is_one() -> None:
    every = samples()
    measured("tuning half", every[::2], by_extraction)
    unseen = measured("unseen half", every[1::2], by_extraction)
    assert unseen.captured > 0
    assert unseen.precision >= 0.9


def test_what_the_trigger_takes_down_is_one() -> None:
    every = samples()
    assert measured("tuning half, by the trigger", every[::2], by_trigger).precision >= 0.9
    assert measured("unseen half, by the trigger", every[1::2], by_trigger).precision >= 0.9
