"""The README and the pages in docs/ are true: every command, tool, resource, prompt, setting and path in them exists,
and every one that exists is in its page."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mcp_server.agent import AgentMemory
from mcp_server.cli.main import COMMANDS, cli
from mcp_server.settings import SECTIONS, knobs
from tests.running import printed, run
from tests.serving import connected

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
DOCS = ROOT / "docs"
COMMANDS_PAGE = (DOCS / "commands.md").read_text("utf-8")
SETTINGS_PAGE = (DOCS / "settings.md").read_text("utf-8")
TOOLS_PAGE = (DOCS / "tools.md").read_text("utf-8")
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), *sorted(DOCS.rglob("*.md"))]
MOST_LINES = 200


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def block(name: str, text: str = README) -> str:
    """Returns the command in a text under `<!-- command: NAME -->`."""
    found = re.search(rf"<!-- command: {name} -->\n *```sh\n *(.*?)\n *```", text, re.DOTALL)
    assert found, name
    return found[1]


def shell_lines(page: Path) -> list[str]:
    """Returns the lines of a page's shell blocks that call `context-manager`, without comments and redirections."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    lines = [re.split(r"\s+[#>]\s*", line.strip())[0] for text in blocks for line in text.splitlines()]
    return [line for line in lines if line.startswith("context-manager ")]


def usage_error(arguments: list[str]) -> str | None:
    """Parses a command line as the program does, without running it, and returns what is wrong with it."""
    command: click.Command = cli
    try:
        context = cli.make_context("context-manager", arguments)
        while isinstance(command, click.Group):
            left = [*getattr(context, "_protected_args", ()), *context.args]
            if not left:  # a group that does something by itself
                break
            _, found, left = command.resolve_command(context, left)
            assert found is not None
            command, context = found, found.make_context(found.name, left, parent=context)
    except click.UsageError as error:
        return str(error)
    return None


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_every_command_is_in_its_page_and_no_other() -> None:
    assert set(re.findall(r"^\| `context-manager ([\w-]+)", COMMANDS_PAGE, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize(
    "name", [name for name in COMMANDS if isinstance(cli.get_command(click.Context(cli), name), click.Group)]
)
def test_the_subcommands_are_in_the_page(name: str) -> None:
    context = click.Context(cli)
    group = cli.get_command(context, name)
    assert isinstance(group, click.Group)
    told = re.search(rf"^\| `context-manager {name} (.+?)`", COMMANDS_PAGE, re.MULTILINE)
    assert told
    assert sorted(told[1].split(r"\|")) == sorted(group.list_commands(context))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_line_of_the_documentation_is_understood(page: Path) -> None:
    for line in shell_lines(page):
        problem = usage_error(shlex.split(line)[1:])
        assert problem is None or "does not exist" in problem, (line, problem)  # a file that only its reader has
    for name in re.findall(r"`context-manager ([a-z][\w-]*)", page.read_text("utf-8")):
        assert name in COMMANDS or page.name == "designs.md", name  # it has the designs' own commands, too


def test_every_setting_is_in_its_page_with_its_default_and_its_words() -> None:
    for section, kind in SECTIONS.items():
        for name, field in knobs(kind, section):
            default = str(field.default).lower() if isinstance(field.default, bool) else field.default
            row = f"| `{name}` | `{'null' if default is None else default}` | {field.description} |"
            assert row in SETTINGS_PAGE, row


def test_every_setting_that_the_documentation_names_exists() -> None:
    known = {name for section, kind in SECTIONS.items() for name, _ in knobs(kind, section)}
    groups = {name.rpartition(".")[0] for name in known}
    for page in PAGES:
        if page.name == "designs.md":  # names the calls of other systems
            continue
        found = set(re.findall(rf"`((?:{'|'.join(SECTIONS)})(?:\.[a-z_]+)+)[`:]", page.read_text("utf-8")))
        assert found - known - groups <= {"server.json", "context.md"}, page


@pytest.mark.anyio
async def test_every_tool_resource_and_prompt_is_in_its_page_and_no_other(workspace: Path) -> None:
    async with connected(workspace, profile="full") as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        resources = {str(found.uri) for found in (await client.list_resources()).resources}
        templates = {found.uri_template for found in (await client.list_resource_templates()).resource_templates}
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
    assert set(re.findall(r"^\| `([^`]+)` \|", TOOLS_PAGE, re.MULTILINE)) == tools | resources | templates
    assert set(re.findall(r"The prompt `(\w+)`", TOOLS_PAGE)) == prompts


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_path_that_it_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    places = re.findall(
        r"`((?:mcp_server|tools|resources|prompts|tests|examples|bundle|benchmarks|docs)/[\w/.-]*)`", text
    )
    assert [path for path in places if "NAME" not in path and not (ROOT / path).exists()] == []
    links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", text) if "://" not in link and link[0] != "/"]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "clients.md"], ids=named)
def test_every_cell_about_what_is_automatic_names_a_test_that_exists_or_the_documentation(page: Path) -> None:
    tables = [table for table in re.findall(r"(?:^\|.*\n)+", page.read_text("utf-8"), re.MULTILINE) if "test_" in table]
    assert tables
    existing = {file.stem for file in (ROOT / "tests").rglob("test_*.py")}
    for table in tables:
        for row in table.splitlines()[2:]:
            for cell in row.strip("| ").split(" | ")[1:]:
                tests = re.findall(r"test_\w+", cell)
                assert tests or "documentation" in cell, cell
                assert set(tests) <= existing, cell


def test_its_two_commands_are_whole() -> None:
    assert block("demo").endswith("context-manager demo")
    assert block("test").endswith("-m pytest -n auto")
    assert "sed -n '/<!-- command: test -->/" in (ROOT / ".ci/run").read_text("utf-8")


def test_the_command_it_connects_clients_to_is_installed() -> None:
    for script in ("context-manager-mcp", "context-manager"):
        assert (Path(sys.executable).parent / script).exists()
    assert "context-manager" in printed([Path(sys.executable).parent / "context-manager", "--version"])


def test_nothing_in_the_project_names_a_machine() -> None:
    checked = 0
    for path in our_files():
        if path.suffix in {".py", ".md", ".toml", ".yaml", ".json", ".mjs", ".txt"} and path.exists():
            text = path.read_text("utf-8")
            assert not re.search(r"(?<![\w./])/(?:root/|work/(?:main|lab|shared)\b)", text), path
            checked += 1
    assert checked > 700


def our_files() -> Iterator[Path]:
    """Yields the files that git tracks; in a copy without git, as `.ci/run` makes, all that no installation made."""
    tracked = run(["git", "ls-files"], cwd=ROOT).stdout.splitlines()
    yield from (ROOT / path for path in tracked)
    for folder, inside, names in os.walk(ROOT) if not tracked else ():
        inside[:] = [name for name in inside if name not in (".venv", "build")]
        yield from (Path(folder, name) for name in names)


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "python.md"], ids=named)
def test_its_python_is_what_the_memory_takes(page: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert example.count("\n") <= 15
    loop = f"async def main(question, agent):\n{textwrap.indent(example, '    ')}"
    ast.parse(loop)
    for call in (node for node in ast.walk(ast.parse(loop)) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "memory":
            given = [ast.unparse(argument) for argument in call.args]
            named = {keyword.arg: None for keyword in call.keywords if keyword.arg}
            inspect.signature(getattr(AgentMemory, call.func.attr)).bind(None, *given, **named)


def test_every_test_that_the_design_of_checkpoints_asks_for_is_there() -> None:
    page = (DOCS / "design" / "checkpoints.md").read_text("utf-8")
    named = re.findall(r"^\| [^|]+ \| `(test_\w+)` \|$", page, re.MULTILINE)
    assert len(named) == 13
    written = "".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    for test in named:
        assert f"def {test}(" in written, test
