"""One version and one name, in every file that says them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import mcp_server
from tests.packaging.programs import ROOT

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
