"""Items are shortened to their likeliest clauses, and together to a number of tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.context import briefs, windows
from mcp_server.context.inputs import Recognized
from mcp_server.context.push_policy import LONGEST
from mcp_server.context.slots.checkpoint import Entry, condensed, telegraphic
from mcp_server.conversations.projects import project_of
from mcp_server.memory import Memory
from mcp_server.model import Caller, Project
from mcp_server.tokens import Meter
from tests.conftest import Clock
from tests.knowledge.tea_project import talk

pytestmark = pytest.mark.anyio

PARTITIONS = (
    "That was a long week for all of us here. I'd partition `tracking_events` by month, and drop a partition when it "
    "is older than 120 days, because that is instant. (amended: Make it 180 days rather than 120.)"
)


def meter() -> Meter:
    return Meter(lambda text: -(-len(text) // 4))


def test_the_clauses_with_names_numbers_and_verbs_are_kept_and_small_talk_goes() -> None:
    (line,) = condensed([Entry(Recognized(PARTITIONS))], 35, meter())
    assert "partition `tracking_events` by month" in line
    assert line.endswith("(amended: Make 180 days rather than 120.)")
    assert "week" not in line


def test_an_amended_proposal_is_never_shown_without_the_amendment() -> None:
    for tokens in range(5, 80):
        (line,) = condensed([Entry(Recognized(PARTITIONS))], tokens, meter())
        assert "120 days" not in line or "180" in line


def test_with_room_enough_all_words_stay() -> None:
    assert condensed([Entry(Recognized(PARTITIONS))], 200, meter()) == [f"- {PARTITIONS}"]


def test_a_doubtful_item_gives_way_to_a_sure_one() -> None:
    doubtful = Entry(Recognized("Let's have a nice day together", 0.3))
    sure = Entry(Recognized("Let's keep the ledger in SQLite"))
    assert condensed([doubtful, sure], 9, meter()) == ["", "- Let's keep the ledger in SQLite"]


def test_negations_conditions_and_code_survive_without_the_words_around_them() -> None:
    assert telegraphic("It is not in the env files unless `the.key` is there") == "not env files unless `the.key` there"
    assert telegraphic("the") == "the"


WORDS = st.text(max_size=300)


@given(
    st.lists(st.builds(Entry, st.builds(Recognized, WORDS, st.floats(0, 1), WORDS, WORDS)), max_size=20),
    st.integers(0, 300),
)
def test_the_lines_never_take_more_than_the_tokens(entries: list[Entry], tokens: int) -> None:
    lines = condensed(entries, tokens, meter())
    assert len(lines) == len(entries)
    assert sum(map(meter().line, filter(None, lines))) <= tokens


def on_disk(memory: Memory, name: str) -> str:
    return memory.files.read_text(f"{briefs.FOLDER}/{name}")


async def test_a_new_memory_has_nothing_to_tell(memory: Memory) -> None:
    assert (await briefs.make(memory, Project())).text == ""
    assert await briefs.refresh(memory) == 1
    assert on_disk(memory, "global.md") == ""
    assert json.loads(on_disk(memory, "index.json")) == {"": {"brief": "global.md", "projects": []}}


async def test_it_tells_who_what_lasts_and_the_project_and_nothing_that_was_said(memory: Memory, folder: Path) -> None:
    said = ("Buy oolong from Uji.", "Ordered.", "Two tins?", "Two.", "And the kettle?", "It leaks.")
    project = await talk(memory, folder, "one", *said)
    memory.files.write_atomic("knowledge/identity/USER.md", "I am Ana.\n")
    memory.files.write_atomic("knowledge/memory/MEMORY.md", "# Memory\n\n- 2026-02-01: No sugar.\n")
    memory.files.write_atomic("knowledge/projects/tea/context.md", "A shop for tea.\n")
    memory.files.write_atomic("knowledge/projects/bread/context.md", "A bakery.\n")
    made = await briefs.make(memory, project)
    for told in ("I am Ana.", "No sugar.", "A shop for tea."):
        assert told in made.text
    for other in ("bakery", "oolong", "leaks"):
        assert other not in made.text
    assert made.tokens == memory.tokens.count(made.text) <= 1200


async def test_it_stays_within_tokens_and_characters_whatever_the_files_hold(memory: Memory, folder: Path) -> None:
    lines = "".join(f"- 2026-01-01: {'-' * 400} {n}\n" for n in range(180))  # few tokens, many characters
    memory.files.write_atomic("knowledge/memory/MEMORY.md", lines)
    memory.files.write_atomic("knowledge/identity/USER.md", " " * 5 + ("─" * 300 + "\n") * 500)
    made = await briefs.make(memory, await project_of(memory, Caller(folder=str(folder))))
    assert made.tokens <= 1200
    assert len(made.text) <= LONGEST


async def test_a_folder_finds_its_brief_and_files_change_only_with_what_they_are_made_of(
    memory: Memory, folder: Path
) -> None:
    memory.files.write_atomic("knowledge/projects/tea/context.md", "A shop for oolong.\n")
    project = await talk(memory, folder, "one", "Buy two tins.", "Ordered.")
    await briefs.know_folders(memory, {str(folder / "." / ""): project})
    assert json.loads(on_disk(memory, "index.json"))[str(folder.resolve())] == {
        "brief": "tea.md",
        "projects": ["name:tea", "slug:tea"],
    }
    assert "oolong" in on_disk(memory, "tea.md")
    assert await briefs.refresh(memory) == 0
    memory.files.write_atomic("knowledge/projects/tea/progress.md", "The shop opens in May.\n")
    assert await briefs.refresh(memory) == 1
    assert "opens in May" in on_disk(memory, "tea.md")
    memory.files.remove(f"{briefs.FOLDER}/tea.md")
    assert await briefs.refresh(memory) == 1
    assert "opens in May" in on_disk(memory, "tea.md")


async def test_a_pause_empties_the_files_and_its_end_fills_them(memory: Memory, folder: Path) -> None:
    memory.files.write_atomic("knowledge/projects/tea/context.md", "A shop for oolong.\n")
    project = await talk(memory, folder, "one", "Buy two tins.", "Ordered.")
    await briefs.know_folders(memory, {str(folder): project})
    await windows.pause(memory, project)
    await briefs.refresh(memory)
    assert on_disk(memory, "tea.md") == ""
    assert json.loads(on_disk(memory, "index.json"))[str(folder.resolve())]["projects"] is None
    await windows.resume(memory)
    await briefs.refresh(memory)
    assert "oolong" in on_disk(memory, "tea.md")


async def test_projects_with_the_names_of_our_own_files_get_others(memory: Memory) -> None:
    names = [briefs.file_of(Project(f"name:{slug}", slug)) for slug in ("global", "index", "tea")]
    assert names == ["global-project.md", "index-project.md", "tea.md"]


async def test_only_so_many_folders_are_remembered(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(briefs, "MOST_FOLDERS", 2)
    for number in range(4):
        clock.forward(minutes=1)
        await briefs.know_folders(memory, {str(tmp_path / f"p{number}"): Project()})
    assert [Path(name).name for name in json.loads(on_disk(memory, "index.json")) if name] == ["p2", "p3"]


def test_a_shortened_proposal_begins_with_the_sentence_that_states_it() -> None:
    core = "I would divide the class along the payments' states."
    text = f"Thank you, I had searched for callers in the repository. {core}"
    (line,) = condensed([Entry(Recognized(text, core=core))], 14, meter())
    assert line == "- I would divide the class along the payments' states."


def test_the_letter_i_of_a_list_stays() -> None:
    (line,) = condensed(
        [Entry(Recognized("Letters, but without I and O, because people read them as 1 and 0. So A to H."))],
        14,
        meter(),
    )
    assert "without I" in line
