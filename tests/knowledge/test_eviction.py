"""Which knowledge files are archived, by values calculated by hand, and which never are."""

from __future__ import annotations

import pytest

from mcp_server.knowledge.prune_knowledge import KnowledgeFile, decide, score
from mcp_server.text.destinations import archived_path


def file(
    path: str = "knowledge/reference/old.md", days: int = 200, unchanged: int = 200, references: int = 0
) -> KnowledgeFile:
    return KnowledgeFile(path, days, unchanged, references)


def goes(*files: KnowledgeFile) -> list[bool]:
    return [one.fate == "gone" for one in decide(files)]


@pytest.mark.parametrize(
    ("days", "references", "total"), [(0, 0, 1.0), (14, 0, 0.4966), (14, 3, 1.9863), (92, 0, 0.01005), (93, 0, 0.00956)]
)
def test_the_score_is_decay_times_references(days: int, references: int, total: float) -> None:
    assert score(days, references) == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize(
    ("days", "references", "gone"),
    [(92, 0, False), (93, 0, True), (105, 1, False), (106, 1, True), (138, 9, False), (139, 9, True)],
)
def test_a_file_goes_under_a_hundredth_of_a_point(days: int, references: int, gone: bool) -> None:
    assert goes(file(days=days, references=references)) == [gone]


@pytest.mark.parametrize(
    "path",
    [
        "knowledge/identity/USER.md",
        "knowledge/memory/MEMORY.md",
        "knowledge/people/_index.md",
        "knowledge/projects/_active.md",
    ],
)
def test_identity_core_memory_and_indexes_never_go(path: str) -> None:
    assert goes(file(path, 5000)) == [False]


def test_what_is_spared_or_was_changed_lately_stays_and_says_why() -> None:
    spared, changed, read, unread = decide(
        [
            KnowledgeFile("knowledge/a.md", 900, 900, 0, spared="anchored"),
            file("knowledge/b.md", 800, 5),
            KnowledgeFile("knowledge/c.md", 700, 700, 2, unread=30),
            KnowledgeFile("knowledge/d.md", 600, 600, 2, unread=31),
        ]
    )
    assert (spared.fate, spared.why) == ("keep", "anchored")
    assert (changed.fate, changed.why) == ("keep", "changed on disk lately")
    assert (read.fate, read.why, unread.fate) == ("keep", "read lately", "gone")


def test_a_file_goes_to_its_place_in_the_archive() -> None:
    assert archived_path("knowledge/people/ana.md") == "archive/people/ana.md"
