from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mcp_server.errors import Invalid
from mcp_server.jobs.scheduler import latest

NOON = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "timezone", "expected"),
    [
        ("0 12 * * *", "UTC", NOON),
        ("0 8 * * *", "UTC", NOON.replace(hour=8)),
        ("0 14 * * *", "Europe/Belgrade", NOON),
        ("0 15 * * *", "Europe/Belgrade", datetime(2026, 6, 30, 13, 0, tzinfo=UTC)),
        ("30 3 * * SUN", "UTC", datetime(2026, 6, 28, 3, 30, tzinfo=UTC)),
        ("0 0 1 1 *", "Europe/Belgrade", datetime(2025, 12, 31, 23, 0, tzinfo=UTC)),
    ],
)
def test_the_last_planned_moment_is_in_the_users_zone(expression: str, timezone: str, expected: datetime) -> None:
    assert latest(expression, NOON, timezone) == expected
    assert latest(expression, NOON.replace(second=59), timezone) == expected


@pytest.mark.parametrize("expression", ["", "daily", "* * * *", "0 0 0 1 1 1", "61 * * * *", "0 0 31 2 *"])
def test_what_is_no_expression_is_named(expression: str) -> None:
    with pytest.raises(Invalid, match="cron expression"):
        latest(expression, NOON, "UTC")
