"""The wheel that pip builds."""

from __future__ import annotations

import zipfile
from pathlib import Path


def test_the_wheel_holds_our_four_packages_and_their_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"mcp_server", "tools", "resources", "prompts"}
    assert "mcp_server/data/o200k_base.tiktoken.xz" in names
    assert "mcp_server/data/workspace/knowledge/identity/SOUL.md" in names
