"""Short conversations for tests of the recognizer. It recognizes their sentences with room to spare."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mcp_server.model import Turn
from mcp_server.understanding.judging import ItemKind
from mcp_server.understanding.model import recognizer
from mcp_server.understanding.recognizer import Item, read

START = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)

HELLO = (
    "morning! where were we with the billing service?",
    "Morning. The invoices table is migrated, and the tests are green.",
)
PROPOSAL = "I'd run the backup of the ledger every night at 02:00 and keep the last 14 copies on the NAS."
OPTIONS = "Ways:\n\n1. Mail them as PDF every night\n2. Upload them to the storage bucket\n3. Print them in the office"
BERTH = "I still have to call Ana about the winter berth."
BERTH_DONE = "btw the berth thing with Ana is done, she signed"


def talk(*said: str) -> list[Turn]:
    """Returns turns of user and agent in turn, after a greeting."""
    return [
        Turn(n, "agent" if n % 2 == 0 else "user", text, START + timedelta(minutes=n))
        for n, text in enumerate((*HELLO, *said), 1)
    ]


def items(*said: str) -> list[Item]:
    return read(talk(*said), recognizer())


def texts(kind: ItemKind, *said: str) -> list[str]:
    return [item.text for item in items(*said) if item.kind == kind]
