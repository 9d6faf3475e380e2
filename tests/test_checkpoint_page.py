"""The page about the checkpoint design is true: every file and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "checkpoints.md").read_text("utf-8")
TESTS = ROOT / "tests" / "core" / "checkpoints"


def test_every_test_that_the_design_asks_for_is_there() -> None:
    named = re.findall(r"^\| [^|]+ \| `(test_\w+\.py)`: `(test_\w+)` \|$", PAGE, re.MULTILINE)
    assert len(named) == 13
    for file, test in named:
        assert f"def {test}(" in (TESTS / file).read_text("utf-8"), test


def test_every_file_that_it_names_is_there() -> None:
    paths = re.findall(r"`((?:mcp_server|prompts|tests)/[\w/.]+)`", PAGE)
    assert paths
    for path in paths:
        assert (ROOT / path).is_file(), path
    bare = [name for name in re.findall(r"`(\w+\.py)`", PAGE) if not name.startswith("test_")]
    assert not bare, "a file outside of the tests is named by its path"
