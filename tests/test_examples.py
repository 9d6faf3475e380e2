"""Every example runs as it stands, from an empty folder, and shows what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preloaded import python
from tests.running import environ, printed

ROOT = Path(__file__).parent.parent
RUN = """
import runpy, sys, warnings
warnings.simplefilter("error")
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
EXAMPLES = {
    "pydantic_ai_agent.py": [
        "agent: The boiler runs at 2 bar.",
        "tool:  recover entry-",
        "The winter berth is number 14, paid until April.",
    ],
    "context_loop.py": [
        "over 50%",
        "compacted ",
        "It is in the context again, in its place.",
        "Every word is in the transcript of ses_",
    ],
    "pydantic_ai_over_mcp.py": ["Noted: - ", "The boiler runs at 2 bar."],
}


def test_every_example_is_known_here() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_and_shows_what_it_says(name: str, tmp_path: Path) -> None:
    if name.startswith("pydantic_ai"):
        pytest.importorskip("pydantic_ai", reason="needs pydantic-ai-slim[mcp], which the extra `dev` brings")
    command = python("-c", RUN, str(ROOT / "examples" / name), str(tmp_path / "memory"))
    shown = printed(command, cwd=tmp_path, env={**environ(), "HOME": str(tmp_path)})
    for line in EXAMPLES[name]:
        assert line in shown
