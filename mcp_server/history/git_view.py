"""Git in `status`: the branch, waiting commits, files left out, problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations import closed_sessions
from mcp_server.errors import ContextManagerError
from mcp_server.history import committing
from mcp_server.memory import Memory

MOST_SHOWN = 20

PROBES = {
    "knowledge/reference/x.md": "knowledge/",
    "topics/x.md": "topics/",
    "archive/memory/x.md": "archive/",
    "checkpoints/x/x.md": "checkpoints/",
    "raw/conversations/2026/01/01/x.md": "raw/conversations/",
    "anchors.yaml": "anchors.yaml",
}
"""A path in each of our folders, which need not exist, and the name of the folder."""


async def git_view(memory: Memory) -> Mapping[str, Any]:
    """Returns JSON values. Problems with git are reported in the result, not raised."""
    knobs = memory.settings.git
    version = await run_sync(memory.git.version)
    waiting = await memory.state.entries(closed_sessions.PENDING_COMMITS)
    view: dict[str, Any] = {
        "git": version or "not found: capture, search and compiling work; history needs git on PATH",
        "last_commit": (await run_sync(memory.git.head) if version else None) or "none",
        "commits_waiting": len(waiting),
        "auto_commit": knobs.auto_commit,
    }
    if version is None:
        return view
    report = await committing.report(memory)
    try:
        if damage := await run_sync(memory.git.health.quick):
            view["damage"] = damage
            return view
        view["branch"] = await run_sync(memory.git.branch) or "none (an old version is checked out)"
        view["uncommitted_files"] = len(await run_sync(memory.git.uncommitted, committing.OURS))
        view["hooks"] = await run_sync(memory.git.hooks.state) if knobs.hooks else "switched off (git.hooks)"
        view["history"] = await run_sync(_reach, memory)
        view |= await run_sync(_remote, memory)
    except ContextManagerError as error:
        view["trouble"] = str(error)
    said = await memory.state.get(committing.STATE, committing.PUSH)
    view["auto_push"] = knobs.auto_push
    trouble = [report.note, said["said"] if said else "", await run_sync(memory.git.health.large_files)]
    view["left_out"] = [f"{path}: {why}" for path, why in sorted(report.left_out.items())][:MOST_SHOWN]
    view["warnings"] = [f"{path}: {why}" for path, why in sorted(report.warned.items())]
    view["waiting_for_your_commit"] = sorted(report.waiting)[:MOST_SHOWN]
    view["what_is_wrong"] = [one for one in trouble if one and one != "git.auto_commit is off"]
    return view


async def git_problems(memory: Memory) -> list[str]:
    """Returns git's problems for `status`: files that are not committed, and why commits fail."""
    report = await committing.report(memory)
    named = [f"{path} is not committed: {why}" for path, why in sorted(report.left_out.items())][:MOST_SHOWN]
    if memory.settings.git.auto_commit and report.note:
        named.append(f"nothing could be committed: {report.note}")
    if await run_sync(memory.git.available):
        if damage := await run_sync(memory.git.health.quick):
            said = f"{damage}; nothing is committed until `context-manager doctor --repair` has repaired it"
            return [said, *(one for one in named if damage not in one)]
        if memory.settings.git.auto_commit:
            named += await _ignored(memory)
        busy, files = await run_sync(memory.git.unmerged)
        named += [
            f"{path} has an unresolved conflict ({busy}); it is left out of contexts until then" for path in files
        ]
    return named


async def _ignored(memory: Memory) -> list[str]:
    """Returns sentences about our folders that the user's .gitignore excludes."""
    try:
        found = await run_sync(memory.git.ignored, list(PROBES))
    except ContextManagerError:
        return []
    return [
        f"{PROBES[path]} is ignored by git ({where}): nothing new in it is committed" for path, where in found.items()
    ]


def _reach(memory: Memory) -> str:
    """Says whether git has the whole history or a shallow one."""
    if memory.git.is_shallow():
        return "shallow: older commits were never fetched; `git fetch --unshallow` in the workspace fetches them"
    return "whole"


def _remote(memory: Memory) -> Mapping[str, Any]:
    """Returns the remote, and how many commits both sides were apart at the last fetch."""
    remotes = memory.git.remote.names()
    name = memory.settings.git.remote or (remotes[0] if len(remotes) == 1 else None)
    if name is None or name not in remotes:
        return {"remote": "none" if not remotes else f"{', '.join(remotes)}; git.remote names {name or 'none'}"}
    branch = memory.git.remote.counterpart(name, memory.git.branch() or "main")
    counted = memory.git.remote.ahead_behind(name, branch)
    if counted is None:
        return {"remote": f"{name}, never synced"}
    return {"remote": name, "ahead": counted[0], "behind": counted[1]}
