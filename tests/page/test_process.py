"""The process of the page: how it opens the browser, what it tells, when it ends, and what it loads."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import mcp_server.page
from tests.conftest import KEYWORDS_ONLY, Run
from tests.page.browsing import COMMAND, serving

FAKE_BROWSER = """#!{python}
import json, os, sys, urllib.parse
page = urllib.parse.urlsplit(sys.argv[1]).path
seen = {{"arguments": sys.argv[1:], "mode": os.stat(page).st_mode, "text": open(page).read()}}
with open({told!r} + ".part", "w") as file:
    json.dump(seen, file)
os.rename({told!r} + ".part", {told!r})
"""


@pytest.fixture
def told(tmp_path: Path) -> Path:
    return tmp_path / "told.json"


@pytest.fixture
def fake(tmp_path: Path, told: Path) -> str:
    """A program in place of the browser, which writes down how it was called."""
    program = tmp_path / "browser"
    program.write_text(FAKE_BROWSER.format(python=sys.executable, told=str(told)), "utf-8")
    program.chmod(0o700)
    return f"{program} %s"


def wait_for(path: Path) -> dict[str, object]:
    for _ in range(600):
        if path.exists():
            found: dict[str, object] = json.loads(path.read_text("utf-8"))
            return found
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear")


@pytest.mark.usefixtures("empty_memory")
def test_the_code_is_in_a_private_file_and_not_in_the_browsers_arguments(
    workspace: Path, fake: str, told: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "--workspace", str(workspace), "page"],
        env={**os.environ, **KEYWORDS_ONLY, "BROWSER": fake},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().strip() == "The page is open in your browser."
        seen = wait_for(told)
        code = process.stderr.readline().strip().partition("#")[2]
        assert len(code) > 40
        assert code not in str(seen["arguments"])
        assert code in str(seen["text"])
        assert stat.S_IMODE(int(str(seen["mode"]))) == 0o600
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.usefixtures("empty_memory")
def test_the_page_answers_only_its_own_names_and_ends_when_it_is_told_to(workspace: Path) -> None:
    with serving(workspace, **KEYWORDS_ONLY) as address:
        root = address.partition("/open")[0]
        assert root.startswith("http://127.0.0.1:")
        assert httpx2.get(f"{root}/open").status_code == 200
        assert httpx2.get(f"{root}/now", headers={"Host": "evil.example"}).status_code == 421
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{root}/open")


@pytest.fixture
def ended(workspace: Path) -> Iterator[None]:
    """Ends the page that a test left in the background."""
    yield
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--until-idle" in words and str(workspace).encode() in words:
            os.kill(int(entry.parent.name), signal.SIGTERM)


@pytest.mark.usefixtures("empty_memory", "ended")
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc to end the process")
def test_in_the_background_the_command_returns_and_tells_no_code(
    run: Run, fake: str, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER", fake)
    assert run("page", "--background") == "The page is open in your browser.\n"
    seen = wait_for(told)
    found = re.search(r"http://127.0.0.1:\d+/open", str(seen["text"]))
    assert found is not None
    assert httpx2.get(found[0]).status_code == 200


@pytest.mark.usefixtures("empty_memory")
def test_without_a_browser_the_background_says_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "/nowhere/browser %s")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert "in a terminal" in run("page", "--background", code=1)


def test_without_a_memory_the_page_creates_none(run: Run, workspace: Path) -> None:
    assert "init" in run("page", "--no-browser", code=1)
    assert not workspace.exists()


@pytest.mark.usefixtures("empty_memory")
def test_a_port_in_use_is_named(run: Run, workspace: Path) -> None:
    with serving(workspace, **KEYWORDS_ONLY) as address:
        port = address.partition("/open")[0].rpartition(":")[2]
        assert f"127.0.0.1:{port}" in run("page", "--no-browser", "--port", port, code=1)


def test_the_stdio_server_loads_nothing_of_the_page() -> None:
    code = "import sys, mcp_server.serve.server, mcp_server.serve.server, mcp_server.app, mcp_server.serve as serve; "
    code += "serve._load(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "mcp_server.context.compile" in loaded
    assert not [name for name in loaded if name.startswith(("mcp_server.page", "jinja2", "markupsafe"))]


def test_the_page_takes_less_than_400_kb_of_the_package() -> None:
    folder = Path(mcp_server.page.__file__).parent
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert 0 < sum(path.stat().st_size for path in files) < 400_000
