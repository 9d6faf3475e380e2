"""Status: what is stored, the state of each part, and problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.checkpoints import restore, stored
from mcp_server.checkpoints.stored import why_text
from mcp_server.context import windows
from mcp_server.conversations import closed_sessions, sessions
from mcp_server.conversations.projects import map_problems
from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.forgetting import forget
from mcp_server.history import committing
from mcp_server.knowledge import review
from mcp_server.knowledge.anchor import problems as anchor_problems
from mcp_server.knowledge.review import waiting_sentence
from mcp_server.llm.metered import costs
from mcp_server.memory import Memory
from mcp_server.pressure.health import health
from mcp_server.relevance import clarity
from mcp_server.storage.values import SessionRow
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import minute_text
from mcp_server.topics import listing

VIEWS = ("all", "sessions", "hooks", "gauges", "topics", "index", "git", "llm", "sizes", "settings", "clarity")
SHOWN_SESSIONS = 10
TITLES = {"llm": "LLM"}
OF_SESSION = frozenset(("sessions", "gauges", "clarity", "topics"))
"""Views that can be limited to one session."""


@dataclass(frozen=True, slots=True)
class StatusReport:
    """A mapping of JSON values for each view. `problems` are sentences that say what to do."""

    workspace: str
    views: Mapping[str, Mapping[str, Any]]
    problems: tuple[str, ...]
    cut: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"workspace": self.workspace, **self.views, "problems": list(self.problems), "cut": self.cut}

    @property
    def markdown(self) -> str:
        lines = [f"# Memory in {self.workspace}"]
        lines += ["", "## Problems", *(f"- {problem}" for problem in self.problems)] if self.problems else []
        for view, values in self.views.items():
            values = values if len(self.views) == 1 else _without_zeros(values)
            lines += [
                "",
                f"## {TITLES.get(view, view.capitalize())}",
                *(_bullets(values) or ["- every setting has its default" if view == "settings" else "- nothing"]),
            ]
        # Titles of conversations, and problems that quote a file, are stored text.
        return neutralise("\n".join([*lines, *(["", f"[{self.cut}]"] if self.cut else [])]))


async def status(memory: Memory, view: str = "all", session: str | None = None, max_tokens: int = 2000) -> StatusReport:
    """Returns a report about this memory. `session` limits the views in `OF_SESSION` to one session.

    Raises:
        Invalid: no such view.
        NotFound: no such session.
    """
    if view not in VIEWS:
        raise Invalid(f"view {view!r} is not one of {', '.join(VIEWS)}")
    chosen = VIEWS[1:] if view == "all" else (view,)
    problems = [
        *memory.problems(),
        *await run_sync(map_problems, memory),
        *await run_sync(anchor_problems, memory),
        *await run_sync(review.sentences, memory),
        *await listing.problems(memory),
        *await run_sync(_trust, memory),
        *await run_sync(_cold, memory),
        *await git_problems(memory),
    ]
    views: dict[str, Mapping[str, Any]] = {}
    for name in chosen:
        try:
            if name == "clarity":
                views[name] = await clarity.for_status(memory, session, max_tokens if view == name else None)
            elif name == "settings":  # by default only those that differ from their defaults
                views[name] = memory.settings.model_dump(exclude={"problems"}, exclude_defaults=view != name)
            elif name in OF_SESSION:
                views[name] = await _OF_SESSION[name](memory, session)
            else:
                views[name] = await _OF_MEMORY[name](memory)
        except ContextManagerError as error:
            if session and name in OF_SESSION:
                raise
            problems.append(str(error))
    problems += [str(message) for message in views.get("index", {}).get("messages", ())]
    report = StatusReport(memory.disk.name, views, tuple(dict.fromkeys(problems)))
    return await run_sync(_fitted, memory, report, max_tokens)


def _trust(memory: Memory) -> list[str]:
    """Returns problems: changes that wait for approval, unfinished requests to forget, and errors in the lexicon."""
    memory.forgotten.requests()
    waits = waiting_sentence(memory)
    lexicon = memory.lexicon()[1] if memory.settings.advisor.lexicon else ""
    unfinished = [*forget.unfinished_sentences(memory), *restore.unfinished_sentences(memory)]
    return [*filter(None, (waits, lexicon)), *memory.forgotten.problems, *unfinished]


def _cold(memory: Memory) -> list[str]:
    return [
        f"{path} is damaged: this chunk cannot be recovered, but the conversation's transcript still has its words; "
        "restore the file from a backup, or delete it"
        for path in memory.cold.damaged()
    ]


def _without_zeros(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values without zero counts and empty lists, for a report on all views."""
    inner = {key: _without_zeros(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    return {key: value for key, value in inner.items() if value or value is False}


def _bullets(values: Mapping[str, Any], depth: int = 0) -> list[str]:
    lines: list[str] = []
    for key, value in values.items():
        label = "  " * depth + f"- {key.replace('_', ' ')}"
        if isinstance(value, Mapping | list | tuple) and not value:
            lines.append(f"{label}: none")
        elif isinstance(value, Mapping):
            lines += [f"{label}:", *_bullets(value, depth + 1)]
        elif isinstance(value, list | tuple):
            lines += [f"{label}:", *("  " * (depth + 1) + f"- {_item(item)}" for item in value)]
        else:
            lines.append(f"{label}: {_item(value)}")
    return lines


def _item(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {inner}" for key, inner in value.items())
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _fitted(memory: Memory, report: StatusReport, max_tokens: int) -> StatusReport:
    """Returns the report with as many of its views as fit, at least one."""
    names = list(report.views)
    for kept in range(len(names), 0, -1):
        left = names[kept:]
        cut = f"left out: {', '.join(left)}; call again with view='{left[0]}' or a larger max_tokens" if left else None
        report = replace(report, views={name: report.views[name] for name in names[:kept]}, cut=cut)
        if memory.tokens.count(report.markdown) <= max_tokens:
            break
    return report


async def _sessions(memory: Memory, session: str | None = None) -> Mapping[str, Any]:
    if session is not None:
        row = await sessions.require(memory, session)
        return {**_shown(row), "path": row.path, **await _checkpoints(memory, row.session)}
    rows = await sessions.list_sessions(memory, limit=1_000_000)
    recent = [{**_shown(row), "last": f"{row.last_arrival:%F %R}"} for row in rows[:SHOWN_SESSIONS]]
    counts = {
        "conversations": len(rows),
        "open": sum(row.status == "open" for row in rows),
        "turns": sum(row.turns for row in rows),
    }
    return {**counts, **await _checkpoints(memory), "recent": recent}


def _shown(row: SessionRow) -> Mapping[str, Any]:
    return {name: getattr(row, name) for name in ("session", "title", "status", "turns")}


async def _checkpoints(memory: Memory, session: str | None = None) -> Mapping[str, Any]:
    kept = await stored.listed(memory, session)
    head = kept[0] if kept else None
    last = f"{head.id}, {minute_text(head.at)} UTC, after turn {head.turn}, {why_text(head)}" if head else "none"
    return {"checkpoints": len(kept), "last_checkpoint": last}


async def _gauges(memory: Memory, session: str | None = None) -> Mapping[str, Any]:
    shown = [
        {
            "session": one.session_id,
            "live": f"{one.current_tokens:,} of {one.limit:,} tokens ({one.pct_used:.0%})",
            "client": "not reported"
            if one.client_pct is None
            else f"{one.client_tokens:,} tokens ({one.client_pct:.0%})",
            "chunks": one.memcached_chunks,
            "cold": one.cold_storage_chunks,
            "next": one.next_step,
        }
        for one in (await health(memory, session))[:SHOWN_SESSIONS]
    ]
    return {"open_conversations": shown, "limit_tokens": memory.settings.context.limit_tokens}


async def _topics(memory: Memory, session: str | None = None) -> Mapping[str, Any]:
    """Returns the number of topics, and the active ones of the session, or of the most recent open one."""
    if session is None:
        session = next((row.session for row in await sessions.list_sessions(memory, open_only=True, limit=1)), None)
    view = await listing.list_topics(memory, session)
    return {
        "topics": len(view.topics),
        "by_activation": dict(Counter(row.activation for row in view.topics)),
        "session": session,
        "active": {row.name: row.by for row in view.topics if row.state == "active"},
    }


_OF_SESSION = {"sessions": _sessions, "gauges": _gauges, "topics": _topics}


async def _hooks(memory: Memory) -> Mapping[str, Any]:
    knobs = memory.settings.hooks
    paused = [one.words for one in await windows.pauses(memory)]
    last = await run_sync(_last_pushed, memory)
    return {
        "pushing": "switched off" if not knobs.inject else "; ".join(paused) or "on",
        "recording": knobs.capture,
        "last_pushed": f"{str(last['at'])[:16].replace('T', ' ')}: {last['line']}" if last else "never",
    }


def _last_pushed(memory: Memory) -> Mapping[str, Any] | None:
    """Returns the log's entry of the last text that was pushed into a prompt."""
    recent = islice(windows.pushed(memory), 1_000)
    return next((record for record in recent if record.get("decision") == "injected"), None)


async def _llm(memory: Memory) -> Mapping[str, Any]:
    found = await costs(memory)
    return {
        "provider": found.provider,
        "today": f"{found.today.calls} calls, {found.today.tokens:,} of {found.daily_tokens:,} tokens",
        "since": f"{found.since}: {found.total.calls} calls, {found.total.tokens:,} tokens",
        "cost": f"${found.total.usd:.4f}" if found.priced else "prices are not set",
    }


async def _sizes(memory: Memory) -> Mapping[str, Any]:
    def counted() -> Mapping[str, Any]:
        folders = ("raw", "knowledge", "topics", "archive")
        return {
            "files": dict(sorted(memory.files.count().items())),
            "bytes": {name: sum(stat.size for stat in memory.files.walk(f"{name}/")) for name in folders},
        }

    return await run_sync(counted)


# ---------------------------------------------------------------- git

MOST_SHOWN = 20
NO_GIT = "none: PostgreSQL keeps the earlier versions of documents; `recover` lists them"
SHALLOW = "shallow: older commits were never fetched; `git fetch --unshallow` in the workspace fetches them"

PROBES = {
    "knowledge/reference/x.md": "knowledge/",
    "topics/x.md": "topics/",
    "archive/memory/x.md": "archive/",
    "checkpoints/x/x.md": "checkpoints/",
    "raw/conversations/2026/01/01/x.md": "raw/conversations/",
    "anchors.yaml": "anchors.yaml",
}
"""A path in each of our folders, which need not exist, and the folder's name."""


async def git_view(memory: Memory) -> Mapping[str, Any]:
    """Returns git's branch, waiting commits, files left out and problems as JSON values. Errors of git are part of the
    result, not raised."""
    if not memory.disk.here:
        return {"git": NO_GIT}
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
        view["history"] = SHALLOW if await run_sync(memory.git.is_shallow) else "whole"
        view |= await run_sync(_remote, memory)
    except ContextManagerError as error:
        view["trouble"] = str(error)
    said = await memory.state.get(committing.STATE, committing.PUSH)
    view["auto_push"] = knobs.auto_push
    trouble = [report.note, said["said"] if said else "", await run_sync(memory.git.health.large_files)]
    view["left_out"] = [f"{path}: {why}" for path, why in sorted(report.left_out.items())][:MOST_SHOWN]
    view["warnings"] = [f"{path}: {why}" for path, why in sorted(report.warned.items())]
    view["waiting_for_your_commit"] = sorted(report.waiting)[:MOST_SHOWN]
    view["what_is_wrong"] = [one for one in trouble if one]
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
            f"{path} has an unresolved conflict ({busy}); it is left out of contexts until the conflict is resolved"
            for path in files
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


async def _index(memory: Memory) -> Mapping[str, Any]:
    return asdict(await memory.index.status())


_OF_MEMORY = {"hooks": _hooks, "index": _index, "git": git_view, "llm": _llm, "sizes": _sizes}
