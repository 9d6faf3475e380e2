"""The injection benchmark tells silence from speech."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.bench.injection import WRONG, WRONG_KIND, measure_injection
from mcp_server.bench.workbench import Workbench
from mcp_server.errors import Invalid


@pytest.mark.anyio
async def test_unrelated_prompts_are_counted_by_set_and_evidence_with_and_without_the_gate(
    bench: Workbench, locomo_file: Path, beam_folder: Path
) -> None:
    report = await measure_injection(bench, [locomo_file, beam_folder])
    assert report.conversations == 3
    assert set(report.silent) >= {"small talk", "other projects", "near misses", WRONG, WRONG_KIND}
    assert report.silent["small talk"]["silent"] > 0.9
    assert 0 <= report.evidence["with_gate"] <= report.evidence["without_gate"] <= 1
    assert 0 <= report.auc <= 1
    assert report.as_dict()["met"] == report.met


@pytest.mark.anyio
async def test_notes_have_no_questions_to_ask(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# Note")
    with pytest.raises(Invalid, match="no conversations with questions"):
        await measure_injection(bench, [tmp_path / "note.md"])
