"""The injection benchmark tells silence from speech."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.injection import WRONG, WRONG_KIND, candidate_thresholds, measure_injection
from benchmarks.workbench import Workbench


@pytest.mark.anyio
@pytest.mark.usefixtures("few_shipped_prompts")
async def test_unrelated_prompts_are_counted_by_set_and_evidence_with_and_without_the_gate(
    bench: Workbench, locomo_file: Path, beam_folder: Path
) -> None:
    report = await measure_injection(bench, [locomo_file, beam_folder])
    assert report.conversations == 3
    assert set(report.silent) >= {"small talk", "other projects", "near misses", WRONG, WRONG_KIND}
    assert report.silent["small talk"]["silent"] > 0.9
    assert 0 <= report.evidence["with_gate"] <= report.evidence["without_gate"] <= 1
    assert 0 <= report.auc <= 1


def test_a_constant_that_shuts_out_more_lets_in_less() -> None:
    answerable = [value / 100 for value in range(30, 100)]
    others = [value / 100 for value in range(0, 60)]
    rows = candidate_thresholds(answerable, others, (0.02, 0.2))
    assert rows[0]["threshold"] < rows[1]["threshold"]
    assert rows[0]["others_let_in"] > rows[1]["others_let_in"]
    assert rows[0]["answerable_shut_out"] < rows[1]["answerable_shut_out"] <= 0.2
    assert candidate_thresholds([], others) == []
