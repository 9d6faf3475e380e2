"""Every test that the page about the checkpoint design names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "design" / "checkpoints.md").read_text("utf-8")
TESTS = (ROOT / "tests").rglob("test_*.py")


def test_every_test_that_the_design_asks_for_is_there() -> None:
    named = re.findall(r"^\| [^|]+ \| `(test_\w+)` \|$", PAGE, re.MULTILINE)
    assert len(named) == 13
    written = "".join(file.read_text("utf-8") for file in TESTS)
    for test in named:
        assert f"def {test}(" in written, test
