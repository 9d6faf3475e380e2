"""The bundle for Claude Desktop is valid, the documented command packs it, and the packed bundle starts the server."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.end_to_end.node import PACKAGES, usable_node
from tests.end_to_end.servers import eventually
from tests.packaging.programs import ROOT, environment, installed_by_uv, started_by_uv
from tests.preloaded import python
from tests.running import printed
from tests.serving import PLAIN, call, connected, say
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


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle that the documented command packs."""
    node, folder = usable_node(), tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("dist", ".venv", "__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    (folder / "node_modules").symlink_to(node.folder / "node_modules")  # where npx looks before it downloads
    programs = [str(Path(sys.executable).parent), str(node.binary.parent), os.environ["PATH"]]
    command = block("bundle", (ROOT / "docs" / "packages.md").read_text("utf-8"))
    assert f"{MCPB}@{PACKAGES[MCPB]} pack" in command
    printed(["bash", "-euo", "pipefail", "-c", command], cwd=folder, env={**os.environ, "PATH": ":".join(programs)})
    return folder / "context-manager-mcp.mcpb"


def test_the_documented_command_packs_it(packed: Path) -> None:
    wheel = f"dist/context_manager_mcp-{manifest()['version']}-py3-none-any.whl"
    names = zipfile.ZipFile(packed).namelist()
    assert sorted(names) == sorted([wheel, "manifest.json", "pyproject.toml", "server.py"])


async def test_unpacked_it_starts_the_server_as_claude_desktop_does(packed: Path, tmp_path: Path) -> None:
    folder, home, memory = tmp_path / "Claude Extensions" / "bundle", tmp_path / "home", tmp_path / "my memory"
    zipfile.ZipFile(packed).extractall(folder)
    home.mkdir()
    server = manifest()["server"]
    assert (server["type"], server["mcp_config"]["command"]) == ("uv", "uv")
    installed_by_uv("sync", "--directory", str(folder), home=home)
    chosen = {"${__dirname}": str(folder), "${user_config.workspace}": str(memory)}
    arguments = [chosen.get(argument, argument) for argument in server["mcp_config"]["args"]]
    async with Client(started_by_uv(*arguments, home=home, cwd=tmp_path)) as client:
        await say(client, "The boiler runs at 2 bar.")

        async def found() -> bool:
            return "2 bar" in await call(client, "search", query="boiler pressure bar", scope="all")

        await eventually(found)  # a server that has just begun makes its index first
    assert list((memory / "raw").rglob("*.md"))
    assert not (home / ".context-manager").exists()


async def test_without_a_chosen_folder_its_memory_is_the_default_one_and_belongs_to_no_project(tmp_path: Path) -> None:
    run = f"import runpy; runpy.run_path({str(ROOT / 'bundle' / 'server.py')!r}, run_name='__main__')"
    project = tmp_path / "project"
    project.mkdir()
    (project / ".context-manager").write_text("extensions\n")
    for nothing_chosen in ("", "${user_config.workspace}"):
        command, *arguments = python("-c", run, "--workspace", nothing_chosen)
        env = {**environment(tmp_path), **PLAIN}
        server = StdioServerParameters(command=command, args=arguments, env=env, cwd=str(project))
        async with Client(server) as client:
            await say(client, "The boiler runs at 2 bar.")
    memory = tmp_path / ".context-manager"
    assert len(list((memory / "raw").rglob("*.md"))) == 2
    assert not (memory / "knowledge" / "projects" / "_map.yaml").exists()
