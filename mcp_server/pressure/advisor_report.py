"""The advisor's state of a session in S2's shape ("State File")."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from mcp_server.model import Delivery
from mcp_server.pressure.advise import Advice, Recommendation
from mcp_server.pressure.advisor_items import ContextItem, short_name
from mcp_server.relevance.advisor_score import AdvisorScore
from mcp_server.text.fencing import neutralise

IN_ADD = (
    "This memory cannot take anything out of your client's window: use /compact there, or clear the files that are no "
    "longer needed."
)
IN_REPLACE = (
    '`prune(strategy="advisor", dry_run=false)` moves what is marked `prune` to cold storage, from where `recover` '
    "brings it back."
)
REVIEW_IN_REPLACE = "Nothing of this goes by itself; `anchor` what must stay."
COMPACT_IN_REPLACE = '`prune(strategy="compact", dry_run=false)` compacts it; `recover` brings back what leaves.'


def message(advice: Advice, share: float, delivery: Delivery) -> str:
    """The advice as text; empty if there is none."""
    if not (advice.recommendations or advice.warnings):
        return ""
    lines = [f"Context at {share:.0%}.", *advice.warnings]
    if advice.recommendations:
        lines.append(f"Least needed now (about {advice.savings:,} tokens in all):")
        lines += [_line(one) for one in advice.recommendations]
    if advice.left_out:
        lines.append(f'- … and {advice.left_out} more: `prune(strategy="advisor")` lists them')
    return "\n".join([*lines, *_what_to_do(advice, delivery)])


def _what_to_do(advice: Advice, delivery: Delivery) -> list[str]:
    if delivery == "add":
        return [IN_ADD]
    if any(one.proposal == "prune" for one in advice.recommendations):
        return [IN_REPLACE]
    if advice.recommendations:
        return [REVIEW_IN_REPLACE]
    return [COMPACT_IN_REPLACE] if advice.phase == "too late" else []


def _line(one: Recommendation) -> str:
    verb = "review" if one.proposal == "review" else "prune"
    what = f"{one.item.type} {neutralise(one.item.path)}"
    return f"- {verb} {what}: {one.score.total} points, {one.item.tokens:,} tokens ({one.reason})"


def state_of(
    session: str, advice: Advice, items: Iterable[ContextItem], tokens: int, budget: int, now: datetime
) -> dict[str, Any]:
    """The state as JSON values. `tokens` are those of the whole context, `budget` what it may have; times in ISO 8601,
    UTC. From 95% on nothing is scored, and the items stand there without a score."""
    scores = {item.id: score for item, score in advice.scores}
    return {
        "session_id": session,
        "updated_at": _written(now),
        "total_context_tokens": tokens,
        "context_budget": budget,
        "items": [_item(item, scores.get(item.id)) for item in items],
        "pruning_recommendations": [
            {
                "id": one.item.id,
                "score": one.score.total,
                "reason": one.reason,
                "estimated_savings": one.item.tokens,
            }
            for one in advice.recommendations
        ],
    }


def _item(item: ContextItem, score: AdvisorScore | None) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": item.id,
        "type": item.type,
        "path": item.path,
        "loaded_at": _written(item.loaded),
        "last_accessed": _written(item.last_accessed),
        "access_count": item.accesses,
        "estimated_tokens": item.tokens,
        "tags": list(item.tags),
    }
    if item.type == "file":
        described["mtime"] = _written(item.mtime) if item.mtime else None
    if item.type == "agent":
        described |= {
            "agent_id": short_name(item.path),
            "completed_at": _written(item.loaded),
            "topics": list(item.topics),
        }
    if score is not None:
        described["score"] = {**score.terms(), "total": score.total}
    return described


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
