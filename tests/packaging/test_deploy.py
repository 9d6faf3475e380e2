"""The files that run a team's memory: Dockerfile, compose.yaml, and those in deploy/."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from mcp_server.settings import SECTIONS, knobs
from tests.packaging.programs import ROOT, uv
from tests.running import run

BASE_MB, GIT_MB, MOST_MB = 125, 55, 440
"""Megabytes of python:3.13-slim-bookworm and of Debian's git without Perl, and of the whole image at most."""


def instructions() -> list[tuple[str, str]]:
    """Returns the Dockerfile's instructions: keyword and arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line.strip()]


def documents(path: str) -> list[Any]:
    return list(YAML(typ="safe").load_all((ROOT / path).read_text()))


def environment_names(path: str) -> set[str]:
    return set(re.findall(r"\bCONTEXT_MANAGER_[A-Z_]+\b", (ROOT / path).read_text()))


def test_the_steps_of_the_image_run_and_fit_in_its_size(tmp_path: Path) -> None:
    source, target = tmp_path / "src", tmp_path / "context-manager"
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for keyword, arguments in instructions():
        if keyword == "COPY" and not arguments.startswith("--from"):
            *names, place = arguments.split()
            for name in names:
                assert f"!{name}" in ignored, "the build would not see it"
                to = source / place / (name if place == "./" else "")
                to.parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy2(ROOT / name, to)
    (step,) = (text for keyword, text in instructions() if keyword == "RUN" and text.startswith("deploy/install "))
    environ = {**os.environ, "PATH": f"{Path(uv()).parent}:{os.environ['PATH']}"}
    environ |= {"HOME": str(tmp_path), "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))}
    assert step.split() == ["deploy/install", "/opt/context-manager"]
    done = run([source / "deploy/install", target], cwd=source, env=environ, timeout=None)
    if done.returncode and re.search(r"dns error|Failed to fetch|error sending request", done.stderr):
        pytest.skip("needs a package registry")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("context-manager-mcp ")
    size = sum(found.stat().st_blocks * 512 for found in target.rglob("*") if found.is_file()) / 1e6
    assert BASE_MB + GIT_MB + size < MOST_MB


def test_the_image_runs_without_the_superuser_and_serves_on_the_port_it_names() -> None:
    said = dict(instructions())
    assert said["USER"].split(":")[0].isdecimal()
    assert said["EXPOSE"] in said["HEALTHCHECK"]
    assert documents("compose.yaml")[0]["services"]["server"]["user"] == said["USER"]


@pytest.mark.parametrize("path", ["Dockerfile", "compose.yaml", "deploy/kubernetes.yaml"])
def test_every_environment_name_is_known(path: str) -> None:
    settings = {name for section, kind in SECTIONS.items() for name, _ in knobs(kind, section)}
    known = {f"CONTEXT_MANAGER_{name.upper().replace('.', '__')}" for name in settings}
    known |= set(re.findall(r"\bCONTEXT_MANAGER_[A-Z_]+\b", (ROOT / "docs/deploy.md").read_text()))
    assert environment_names(path) <= known


def test_compose_runs_two_read_only_replicas_behind_a_proxy() -> None:
    (compose,) = documents("compose.yaml")
    services = compose["services"]
    server = services["server"]
    assert server["deploy"]["replicas"] == 2
    assert server["read_only"]
    assert server["tmpfs"] == ["/tmp"]
    named = {one.split(":")[0] for service in services.values() for one in service.get("volumes", ())}
    assert {name for name in named if not name.startswith("./")} == set(compose["volumes"])
    assert all((ROOT / name).is_file() for name in named if name.startswith("./"))
    proxy = (ROOT / "deploy/Caddyfile").read_text()
    assert "dynamic a server 8765" in proxy
    assert set(re.findall(r"\{\$(\w+)\}", proxy)) == set(services["proxy"]["environment"])
    assert "@database/" in server["environment"]["CONTEXT_MANAGER_HOME"]
    assert set(server["depends_on"]) | set(services["proxy"]["depends_on"]) <= set(services)


def test_the_kubernetes_example_fits_together() -> None:
    found = {one["kind"]: one for one in documents("deploy/kubernetes.yaml")}
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert found["Deployment"]["spec"]["replicas"] == 2
    assert container["securityContext"]["readOnlyRootFilesystem"]
    for kind in ("Service", "PodDisruptionBudget"):
        selector = found[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == pod["metadata"]["labels"]
    for given in container["envFrom"]:
        ((kind, reference),) = given.items()
        assert (
            found[{"secretRef": "Secret", "configMapRef": "ConfigMap"}[kind]]["metadata"]["name"] == reference["name"]
        )
    assert {mount["name"] for mount in container["volumeMounts"]} == {one["name"] for one in pod["spec"]["volumes"]}
    paths = found["Ingress"]["spec"]["rules"][0]["http"]["paths"]
    assert {one["backend"]["service"]["name"] for one in paths} == {found["Service"]["metadata"]["name"]}
    public = found["ConfigMap"]["data"]["CONTEXT_MANAGER_PUBLIC_URL"]
    assert public == f"https://{found['Ingress']['spec']['rules'][0]['host']}{paths[0]['path']}"
