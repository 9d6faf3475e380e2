"""Made-up conversations: as many passages as wanted, the same each time, of words as frequent as in talk."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import accumulate

from mcp_server.conversations.imports import ImportedSession, ImportedTurn

TURNS_A_SESSION = 100
SEED = 20
START = datetime(2024, 1, 1, 8, tzinfo=UTC)


class Talk:
    """Sentences by Zipf's law: real words, and rare made-up names and numbers as every project has them."""

    def __init__(self, seed: int = SEED) -> None:
        said = (files("mcp_server.demo") / "conversation.json").read_text(encoding="utf-8").lower()
        self._words = list(dict.fromkeys(re.findall(r"[^\W\d_]{2,}", said)))
        self._weights = list(accumulate(1 / (rank + 1) for rank in range(len(self._words))))
        self._chance = random.Random(seed)

    def sentence(self, length: int) -> str:
        """So many words, one in twenty of them rare."""
        chance = self._chance
        words = chance.choices(self._words, cum_weights=self._weights, k=length)
        return " ".join(w if chance.random() > 0.05 else f"{w}{chance.randrange(5000)}" for w in words) + "."

    def turn(self) -> str:
        """Some sentences: 20 to 90 words."""
        return " ".join(self.sentence(self._chance.randint(8, 18)) for _ in range(self._chance.randint(2, 5)))

    def question(self) -> str:
        """A question as people ask it: mostly common words."""
        return "What did we say about " + self.sentence(self._chance.randint(3, 8)).rstrip(".") + "?"


def sessions(passages: int, seed: int = SEED) -> Iterator[ImportedSession]:
    """Conversations that hold so many turns together; each turn is one passage."""
    talk = Talk(seed)
    for number, first in enumerate(range(0, passages, TURNS_A_SESSION)):
        opened = START + timedelta(hours=5 * number)
        turns = tuple(
            ImportedTurn(
                role="agent" if place % 2 else "user",
                content=talk.turn(),
                at=opened + timedelta(minutes=place),
                turn_id=f"m{place}",
            )
            for place in range(min(TURNS_A_SESSION, passages - first))
        )
        yield ImportedSession(session_id=f"made-up-{number}", turns=turns, source="import:made-up")
