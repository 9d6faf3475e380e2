"""The README is for users, and it is true: every command, tool, resource, prompt, setting and path in it exists, and
nothing that exists is missing from it."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest

from mcp_server.agent import AgentMemory
from mcp_server.cli.main import COMMANDS, cli
from mcp_server.settings import SECTIONS, knobs
from tests.serving import connected

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
SETTINGS = (ROOT / "docs" / "settings.md").read_text("utf-8")


def block(name: str) -> str:
    """The command in the README under `<!-- command: NAME -->`."""
    found = re.search(rf"<!-- command: {name} -->\n *```sh\n *(.*?)\n *```", README, re.DOTALL)
    assert found, name
    return found[1]


def test_every_command_is_in_it_and_no_other() -> None:
    told = set(re.findall(r"^\| `context-manager ([\w-]+)", README, re.MULTILINE))
    assert told == set(COMMANDS)


@pytest.mark.parametrize(
    "name",
    [
        *("session", "project", "index", "clarity", "logs", "cold-storage", "checkpoint", "topics", "gate"),
        *("history", "tag", "explore", "reconstruct", "jobs"),
    ],
)
def test_the_subcommands_are_in_it(name: str) -> None:
    context = click.Context(cli)
    group = cli.get_command(context, name)
    assert isinstance(group, click.Group)
    told = re.search(rf"^\| `context-manager {name} (.+?)`", README, re.MULTILINE)
    assert told
    assert sorted(told[1].split(r"\|")) == sorted(group.list_commands(context))


def test_every_setting_is_in_its_page_with_its_default_and_its_words() -> None:
    for section, kind in SECTIONS.items():
        for name, field in knobs(kind, section):
            default = str(field.default).lower() if isinstance(field.default, bool) else field.default
            row = f"| `{name}` | `{'null' if default is None else default}` | {field.description} |"
            assert row in SETTINGS, row


def test_every_setting_that_it_names_is_one() -> None:
    sections = "|".join(SECTIONS)
    known = {name for section, kind in SECTIONS.items() for name, _ in knobs(kind, section)}
    named = set(re.findall(rf"`((?:{sections})(?:\.[a-z_]+)+)\b", README))
    assert named & known
    assert named - known <= {"server.json"}


@pytest.mark.anyio
async def test_every_tool_resource_and_prompt_is_in_it_and_no_other(workspace: Path) -> None:
    async with connected(workspace, profile="full") as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        resources = {str(found.uri) for found in (await client.list_resources()).resources}
        templates = {found.uri_template for found in (await client.list_resource_templates()).resource_templates}
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
    tables = README.split("## Tools, resources, prompt")[1].split("**Sessions.**")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", tables, re.MULTILINE)) == tools | resources | templates
    assert set(re.findall(r"The prompt `(\w+)`", tables)) == prompts


def test_every_place_it_points_to_exists() -> None:
    places = re.findall(r"`((?:mcp_server|tools|resources|prompts|tests|examples|bundle|docs)/[\w/.]*)`", README)
    assert places
    assert [path for path in places if not (ROOT / path).exists()] == []


def test_its_two_commands_are_whole() -> None:
    assert block("demo").endswith("context-manager demo")
    assert block("test").endswith("-m pytest -n auto")
    assert "sed -n '/<!-- command: test -->/" in (ROOT / ".ci/run").read_text("utf-8")


def test_the_command_it_connects_clients_to_is_installed() -> None:
    for script in ("context-manager-mcp", "context-manager"):
        assert (Path(sys.executable).parent / script).exists()
    said = subprocess.run(
        [Path(sys.executable).parent / "context-manager", "--version"], capture_output=True, text=True
    )
    assert "context-manager" in said.stdout


def test_nothing_in_the_project_names_a_machine() -> None:
    for path in subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split():
        file = ROOT / path
        if file.suffix in {".py", ".md", ".toml", ".yaml", ".json", ".mjs", ".txt"} and file.exists():
            text = file.read_text("utf-8")
            assert not re.search(r"(?<![\w./])/(?:root/|work/(?:main|lab|shared)\b)", text), path


def test_its_python_is_what_the_memory_takes() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert example.count("\n") <= 15
    loop = f"async def main(question, agent):\n{textwrap.indent(example, '    ')}"
    ast.parse(loop)
    for call in (node for node in ast.walk(ast.parse(loop)) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "memory":
            given = [ast.unparse(argument) for argument in call.args]
            named = {keyword.arg: None for keyword in call.keywords if keyword.arg}
            inspect.signature(getattr(AgentMemory, call.func.attr)).bind(None, *given, **named)
