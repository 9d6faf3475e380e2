"""A wrong setting is named with the nearest right one, keeps its default, and stops nothing."""

from __future__ import annotations

import pytest

from mcp_server.settings import SECTIONS, Settings
from mcp_server.settings_file import default_document, read_settings
from mcp_server.store.yaml_text import load

WHERE = "memory-config.yaml"


def test_the_shipped_file_says_the_defaults() -> None:
    document = load(default_document(), WHERE)
    assert set(document) == set(SECTIONS)
    assert read_settings(document, {}, WHERE) == Settings()


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
        ({"search": {"embedder": "gpt"}}, {}, "'openai' or 'sentence-transformers'; the default 'wordllama' is used"),
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
    usual = Settings().digest()
    assert read_settings({"context_compiler": {"memory_share": 0.1}}, {}, WHERE).digest() != usual
    assert read_settings({"git": {"auto_commit": False}}, {}, WHERE).digest() == usual
