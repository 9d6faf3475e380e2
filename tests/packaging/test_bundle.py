"""The bundle for Claude Desktop is valid, the documented command packs it, and the packed bundle starts the server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.end_to_end.node import PACKAGES, usable_node
from tests.end_to_end.servers import eventually
from tests.packaging.programs import ROOT, installed_by_uv, started_by_uv
from tests.serving import call, connected, say
from tests.test_readme import block

pytestmark = pytest.mark.anyio

MCPB = "@anthropic-ai/mcpb"
SOURCES = ("README.md", "LICENSE", "pyproject.toml", "bundle", "mcp_server", "tools", "resources", "prompts")


def manifest() -> Any:
    return json.loads((ROOT / "bundle/manifest.json").read_text("utf-8"))


async def test_it_names_the_tools_that_there_are(workspace: Path) -> None:
    async with connected(workspace) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
    assert {tool["name"] for tool in manifest()["tools"]} == tools


def test_it_validates() -> None:
    node = usable_node()
    done = node.run(f"{MCPB}/dist/cli/cli.js", "validate", str(ROOT / "bundle/manifest.json"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_documented_command_packs_it(tmp_path: Path) -> None:
    node = usable_node()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("dist", ".venv", "__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "node_modules").symlink_to(node.folder / "node_modules")  # where npx looks before it downloads
    programs = [str(Path(sys.executable).parent), str(node.binary.parent), os.environ["PATH"]]
    command = block("bundle", (ROOT / "docs" / "packages.md").read_text("utf-8"))
    assert f"{MCPB}@{PACKAGES[MCPB]} pack" in command
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PATH": os.pathsep.join(programs)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    packed = zipfile.ZipFile(tmp_path / "context-manager-mcp.mcpb").namelist()
    version = manifest()["version"]
    wheel = f"dist/context_manager_mcp-{version}-py3-none-any.whl"
    assert sorted(packed) == sorted([wheel, "manifest.json", "pyproject.toml", "server.py"])


async def test_unpacked_it_starts_the_server_as_claude_desktop_does(wheel: Path, tmp_path: Path) -> None:
    folder, home, memory = tmp_path / "Claude Extensions" / "bundle", tmp_path / "home", tmp_path / "my memory"
    shutil.copytree(ROOT / "bundle", folder, ignore=shutil.ignore_patterns("dist", ".venv", "uv.lock", "__pycache__"))
    (folder / "dist").mkdir()
    shutil.copy(wheel, folder / "dist")
    home.mkdir()
    server = manifest()["server"]
    assert (server["type"], server["mcp_config"]["command"]) == ("uv", "uv")
    installed_by_uv("sync", "--directory", str(folder), home=home)

    async def started(workspace: str) -> str:
        """What `status` says when the user's folder is this one."""
        chosen = {"${__dirname}": str(folder), "${user_config.workspace}": workspace}
        arguments = [chosen.get(argument, argument) for argument in server["mcp_config"]["args"]]
        async with Client(started_by_uv(*arguments, home=home, cwd=tmp_path)) as client:
            session = await say(client, "The boiler runs at 2 bar.")
            said = await call(client, "status", session=session, max_tokens=100_000)

            async def found() -> bool:
                return "2 bar" in await call(client, "search", query="boiler pressure bar", scope="all")

            await eventually(found)  # a server that has just begun makes its index first
        return said

    await started(str(memory))
    assert list((memory / "raw").rglob("*.md"))
    assert not (home / ".context-manager").exists()
    for nothing_chosen in ("", "${user_config.workspace}"):
        await started(nothing_chosen)
    assert len(list((home / ".context-manager" / "raw").rglob("*.md"))) == 2
    projects = home / ".context-manager" / "knowledge" / "projects"
    assert not (projects / "_map.yaml").exists()  # the folder where extensions lie is nobody's project
