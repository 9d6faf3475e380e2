"""A minute of the torture suite: the cases that no other test shows, for a few rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.cases import CASES
from tests.torture.frame import Case, Tally, run_round

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all cases, so that a workspace which several of them copy is made once."""
    return tmp_path_factory.mktemp("torture")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if case.rounds])
async def test_nothing_is_lost(case: Case, work: Path) -> None:
    tally = Tally()
    for seed in range(case.rounds):
        await run_round(case, tally, work, seed, short=True)
        if tally.skipped:
            pytest.skip(tally.skipped)
    assert tally.lost == []
