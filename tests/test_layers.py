"""The arrows of the house, read from the imports themselves."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [
    file for room in ("mcp_server", "tools", "resources", "prompts") for file in sorted((ROOT / room).rglob("*.py"))
]

BELOW: dict[str, set[str]] = {
    "errors": set(),
    "core": {"errors"},
    "settings": {"errors", "core"},
    "settings_file": {"errors", "core", "settings"},
    "home": {"errors"},
    "garbage": set(),
    "endpoints": {"errors"},
    "embed": {"errors", "core", "endpoints"},
    "llm": {"errors", "core", "endpoints"},
    "store": {"errors", "core", "embed"},
    "memory": {"errors", "core", "settings", "embed", "llm", "store"},
    "actions": {"errors", "core", "settings", "embed", "llm", "store", "memory"},
}
RIM = set(BELOW)
BELOW |= dict.fromkeys(("connection", "jobs", "clients", "bench", "demo"), RIM)
BELOW |= {room: RIM | {"connection"} for room in ("tools", "resources", "prompts")}
BELOW["tools"] |= {"clients"}
BELOW["bench"] = BELOW["demo"] = RIM | {"clients"}
BELOW["app"] = RIM | {"jobs", "clients"}
BELOW["serve"] = RIM | {"jobs", "clients", "app", "connection", "tools", "resources", "prompts"}
BELOW["agent_loop"] = RIM
BELOW["aside"] = RIM | {"jobs", "app"}
BELOW["agent"] = RIM | {"app", "agent_loop"}
BELOW["__main__"] = BELOW["cli"] = set(BELOW)

ONLY_IN = {
    "mcp": {"tools", "resources", "prompts", "serve", "clients", "demo", "bench"},
    "aiosqlite": {"store"},
    "sqlite3": {"store"},
    "git": {"store"},
    "click": {"cli"},
    "rich": {"cli", "demo", "bench"},
}
"""Third-party packages that only these rooms may know."""


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if parts[0] == "mcp_server" and len(parts) > 1 else parts[0]


def imports(file: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found += (
                [node.module or ""] if node.module != "mcp_server" else [f"mcp_server.{a.name}" for a in node.names]
            )
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_room_imports_what_lies_above_it(file: Path) -> None:
    here = room_of(".".join(file.relative_to(ROOT).with_suffix("").parts))
    for module in imports(file):
        top = module.split(".")[0]
        if top in {"mcp_server", "tools", "resources", "prompts"}:
            there = room_of(module)
            assert there in {here, "mcp_server", "__version__"} | BELOW.get(here, set()), f"{here} imports {module}"
        elif here == "core":
            assert top in sys.stdlib_module_names, f"core is pure, and imports {module}"
        if top in ONLY_IN:
            assert here in ONLY_IN[top], f"{here} imports {module}; only {sorted(ONLY_IN[top])} may"


@pytest.mark.parametrize("file", sorted((ROOT / "mcp_server" / "core").rglob("*.py")), ids=lambda file: file.name)
def test_core_reads_no_clock_no_file_and_no_chance(file: Path) -> None:
    impure = {
        "time",
        "random",
        "os",
        "pathlib",
        "secrets",
        "uuid",
        "asyncio",
        "threading",
        "subprocess",
        "socket",
        "io",
    }
    assert not impure & {module.split(".")[0] for module in imports(file)}
