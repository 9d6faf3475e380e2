"""A wrong setting is named with the nearest right one, keeps its default, and stops nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.settings import MACHINE_FILE, SECTIONS, Settings, split_document
from mcp_server.settings_file import default_document, machine_document, read_settings
from mcp_server.text.markdown import load
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import git

pytestmark = pytest.mark.anyio
WHERE = "memory-config.yaml"


def test_each_setting_is_in_one_of_the_shipped_files_with_its_default() -> None:
    document, machine = load(default_document(), WHERE), load(machine_document(), MACHINE_FILE)
    named = [f"{section}.{key}" for file in (document, machine) for section in file for key in file[section]]
    assert len(named) == len(set(named))
    assert set(document) | set(machine) == set(SECTIONS)
    assert set(named) == {f"{section}.{key}" for section, kind in SECTIONS.items() for key in kind.model_fields}
    assert read_settings(document, {}, WHERE, machine) == Settings()
    assert split_document(document)[1] == {}


MACHINE_KNOBS = {
    "llm": {"provider": "openai", "base_url": "http://x/v1", "key_variable": "HOME", "Model": "m"},
    "search": {"embedder": "openai", "EMBEDDING_URL": "http://x/v1"},
    "workspace": {"local_dir": "/elsewhere"},
    "git": {"remote": "theirs", "auto_push": True},
    "knowledge": {"approve": False},
    "watchers": {"webhooks": True, "webhook_max_kb": 10_000},
    "server": {"unnamed_sessions": "explicit"},
    "advisor": {"lexicon": "/etc/passwd"},
}


def test_settings_about_where_data_goes_are_read_only_from_this_machines_file() -> None:
    settings = read_settings(MACHINE_KNOBS, {}, WHERE)
    assert settings.model_copy(update={"problems": ()}) == Settings()
    (problem,) = settings.problems
    for name in ("llm.base_url", "search.embedding_url", "workspace.local_dir", "git.auto_push", "knowledge.approve"):
        assert name in problem
    assert "read from .local/settings.yaml" in problem

    own = read_settings(MACHINE_KNOBS, {}, WHERE, MACHINE_KNOBS)
    assert own.llm.base_url == own.search.embedding_url == "http://x/v1"
    assert own.problems == ()


def test_this_machines_file_may_have_any_setting_and_overrides_the_memorys() -> None:
    shared, machine = {"hooks": {"inject": True, "turn_tokens": 100}}, {"hooks": {"inject": False}}
    hooks = read_settings(shared, {"CONTEXT_MANAGER_HOOKS__TURN_TOKENS": "7"}, WHERE, machine).hooks
    assert (hooks.inject, hooks.turn_tokens) == (False, 7)


def test_a_value_in_the_file_counts_and_one_in_the_environment_counts_more() -> None:
    document = {"lifecycle": {"session_idle_hours": 3, "memory_line_cap": 100}}
    settings = read_settings(document, {"CONTEXT_MANAGER_LIFECYCLE__SESSION_IDLE_HOURS": "1.5"}, WHERE)
    assert settings.lifecycle.session_idle_hours == 1.5
    assert settings.lifecycle.memory_line_cap == 100
    assert settings.problems == ()


@pytest.mark.parametrize(
    ("document", "environ", "says"),
    [
        ({"serch": {}}, {}, "no section 'serch'; did you mean 'search'?"),
        ({"search": {"embeder": "none"}}, {}, "search.embeder is not a setting; did you mean 'embedder'?"),
        (
            {"lifecycle": {"extraction_trigger": "never"}},
            {},
            "'hourly' or 'manual'; the default 'on_session_end' is used",
        ),
        ({"lifecycle": {"pruning_schedule": "every day"}}, {}, "cron expression of five fields"),
        ({"lifecycle": {"monthly_schedule": "0 0 31 2 *"}}, {}, "cron expression of five fields"),
        ({"workspace": {"timezone": "Mars/Phobos"}}, {}, "the IANA name of a time zone"),
        ({"search": 3}, {}, "search must hold keys and values"),
        ({"lifecycle": {"session_idle_hours": float("inf")}}, {}, "lifecycle.session_idle_hours"),
        ({"context_compiler": {"memory_budget_kb": float("inf")}}, {}, "context_compiler.memory_budget_kb"),
        ({"context": {"recoverable_for_days": 10**12}}, {}, "context.recoverable_for_days"),
        ({}, {"CONTEXT_MANAGER_SERVER__UNNAMED_SESSIONS": "x"}, "CONTEXT_MANAGER_SERVER__unnamed_sessions = 'x'"),
        ({"context_compiler": {"token_budget": 5}}, {}, "greater than or equal to 128"),
        ({"clarity": {"scoring": {"half_live": 5}}}, {}, "clarity.scoring.half_live is not a setting; did you mean"),
        ({"clarity": {"scoring": {"half_life": 0}}}, {}, "clarity.scoring.half_life = 0: Input should be greater"),
        ({"clarity": {"scoring": 5}}, {}, "clarity.scoring must hold keys and values"),
    ],
)
def test_what_is_wrong_is_named_and_the_rest_holds(
    document: dict[str, object], environ: dict[str, str], says: str
) -> None:
    settings = read_settings({**document, "git": {"auto_commit": False}}, environ, WHERE)
    (problem,) = settings.problems
    assert says in problem
    assert settings.git.auto_commit is False
    assert settings.model_copy(update={"problems": (), "git": Settings().git}) == Settings()


def test_a_block_inside_a_block_is_reached_from_the_file_and_from_the_environment() -> None:
    document = {"clarity": {"scoring": {"half_life": 3, "recency_window": 2}}}
    settings = read_settings(document, {"CONTEXT_MANAGER_CLARITY__SCORING__HALF_LIFE": "7"}, WHERE)
    assert (settings.clarity.scoring.half_life, settings.clarity.scoring.recency_window) == (7, 2)
    assert settings.problems == ()


def test_the_seeds_capital_names_are_understood() -> None:
    settings = read_settings({"context": {"RELEVANCE_CUTOFF": 0.2, "IMPORTANCE_BOOT": 0.4}}, {}, WHERE)
    assert (settings.context.relevance_cutoff, settings.context.importance_boost) == (0.2, 0.4)
    assert settings.problems == ()


def test_an_empty_section_is_fine() -> None:
    assert read_settings({"search": None}, {}, WHERE).problems == ()


def test_other_variables_of_ours_are_left_alone() -> None:
    environ = {"CONTEXT_MANAGER_HOME": "/x", "CONTEXT_MANAGER_TOKEN": "t", "PATH": "/bin"}
    assert read_settings({}, environ, WHERE) == Settings()


def test_the_digest_changes_with_what_changes_a_compilation_and_with_nothing_else() -> None:
    usual = Settings().digest
    assert read_settings({"context_compiler": {"memory_share": 0.1}}, {}, WHERE).digest != usual
    assert read_settings({"git": {"auto_commit": False}}, {}, WHERE).digest == usual


MIXED = "search:\n  bm25_weight: 2\nllm:\n  provider: openai\n  base_url: http://127.0.0.1:9/v1\n  model: m\n"


async def opened(root: Path, clock: Clock) -> tuple[Settings, tuple[str, ...]]:
    async with open_memory(root, KEYWORDS_ONLY, clock=clock) as memory:
        return memory.settings, memory.problems()


@pytest.fixture
async def used(workspace: Path, new_workspace: Path, clock: Clock) -> Path:
    """A memory whose own file has settings of a machine."""
    shutil.copytree(new_workspace, workspace)
    await opened(workspace, clock)
    (workspace / ".local" / "settings.yaml").unlink()
    (workspace / "memory-config.yaml").write_text(MIXED)
    return workspace


async def test_the_memorys_own_file_changes_none_of_them(used: Path, clock: Clock, tmp_path: Path) -> None:
    git(used, "commit", "--quiet", "--all", "--no-verify", "--message", "settings")
    git(tmp_path, "clone", "--quiet", str(used), "clone")

    for place in (used, tmp_path / "clone"):
        settings, said = await opened(place, clock)

        assert settings.llm == Settings().llm
        assert settings.search.bm25_weight == 2
        assert any("llm.provider, llm.base_url, llm.model are ignored" in one for one in said)


async def test_a_machine_settings_file_from_a_clone_is_ignored(used: Path, clock: Clock, tmp_path: Path) -> None:
    (used / ".local" / "settings.yaml").write_text(MIXED)
    (used / "memory-config.yaml").write_text("")
    git(used, "add", "--force", ".local/settings.yaml", ".local/state.db", "memory-config.yaml")
    git(used, "commit", "--quiet", "--no-verify", "--message", "settings")
    git(tmp_path, "clone", "--quiet", str(used), "clone")

    settings, said = await opened(tmp_path / "clone", clock)

    assert settings.llm == Settings().llm
    assert any("git tracks .local/settings.yaml" in one for one in said)


async def test_a_new_memory_has_both_files_and_git_has_one(workspace: Path, clock: Clock) -> None:
    assert (await opened(workspace, clock))[1] == ()

    assert "llm:" not in (workspace / "memory-config.yaml").read_text()
    assert "base_url: null" in (workspace / ".local" / "settings.yaml").read_text()
    assert ".local/settings.yaml" not in git(workspace, "ls-files")
