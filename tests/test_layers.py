"""The arrows between the rooms of the house, read from the imports themselves.

A file of `mcp_server` is *pure* (values in, values out) or a *verb* (it receives `Memory`, or does I/O). Pure files
import only pure files. Rooms form no circle: each imports only rooms that stand before it in `ORDER`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = [
    file
    for top in ("mcp_server", "tools", "resources", "prompts", "benchmarks")
    for file in sorted((ROOT / top).rglob("*.py"))
]

ORDER = (
    *("mcp_server", "errors", "concurrency", "home", "endpoints", "data", "model", "project", "text", "settings"),
    *("settings_file", "tokens", "conversations", "understanding", "search", "embed", "topics", "llm", "history"),
    *("knowledge", "relevance", "context", "checkpoints", "pressure", "recovery", "forgetting", "storage", "memory"),
    *("status", "connection", "clients", "tools", "resources", "prompts", "jobs", "app"),
    *("page", "serve", "agent_loop", "agent", "demo", "cli", "__main__", "benchmarks"),
)
"""Rooms from the lowest to the highest, as pure files see them: a verb may also import `storage` and `memory`."""

PORTS = {"storage", "memory", "llm"}

ONLY_IN = {
    "mcp": {"tools", "resources", "prompts", "page", "serve", "clients", "demo", "benchmarks"},
    "jinja2": {"page"},
    "aiosqlite": {"storage"},
    "sqlite3": {"storage", "benchmarks"},
    "git": {"storage"},
    "psycopg": {"storage"},
    "psycopg_pool": {"storage"},
    "click": {"cli", "benchmarks"},
    "rich": {"cli", "demo", "benchmarks"},
}
"""Modules that only these rooms may import."""

IMPURE = {"time", "random", "os", "secrets", "uuid", "asyncio", "threading", "subprocess", "socket", "anyio"}
"""Modules that no pure file of these rooms imports: the clock, chance and I/O are arguments."""

PURE_ROOMS = {"text", "understanding"}
"""Rooms without verbs. In other rooms a file that imports no port is pure."""


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if parts[0] == "mcp_server" and len(parts) > 1 else parts[0]


@cache
def imports(file: Path) -> list[str]:
    """Returns the full names of what a file imports: modules, and names within modules as `module.name`."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


OURS = {name_of(file): file for file in FILES}


@cache
def arrows() -> Mapping[str, set[str]]:
    """Returns for each module the modules of ours that it imports."""
    return {
        name: {
            target
            for found in imports(file)
            for target in (found, found.rpartition(".")[0])
            if target in OURS and target != name and (target == found or found not in OURS)
        }
        for name, file in OURS.items()
    }


@cache
def verbs() -> set[str]:
    """Returns the modules that reach a port, directly or through what they import."""
    found = {name for name in OURS if room_of(name) in {"storage", "memory"}}
    while more := {name for name, targets in arrows().items() if name not in found and targets & found}:
        found |= more
    return found


def wrong_arrows(names: set[str]) -> set[tuple[str, str]]:
    """Returns the pairs of rooms whose modules among `names` import a room that stands after theirs in `ORDER`."""
    wrong = set()
    for name in names:
        for target in arrows()[name] & names:
            here, there = room_of(name), room_of(target)
            if PORTS.isdisjoint((here, there)) and ORDER.index(there) > ORDER.index(here):
                wrong.add((here, there))
    return wrong


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room_of(name) for name in OURS} <= set(ORDER)


def test_pure_files_import_only_pure_files_of_rooms_before_theirs() -> None:
    assert wrong_arrows(set(OURS) - verbs()) == set()


def test_verbs_import_only_rooms_before_theirs() -> None:
    assert wrong_arrows(verbs()) == set()


def test_storage_imports_only_pure_files() -> None:
    wrong = {
        (name, target)
        for name in OURS
        if room_of(name) == "storage"
        for target in arrows()[name] & verbs()
        if room_of(target) != "storage"
    }
    assert not wrong


LOCAL_ONLY = {
    "mcp_server.app": "builds the memory of a local workspace",
    "mcp_server.memory": "names the class of the client's project folders as a type",
    "mcp_server.cli.shell": "asks whether a folder is a workspace, before it is opened",
    "mcp_server.serve": "asks whether a folder may become a workspace, before it is opened",
    "mcp_server.serve.http": "writes the token file",
    "mcp_server.serve.instructions": "counts files before the workspace is opened",
    "mcp_server.clients.hooks.offline": "searches without a server",
    "mcp_server.clients.hooks.listener": "writes the address of the local listener",
    "mcp_server.clients.installers.config_file": "writes files of clients",
    "mcp_server.clients.importers.recording": "reads another program's database",
    "mcp_server.forgetting.target": "reads all objects of git",
    "mcp_server.forgetting.forget": "rewrites git's history",
    "mcp_server.history.explore": "checks branches out into folders, with this machine's settings",
    "mcp_server.knowledge.reconstruct": "opens a folder of a branch as a memory of its own",
}
"""Modules that import `storage.local`, each with the reason. All others use what lies beside it in `storage`."""


def test_only_named_modules_reach_past_the_ports_of_storage() -> None:
    past = {name for name in OURS if any(found.startswith("mcp_server.storage.local") for found in imports(OURS[name]))}
    assert {name for name in past if room_of(name) not in {"storage", "benchmarks", "bench"}} == set(LOCAL_ONLY)


IMPLEMENTATIONS = ("mcp_server.storage.local", "mcp_server.storage.postgres")
PORTS_OF_STORAGE, GIT = "mcp_server.storage.ports", "mcp_server.storage.local.git."


def test_ports_and_what_is_built_on_them_know_no_implementation() -> None:
    drivers = {"sqlite3", "aiosqlite", "git", "psycopg", "psycopg_pool"}
    wrong = {
        (name, found)
        for name, file in OURS.items()
        if room_of(name) == "storage" and not name.startswith((*IMPLEMENTATIONS, "mcp_server.storage.sqlite"))
        for found in imports(file)
        if found.startswith(IMPLEMENTATIONS) or found.split(".")[0] in drivers
    }
    # `History` has parts that no other engine implements: their classes are its types.
    assert {pair for pair in wrong if not (pair[0] == PORTS_OF_STORAGE and pair[1].startswith(GIT))} == set()


def test_the_ports_name_git_only_as_types() -> None:
    tree = ast.parse(OURS[PORTS_OF_STORAGE].read_text("utf-8"))
    loaded = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert not {name for name in loaded if name.startswith("mcp_server")}


def test_only_the_app_opens_a_memory_on_postgresql() -> None:
    known = {
        name
        for name, file in OURS.items()
        if room_of(name) != "storage" and any(found.startswith(IMPLEMENTATIONS[1]) for found in imports(file))
    }
    assert known == {"mcp_server.app"}


def test_no_engine_imports_the_other() -> None:
    wrong = {
        (name, found)
        for name, file in OURS.items()
        for one, other in (IMPLEMENTATIONS, IMPLEMENTATIONS[::-1])
        if name.startswith(one)
        for found in imports(file)
        if found.startswith(other)
    }
    assert not wrong


def test_pure_rooms_read_no_clock_no_file_and_no_chance() -> None:
    wrong = {
        (name, found)
        for name, file in OURS.items()
        if room_of(name) in PURE_ROOMS or (name not in verbs() and room_of(name) in {"context", "knowledge", "search"})
        for found in imports(file)
        if found.split(".")[0] in IMPURE
    }
    assert not wrong


def test_only_these_rooms_know_these_packages() -> None:
    wrong = {
        (name, found)
        for name, file in OURS.items()
        for found in imports(file)
        if (top := found.split(".")[0]) in ONLY_IN and room_of(name) not in ONLY_IN[top]
    }
    assert not wrong


def test_the_rooms_import_only_their_own_and_declared_packages() -> None:
    text = {
        (name, found)
        for name, file in OURS.items()
        if room_of(name) == "understanding"
        for found in imports(file)
        if found.split(".")[0] not in {*sys.stdlib_module_names, "mcp_server", "numpy", "tokenizers"}
    }
    assert not text
