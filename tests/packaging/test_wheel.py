"""The wheel that pip builds."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path


def test_the_wheel_holds_our_four_packages_and_their_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"mcp_server", "tools", "resources", "prompts"}
    assert "mcp_server/data/o200k_base.tiktoken.xz" in names
    assert "mcp_server/data/workspace/knowledge/identity/SOUL.md" in names


def test_the_page_and_what_it_brings_from_others_add_less_than_400_kb(wheel: Path) -> None:
    page = [one for one in zipfile.ZipFile(wheel).infolist() if one.filename.startswith("mcp_server/page/")]
    names = {one.filename.removeprefix("mcp_server/page/") for one in page}
    assert {"static/htmx.min.js", "static/htmx.LICENSE.txt", "static/style.css", "templates/now.html"} <= names
    assert sum(one.compress_size for one in page) < 400_000


def test_the_vendored_script_is_the_published_one(wheel: Path) -> None:
    static = zipfile.ZipFile(wheel)
    rows = static.read("mcp_server/page/static/htmx.sha256").decode().splitlines()
    wanted = {name: digest for digest, name in (row.split("  ") for row in rows)}
    assert set(wanted) == {"htmx.min.js", "htmx.LICENSE.txt"}
    for name, digest in wanted.items():
        assert hashlib.sha256(static.read(f"mcp_server/page/static/{name}")).hexdigest() == digest, "run .ci/vendor"
