"""The advisor's state of a session in S2's shape ("State File")."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from mcp_server.core.advisor.advise import Advice
from mcp_server.core.advisor.items import ContextItem, short_name
from mcp_server.core.scoring.advisor import AdvisorScore


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
