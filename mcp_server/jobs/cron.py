"""Cron expressions: when something planned should last have happened, in the user's own time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from mcp_server.errors import Invalid

FIELDS = 5


def latest(expression: str, now: datetime, timezone: str) -> datetime:
    """The newest planned moment at or before `now`, in UTC. `expression` has five fields (`0 8 * * *`), `timezone` is
    an IANA name. Raises Invalid for what is no cron expression, or one that never comes true."""
    from cronsim import CronSim, CronSimError

    minute = now.astimezone(ZoneInfo(timezone)).replace(second=0, microsecond=0)
    try:
        if len(expression.split()) != FIELDS:
            raise CronSimError("wrong number of fields")
        moments = CronSim(expression, minute + timedelta(seconds=1), reverse=True)  # a second on: the minute counts
        return next(moments).astimezone(UTC)
    except (CronSimError, StopIteration) as error:
        raise Invalid(
            f"{expression!r} is no cron expression that comes true; five fields, as in '0 8 * * *'"
        ) from error
