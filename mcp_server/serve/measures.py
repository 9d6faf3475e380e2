"""Metrics for Prometheus, and logs as lines of JSON, of a server that many people use. Neither has content."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

CALLS = Counter("context_manager_calls", "Calls.", ["method", "tool", "outcome"])
SECONDS = Histogram("context_manager_call_seconds", "Duration of calls.", ["method"])
REFUSED = Counter("context_manager_refused_requests", "Requests that were refused before a call.", ["status"])
OPEN = Gauge("context_manager_open_workspaces", "Workspaces that are open in this process.")

KNOWN = frozenset(
    {
        *("initialize", "server/discover", "ping", "tools/list", "tools/call", "resources/list", "resources/read"),
        *("resources/templates/list", "prompts/list", "prompts/get", "completion/complete", "subscriptions/listen"),
    }
)
"""Methods that have a count of their own. A caller could invent any number of others."""

calls_log = logging.getLogger("mcp_server.calls")


def count(method: str, tool: str, outcome: str, seconds: float, **who: str | None) -> None:
    method = method if method in KNOWN else "other"
    CALLS.labels(method, tool, outcome).inc()
    if method != "subscriptions/listen":  # it lasts until the client leaves
        SECONDS.labels(method).observe(seconds)
    fields = {"method": method, "tool": tool, "outcome": outcome, "ms": round(seconds * 1000, 1), **who}
    calls_log.info("call", extra={"fields": fields})


class JsonLines(logging.Formatter):
    """Writes each record as a line of JSON, without content.

    Of other packages and of exceptions only place and type are written, and of our rooms that handle texts the message
    without its values, because the rest may have a part of a text.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = f"{record.filename}:{record.lineno}"
        if record.name.startswith("mcp_server"):
            whole = record.name.startswith(("mcp_server.serve", "mcp_server.storage"))
            message = record.getMessage() if whole else str(record.msg)
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            if frames := traceback.extract_tb(record.exc_info[2]):
                line["where"] = f"{frames[-1].filename}:{frames[-1].lineno}"
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr() -> None:
    """Sends all logs to stderr as JSON: warnings, and a line for each call."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    calls_log.setLevel(logging.INFO)
