"""One minute of the torture suite: every case, for a few rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.cases import CASES
from tests.torture.frame import Case, Tally, run_round

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))
async def test_nothing_is_lost(case: Case, tmp_path: Path) -> None:
    tally = Tally()
    for seed in range(case.rounds):
        await run_round(case, tally, tmp_path, seed)
        if tally.skipped:
            pytest.skip(tally.skipped)
    assert tally.lost == []
