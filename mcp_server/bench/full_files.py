"""Identity and memory files as somebody has them after a year: long, full, and about other things."""

from __future__ import annotations

from collections.abc import Mapping

_WHO = (
    "Answer in short paragraphs and say first what changed.",
    "When something is uncertain, name the assumption and how it could be checked.",
    "Never send a message to anybody without showing it first.",
    "Keep one list of open questions and close each with a date.",
    "Ask before a file outside the working folder is touched.",
    "Prefer plain words to terms of the trade when the reader is a customer.",
    "Every figure has its unit beside it and its source below it.",
    "Changes that cannot be undone wait for a second yes.",
)
_MEMORY = (
    "The quarterly report goes to the board on the second Monday.",
    "Invoices are numbered by year and counter, without gaps.",
    "The staging server is restored from the backup of the night before.",
    "Release notes are written before the release, not after it.",
    "The printer on the second floor takes A3 from the lower tray only.",
    "The supplier of cables answers on the phone, never by mail.",
    "Meetings of the works council are in the large room.",
    "Passwords live in the vault; nobody keeps them in notes.",
)


def full_files() -> Mapping[str, str]:
    """Path → text of files that fill every cap of identity and memory at ordinary budgets."""

    def guidance(title: str, rounds: int) -> str:
        sections = (
            f"## {title} {round_}\n\n" + "\n".join(f"- {line} (point {round_}.{n})" for n, line in enumerate(_WHO, 1))
            for round_ in range(1, rounds + 1)
        )
        return f"# {title}\n\n" + "\n\n".join(sections) + "\n"

    entries = (
        f"- 2025-{1 + n // 15 % 12:02d}-{1 + n % 28:02d}: {_MEMORY[n % len(_MEMORY)]} (note {n})" for n in range(170)
    )
    return {
        "knowledge/identity/SOUL.md": guidance("How to be", 6),
        "knowledge/identity/USER.md": guidance("Who the user is", 8),
        "knowledge/identity/AGENTS.md": guidance("How to work", 6),
        "knowledge/identity/TOOLS.md": guidance("Tools", 4),
        "knowledge/memory/MEMORY.md": "# Memory\n\n## Facts\n\n" + "\n".join(entries) + "\n",
        "knowledge/projects/_active.md": "# Active projects\n\n- Moving the archive to new shelves, until autumn.\n",
    }
