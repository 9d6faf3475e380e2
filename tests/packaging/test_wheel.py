"""The wheel that pip builds, and the first start of what it installs, on machines that are not like ours."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.end_to_end.servers import READ_ONLY, assert_clear, eventually, mounting
from tests.gitting import git
from tests.packaging.programs import environment, installed_by_uv, started_by_uv
from tests.running import printed, run
from tests.serving import call, refused, say

pytestmark = pytest.mark.anyio

ODD = "Đorđe & Co, «das Büro» 日本 $HOME"


@asynccontextmanager
async def started(
    installed: Path, env: Mapping[str, str], cwd: Path, prefix: Sequence[str] = (), *arguments: str
) -> AsyncIterator[Client]:
    """A client of the script `context-manager-mcp`, which must say nothing like a stack trace."""
    command = [*prefix, str(installed / "context-manager-mcp"), *arguments]
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(env), cwd=str(cwd))
    log = installed.parent / "stderr.txt"
    with log.open("w") as stderr:
        async with Client(stdio_client(parameters, stderr)) as client:
            yield client
    assert "Traceback" not in log.read_text()


def script(
    program: Path, *arguments: str, env: Mapping[str, str], cwd: Path, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """A program that was run; it must say nothing like a stack trace."""
    done = run([*prefix, program, *arguments], env=dict(env), cwd=cwd)
    assert "Traceback" not in done.stderr
    return done


def cli(
    installed: Path, env: Mapping[str, str], cwd: Path, *arguments: str, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """The script `context-manager`, done."""
    return script(installed / "context-manager", *arguments, env=env, cwd=cwd, prefix=prefix)


async def wait_until_found(client: Client, query: str, text: str) -> None:
    """Searches until the text is found: a server that has just started makes its index first."""

    async def is_found() -> bool:
        return text in await call(client, "search", query=query, scope="all")

    await eventually(is_found)


def repository(folder: Path) -> None:
    """Makes a git repository with one commit."""
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "x")


def unknown_user() -> list[str]:
    """A prefix that runs a command as a user whom the machine does not know; skips the test where none can be."""
    prefix = [shutil.which("unshare") or "", "--user", "--map-user=54321"]
    if not prefix[0] or run([*prefix, "true"]).returncode != 0:
        pytest.skip("needs the command unshare (Linux) and user namespaces, to be an unknown user")
    return prefix


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


async def test_a_home_with_spaces_and_letters_of_many_scripts(installed: Path, tmp_path: Path) -> None:
    home = tmp_path / ODD
    project = home / "my project «α»"
    project.mkdir(parents=True)
    repository(project)
    env = {**environment(home), "LC_ALL": "C", "LANG": "C"}
    async with started(installed, env, project) as client:
        session = await say(client, "Kotao radi na 2 bara, kaže Đorđe.", delivery="replace")
        assert "2 bara" in await call(client, "compile_context", session=session)
        await wait_until_found(client, "kotao bara", "Đorđe")
    (memory,) = home.glob(".context-manager")
    assert "Đorđe" in next((memory / "raw").rglob("*.md")).read_text("utf-8")
    assert [
        row["sessions"] for row in json.loads(cli(installed, env, project, "project", "list", "--json").stdout)
    ] == [1]


async def test_a_home_that_cannot_be_written(installed: Path, tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    prefix, env = mounting(READ_ONLY, home), environment(home)
    async with started(installed, env, tmp_path, prefix) as client:
        assert len((await client.list_tools()).tools) == 10
        said = await refused(client, "observe", role="user", content="Hello.")
        assert_clear(said)
        assert "read-only" in said
        assert str(home / ".context-manager") in said
    failed = cli(installed, env, tmp_path, "init", prefix=prefix)
    assert failed.returncode == 1
    assert_clear(failed.stderr)
    assert len(failed.stderr.splitlines()) == 1
    assert list(home.iterdir()) == []

    async with started(installed, env, tmp_path, prefix, "--workspace", str(elsewhere)) as client:
        session = await say(client, "The boiler runs at 2 bar.", delivery="replace")
        assert "2 bar" in await call(client, "compile_context", session=session)
        await call(client, "remember", content="The berth is number 14.", project="global")
    assert list(home.iterdir()) == []


async def test_a_user_whom_the_machine_does_not_know(installed: Path, tmp_path: Path) -> None:
    prefix = unknown_user()
    homeless = {key: value for key, value in environment(tmp_path).items() if key != "HOME"}
    for name, arguments in (("context-manager", ["status"]), ("context-manager-mcp", [])):
        failed = script(installed / name, *arguments, env=homeless, cwd=tmp_path, prefix=prefix)
        assert failed.returncode == 1
        assert "CONTEXT_MANAGER_HOME" in failed.stderr
        assert len(failed.stderr.splitlines()) == 1
    there = {**homeless, "CONTEXT_MANAGER_HOME": str(tmp_path / "memory")}
    async with started(installed, there, tmp_path, prefix) as client:
        session = await say(client, "The boiler runs at 2 bar.", delivery="replace")
        assert "2 bar" in await call(client, "compile_context", session=session)
        await wait_until_found(client, "boiler", "2 bar")


def test_a_working_folder_that_is_gone(installed: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD"; "$0" observe "The boiler runs at 2 bar."'
    printed(["sh", "-c", script, installed / "context-manager"], cwd=gone, env=environment(tmp_path))
    assert "2 bar" in next((tmp_path / ".context-manager" / "raw").rglob("*.md")).read_text("utf-8")


async def test_a_client_starts_the_server_from_the_wheel_with_uvx(wheel: Path, tmp_path: Path) -> None:
    run = ("tool", "run", "--isolated", "--from", str(wheel))
    installed_by_uv(*run, "context-manager", "--version", home=tmp_path)
    server = started_by_uv(*run, "context-manager-mcp", home=tmp_path, cwd=tmp_path)
    async with Client(server) as client:
        session = await say(client, "The boiler runs at 2 bar.", delivery="replace")
        assert "2 bar" in await call(client, "compile_context", session=session)
        assert "wordllama" in await call(client, "status", max_tokens=100_000)
    assert "The boiler" in next((tmp_path / ".context-manager" / "raw").rglob("*.md")).read_text("utf-8")
