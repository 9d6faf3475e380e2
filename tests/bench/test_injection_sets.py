"""The prompts that ship, and the constants that are proposed."""

from __future__ import annotations

from mcp_server.bench.injection import candidate_thresholds, prompt_sets, shipped_prompts


def test_prompts_stand_in_named_sets() -> None:
    assert prompt_sets("# small talk\nok\n\nthanks\n# other\nfix the build\n") == {
        "small talk": ["ok", "thanks"],
        "other": ["fix the build"],
    }


def test_every_kind_of_unrelated_prompt_ships() -> None:
    sets = shipped_prompts()
    assert set(sets) >= {"small talk", "other projects", "near misses"}
    assert all(len(set(prompts)) == len(prompts) >= 30 for prompts in sets.values())


def test_a_constant_that_shuts_out_more_lets_in_less() -> None:
    answerable = [value / 100 for value in range(30, 100)]
    others = [value / 100 for value in range(0, 60)]
    rows = candidate_thresholds(answerable, others, (0.02, 0.2))
    assert rows[0]["threshold"] < rows[1]["threshold"]
    assert rows[0]["others_let_in"] > rows[1]["others_let_in"]
    assert rows[0]["answerable_shut_out"] < rows[1]["answerable_shut_out"] <= 0.2
    assert candidate_thresholds([], others) == []
