"""The screen "State": problems with their remedies, checks, how full contexts are, costs and jobs."""

from __future__ import annotations

import re

from starlette.responses import Response

from mcp_server.errors import ContextManagerError
from mcp_server.jobs.scheduler import JOBS, planned, run_now
from mcp_server.llm.metered import costs
from mcp_server.page.answer import Page, Routes
from mcp_server.pressure.health import health
from mcp_server.status.doctor import examine
from mcp_server.status.status import status

TOKENS = 100_000
"""Maximum size of the status report: large enough for all of it."""

_COMMAND = re.compile(r"`(context-manager [^`]+)`|(context-manager [a-z][a-z -]*[a-z])")


async def show_state(page: Page) -> Response:
    """Returns the status report, the costs and the jobs, and with `checks=yes` also the results of all checks."""
    memory = page.memory
    report = await status(memory, max_tokens=TOKENS)
    spent = await costs(memory)
    return page.show(
        "state.html",
        report=report,
        problems=[_remedy(one) for one in report.problems],
        checks=await examine(memory) if page.query.get("checks") else (),
        contexts=await health(memory),
        costs=spent,
        days=list(spent.days.items()),
        jobs=await planned(memory, JOBS),
    )


async def run_job(page: Page) -> Response:
    form = await page.form()
    try:
        ran = await run_now(page.memory, JOBS, form.get("name", ""))
        said = f"{ran.name}: {ran.outcome}"
    except ContextManagerError as error:
        said = str(error)
    return page.back(form, "/state", said)


def _remedy(problem: str) -> tuple[str, str]:
    """Returns a problem, and the command that its text names, or ""."""
    found = _COMMAND.search(problem)
    return problem, (found[1] or found[2]) if found else ""


ROUTES: Routes = (("GET", "/state", show_state), ("POST", "/state/job", run_job))
