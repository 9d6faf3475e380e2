"""Doctor: does this machine have what the memory needs, and if not, what to do about it?"""

from __future__ import annotations

from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.actions.projects import map_problems
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.store import front_matter

PROBE = "scratch/.doctor"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `advice` is empty where all is well."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


async def examine(memory: Memory) -> tuple[Check, ...]:
    """Looks at settings, disk, state, index, embedder, tokenizer, git and the front matter of every file."""
    return (
        _settings(memory),
        await run_sync(_disk, memory),
        await _state(memory),
        await _index(memory),
        await run_sync(_embedder, memory),
        await run_sync(_tokenizer, memory),
        await run_sync(_git, memory),
        await run_sync(_files, memory),
    )


def _settings(memory: Memory) -> Check:
    problems = memory.settings.problems
    return Check(
        "settings",
        not problems,
        "; ".join(problems) or "every knob is understood",
        "mend memory-config.yaml" if problems else "",
    )


def _disk(memory: Memory) -> Check:
    try:
        memory.files.write_atomic(PROBE, "a file written durably\n")
        memory.files.remove(PROBE)
    except ContextManagerError as error:
        return Check("disk", False, str(error), "nothing can be recorded until this folder can be written")
    return Check("disk", True, f"{memory.files.root} can be written durably")


async def _state(memory: Memory) -> Check:
    rows = await memory.state.sessions()
    if memory.state.moved_aside:
        return Check(
            "state",
            True,
            f"a damaged state.db was moved to {memory.state.moved_aside.name} and read back from the transcripts",
        )
    return Check("state", True, f"{len(rows)} conversations known")


async def _index(memory: Memory) -> Check:
    status = await memory.index.status()
    messages = [str(message) for message in status.messages]
    return Check(
        "index", not messages, "; ".join(messages) or "in order", "context-manager index rebuild" if messages else ""
    )


def _embedder(memory: Memory) -> Check:
    if memory.embedder is None:
        wanted = memory.settings.search.embedder
        detail = "search.embedder is none" if wanted == "none" else f"{wanted} is not installed"
        return Check(
            "embedder",
            wanted == "none",
            f"{detail}: search uses keywords only",
            "" if wanted == "none" else f"pip install {wanted}",
        )
    try:
        (vector,) = memory.embedder.embed(["a sentence to try it"])
    except ContextManagerError as error:
        return Check("embedder", False, str(error), "pip install --force-reinstall wordllama, or search.embedder: none")
    return Check("embedder", True, f"{memory.embedder.name}, {len(vector)} dimensions, offline")


def _tokenizer(memory: Memory) -> Check:
    try:
        count = memory.tokens.count("a sentence to count")
    except ContextManagerError as error:
        return Check("tokenizer", False, str(error), "reinstall context-manager-mcp")
    return Check("tokenizer", count > 0, "o200k_base, bundled")


def _git(memory: Memory) -> Check:
    version = memory.git.version()
    if version is None:
        return Check(
            "git", False, "git was not found on PATH", "install git; until then there is no history, all else works"
        )
    return Check("git", True, f"git {version}")


def _files(memory: Memory) -> Check:
    problems = [*map_problems(memory)]
    for prefix in ("knowledge/", "topics/", "archive/"):
        for stat in memory.files.walk(prefix):
            if stat.path.endswith(".md"):
                try:
                    front_matter.check(memory.files.read_text(stat.path), stat.path)
                except ContextManagerError as error:
                    problems.append(str(error))
    return Check(
        "files",
        not problems,
        "; ".join(problems[:5]) or "every front matter is understood",
        "edit these files" if problems else "",
    )
