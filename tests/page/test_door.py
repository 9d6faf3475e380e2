"""The page's door and its answers, without a browser: who comes in, and what every answer carries."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from mcp_server.memory import Memory
from mcp_server.page.door import CODE_SECONDS, MAX_CODES, Door
from mcp_server.page.site import application
from tests.conftest import KEYWORDS_ONLY, Run
from tests.page.browsing import serving
from tests.preloaded import context_manager, programs

pytestmark = pytest.mark.anyio

ROOT = "http://127.0.0.1:8766"
OWN = {"sec-fetch-site": "same-origin", "origin": ROOT}
SCREENS = ("/now", "/days", "/knows", "/find", "/topics", "/state")


class Seconds:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def visitor(memory: Memory, door: Door) -> AsyncIterator[httpx2.AsyncClient]:
    async def opened() -> Memory:
        return memory

    transport = httpx2.ASGITransport(app=application(opened, door))
    async with httpx2.AsyncClient(transport=transport, base_url=ROOT) as client:
        yield client


@pytest.fixture
async def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
async def door(seconds: Seconds) -> Door:
    return Door(8766, now=seconds)


@pytest.fixture
async def outside(memory: Memory, door: Door) -> AsyncIterator[httpx2.AsyncClient]:
    async with visitor(memory, door) as client:
        yield client


@pytest.fixture
async def inside(memory: Memory, door: Door) -> AsyncIterator[httpx2.AsyncClient]:
    async with visitor(memory, door) as client:
        assert (await client.post("/open", content=door.new_code(), headers=OWN)).status_code == 204
        yield client


async def test_a_code_opens_the_page_once(outside: httpx2.AsyncClient, door: Door) -> None:
    code = door.new_code()
    first = await outside.post("/open", content=code, headers=OWN)
    assert first.status_code == 204
    cookie = first.headers["set-cookie"]
    assert cookie.startswith("cm-8766=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert (await outside.get("/now")).status_code == 200
    assert (await outside.post("/open", content=code, headers=OWN)).status_code == 403


async def test_a_code_expires(outside: httpx2.AsyncClient, door: Door, seconds: Seconds) -> None:
    code = door.new_code()
    seconds.now = CODE_SECONDS + 1
    assert (await outside.post("/open", content=code, headers=OWN)).status_code == 403
    assert (await outside.post("/open", content=door.new_code(), headers=OWN)).status_code == 204


async def test_the_oldest_of_too_many_codes_is_dropped(door: Door) -> None:
    codes = [door.new_code() for _ in range(MAX_CODES + 1)]
    assert door.admit(codes[0]) is None
    assert door.admit(codes[1])


async def test_a_wrong_code_opens_nothing(door: Door) -> None:
    door.new_code()
    for given in ("", "x", "é", "\udcff"):
        assert door.admit(given) is None


async def test_without_the_cookie_every_address_leads_to_the_door(outside: httpx2.AsyncClient) -> None:
    for path in ("/", *SCREENS, "/now/live", "/forget", "/nothing"):
        answer = await outside.get(path)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/open?to=")
    assert (await outside.get("/now", headers={"hx-request": "true"})).status_code == 401
    for path in ("/pause", "/forget", "/knows/decide", "/leave"):
        assert (await outside.post(path, headers=OWN)).status_code == 401, path


async def test_a_rebound_name_is_turned_away(inside: httpx2.AsyncClient) -> None:
    for host in ("evil.example", "evil.example:8766", "127.0.0.1", "127.0.0.1:80", "localhost.:8766", ""):
        assert (await inside.get("/now", headers={"host": host})).status_code == 421, host


FOREIGN: tuple[dict[str, str], ...] = (
    {},
    {"sec-fetch-site": "same-origin"},
    {"origin": ROOT},
    {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:3000"},
    {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:3000"},
    {"sec-fetch-site": "same-origin", "origin": "http://localhost:8766"},
    {"sec-fetch-site": "cross-site", "origin": "http://evil.example"},
    {"sec-fetch-site": "same-origin", "origin": "null"},
)


async def test_only_the_page_itself_may_change_anything(inside: httpx2.AsyncClient) -> None:
    for headers in FOREIGN:
        for path in ("/pause", "/open", "/leave"):
            assert (await inside.post(path, headers=headers)).status_code == 403, headers
    assert "Paused everywhere" not in (await inside.get("/now")).text


async def test_every_answer_forbids_foreign_scripts_frames_and_caches(
    inside: httpx2.AsyncClient, outside: httpx2.AsyncClient
) -> None:
    for client, path in ((inside, "/now"), (inside, "/no"), (outside, "/now"), (outside, "/static/style.css")):
        headers = (await client.get(path)).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"


async def test_only_the_pages_own_files_are_served(inside: httpx2.AsyncClient) -> None:
    for path in ("/static/../door.py", "/static/%2e%2e/door.py", "/static/..%2fdoor.py", "/static/x"):
        assert (await inside.get(path)).status_code == 404, path


async def test_signing_out_ends_the_cookie(inside: httpx2.AsyncClient) -> None:
    cookies = dict(inside.cookies)
    assert (await inside.post("/leave", headers=OWN)).status_code == 303
    inside.cookies.update(cookies)
    assert (await inside.get("/now")).status_code == 303


async def test_the_servers_token_opens_the_page_any_number_of_times(memory: Memory) -> None:
    async with visitor(memory, Door(8766, token="secret")) as client:
        assert "password" in (await client.get("/open")).text
        for _ in range(2):
            assert (await client.post("/open", content="secret", headers=OWN)).status_code == 204
        assert (await client.post("/open", content="secrets", headers=OWN)).status_code == 403


async def test_an_empty_memory_says_what_to_do(inside: httpx2.AsyncClient) -> None:
    for screen, said in {
        "/now": "context-manager install",
        "/days": "a new memory",
        "/knows": "context-manager import",
        "/find": "context-manager import",
        "/topics": "No topic has been added to a prompt yet.",
        "/state": "No conversation is open.",
    }.items():
        answer = await inside.get(screen)
        assert answer.status_code == 200
        assert said in answer.text


WRONG = {
    "/nothing": 404,
    "/now/0000": 404,
    "/now?kind=x": 400,
    "/knows?view=x": 400,
    "/knows/edit?path=knowledge/memory/MEMORY.md&mark=x": 409,
    "/knows/archive?path=knowledge/none.md": 404,
    "/find?q=x&since=soon": 200,
    "/find/file?path=.local/state.db": 404,
    "/find/file?path=../../etc/passwd": 403,
    "/find/file": 400,
    "/find/passage?path=raw/conversations/none.md": 404,
    "/days?day=x": 200,
    "/days/commit/ffffffff": 404,
    "/days/checkpoint/ckp_none": 404,
    "/forget?path=knowledge/none.md&first=1&last=2": 404,
    "/topics?try=" + "x" * 10_000: 200,
}


async def test_a_wrong_address_gets_an_explanation(inside: httpx2.AsyncClient) -> None:
    for path, status in WRONG.items():
        answer = await inside.get(path)
        assert answer.status_code == status, path
        assert "<main" in answer.text


async def test_a_redirection_stays_on_the_page(inside: httpx2.AsyncClient) -> None:
    for given, to in (
        ("//evil.example", "/now"),
        ("/\\evil.example", "/now"),
        ("https://x", "/now"),
        ("/days", "/days"),
    ):
        answer = await inside.post("/resume", data={"back": given}, headers=OWN)
        assert (answer.status_code, answer.headers["location"]) == (303, to)


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
        context_manager("--workspace", str(workspace), "page"),
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
    monkeypatch.setattr(sys, "executable", str(programs() / "python"))  # it has its imports done
    assert run("page", "--background") == "The page is open in your browser.\n"
    seen = wait_for(told)
    found = re.search(r"http://127.0.0.1:\d+/open", str(seen["text"]))
    assert found is not None
    assert httpx2.get(found[0]).status_code == 200


@pytest.mark.usefixtures("empty_memory")
def test_without_a_browser_the_background_says_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "/nowhere/browser %s")
    monkeypatch.setattr(sys, "executable", str(programs() / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert "in a terminal" in run("page", "--background", code=1)


@pytest.mark.usefixtures("empty_memory")
def test_a_port_in_use_is_named(run: Run, workspace: Path) -> None:
    with serving(workspace, **KEYWORDS_ONLY) as address:
        port = address.partition("/open")[0].rpartition(":")[2]
        assert f"127.0.0.1:{port}" in run("page", "--no-browser", "--port", port, code=1)
