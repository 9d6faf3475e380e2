"""The house rules that tools can check: types, style, and what the wheel holds."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_strict() -> None:
    run("mypy")


def test_style_holds() -> None:
    run("ruff", "check", ".")
    run("ruff", "format", "--check", ".")


def test_the_wheel_holds_our_four_packages_and_their_data(tmp_path: Path) -> None:
    run("pip", "wheel", ".", "--no-deps", "--quiet", "--disable-pip-version-check", "-w", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"mcp_server", "tools", "resources", "prompts"}
    assert "mcp_server/data/o200k_base.tiktoken.xz" in names
    assert "mcp_server/data/workspace/knowledge/identity/SOUL.md" in names
