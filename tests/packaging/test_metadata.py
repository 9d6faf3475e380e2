"""Tests of the package's metadata: its versions, `server.json` for the registry, and the plugin's marketplace."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import mcp_server
from mcp_server.home import HOME_VARIABLE
from tests.packaging.programs import ROOT, claude
from tests.running import environ, printed

NAME = "context-manager-mcp"
VERSION = mcp_server.__version__


def document(path: str) -> Any:
    return json.loads((ROOT / path).read_text("utf-8"))


def test_every_file_says_the_packages_version() -> None:
    server, bundle = document("server.json"), document("bundle/manifest.json")
    marketplace, plugin = document(".claude-plugin/marketplace.json"), document("plugin/.claude-plugin/plugin.json")
    said = [
        server["version"],
        *(package["version"] for package in server["packages"]),
        bundle["version"],
        tomllib.loads((ROOT / "bundle/pyproject.toml").read_text("utf-8"))["project"]["version"],
        marketplace["metadata"]["version"],
        *(listed["version"] for listed in marketplace["plugins"]),
        plugin["version"],
    ]
    assert set(said) == {VERSION}


def test_the_bundle_installs_the_wheel_of_this_version() -> None:
    sources = tomllib.loads((ROOT / "bundle/pyproject.toml").read_text("utf-8"))["tool"]["uv"]["sources"]
    assert sources == {NAME: {"path": f"dist/context_manager_mcp-{VERSION}-py3-none-any.whl"}}


def test_every_file_says_the_packages_name_and_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == NAME
    assert set(project["scripts"]) == {NAME, "context-manager"}  # `uvx NAME` runs the script of that name
    assert document("bundle/manifest.json")["compatibility"]["runtimes"]["python"] == project["requires-python"]
    assert [package["identifier"] for package in document("server.json")["packages"]] == [NAME]


def test_the_readme_carries_the_name_that_the_registry_looks_for() -> None:
    (said,) = re.findall(r"<!-- mcp-name: (\S+) -->", (ROOT / "README.md").read_text("utf-8"))
    assert said == document("server.json")["name"]


def test_packages_say_that_they_are_typed() -> None:
    assert (Path(mcp_server.__file__).parent / "py.typed").exists()


def test_classifiers_name_every_python_that_ci_checks() -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(said))
    (checked,) = re.findall(r"^for version in ([\d. ]+); do$", (ROOT / ".ci/pythons").read_text("utf-8"), re.MULTILINE)
    assert classified == checked.split()


SCHEMA = json.loads((Path(__file__).parent / "server_json.schema.json").read_text("utf-8"))


@pytest.fixture
def registry_document() -> Any:
    return json.loads((ROOT / "server.json").read_text("utf-8"))


def test_it_is_valid(registry_document: Any) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(registry_document, SCHEMA, jsonschema.Draft7Validator)


def test_the_variable_it_offers_is_ours(registry_document: Any) -> None:
    (package,) = registry_document["packages"]
    assert [variable["name"] for variable in package["environmentVariables"]] == [HOME_VARIABLE]


def test_it_points_to_the_plugin() -> None:
    document = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text("utf-8"))
    (listed,) = document["plugins"]
    plugin = json.loads((ROOT / listed["source"] / ".claude-plugin/plugin.json").read_text("utf-8"))
    assert listed["name"] == plugin["name"]


def test_claude_code_takes_it_and_installs_from_it(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1"}
        own = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / ".claude")}
        return printed([program, *arguments], cwd=ROOT, env={**environ(), **quiet, **own})

    program = claude()
    for folder in (ROOT, ROOT / "plugin"):
        assert "Validation passed" in run("plugin", "validate", str(folder))
    document = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text("utf-8"))
    name = f"{document['plugins'][0]['name']}@{document['name']}"
    said = re.findall(r"`claude (plugin [^`]+)`", (ROOT / "docs" / "packages.md").read_text("utf-8"))
    assert [words.split()[1:3] for words in said] == [["marketplace", "add"], ["install", name]]
    for words in said:
        run(*words.split())
    assert name.partition("@")[0] in run("plugin", "list")
