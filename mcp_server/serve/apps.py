"""The MCP App: a view of compiled contexts and of proposed changes, in clients that declare the extension for views.

Every client gets the same text. The result for such a client also has HTML in its `_meta`, which clients give to the
view and not to the model.

The user decides about a proposed change in the view, which then calls `decide_change`. To a model this tool is of no
use: it needs a key that only the view gets, and the key fits only the change as it was shown. Clients without views
neither see the tool nor can they call it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.apps import APP_MIME_TYPE, Apps, client_supports_apps
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.resources import FunctionResource
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolRequestParams, CallToolResult
from pydantic import Field

from mcp_server.errors import Refused
from tools.compile_context import SHA256
from tools.rim import hints

if TYPE_CHECKING:
    from mcp_server.knowledge.review import Waiting
    from mcp_server.memory import Memory

logger = logging.getLogger(__name__)

VIEW = "ui://context-manager/view.html"
DECIDE = "decide_change"
HTML = "context-manager/html"
"""The key in a result's `_meta` of the HTML that the view shows."""

VIEWED = ("compile_context", "remember")
"""Tools whose results have a view."""


class MemoryApp(Apps):
    """The view, its tool, and what the view shows. `memory` returns the open memory.

    Replicas that serve the same clients share a `secret`.
    """

    def __init__(self, memory: Callable[[], Awaitable[Memory]], secret: bytes | None = None) -> None:
        super().__init__()
        self._memory = memory
        self._secret = secret or secrets.token_bytes(32)
        self.add_resource(
            FunctionResource(
                uri=VIEW,
                name="view",
                title="Context manager",
                mime_type=APP_MIME_TYPE,
                meta={"ui": {"prefersBorder": True}},
                fn=_document,
            )
        )
        offered = self.tool(
            resource_uri=VIEW,
            visibility=["app"],
            name=DECIDE,
            annotations=hints(reads=False, destroys=True, repeats=False),
            structured_output=False,
        )
        offered(self._decide)

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Adds the HTML for the view to results, and refuses `decide_change` to clients without views."""
        views = client_supports_apps(ctx)
        if params.name == DECIDE and not views:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {DECIDE}")
        result = await call_next(ctx)
        if not views or not isinstance(result, CallToolResult):
            return result
        if params.name == DECIDE or (params.name in VIEWED and not result.is_error):
            try:
                result.meta = {**(result.meta or {}), HTML: await self._html(params.name, result)}
            except Exception:  # the call has done its work, and the view shows the text
                logger.exception("the view of %s could not be rendered", params.name)
        return result

    async def hide(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware that lists neither `decide_change` nor the view to clients without views."""
        result = await call_next(ctx)
        if isinstance(result, dict) and not client_supports_apps(ctx):
            if ctx.method == "tools/list":
                return {**result, "tools": [tool for tool in result["tools"] if tool["name"] != DECIDE]}
            if ctx.method == "resources/list":
                return {**result, "resources": [one for one in result["resources"] if one["uri"] != VIEW]}
        return result

    async def _html(self, tool: str, result: CallToolResult) -> str:
        from mcp_server.page import view

        memory = await self._memory()
        if tool == "compile_context":
            return await view.receipt(memory, (result.meta or {})[SHA256])
        return await view.changes(memory, result.structured_content, self._key)

    async def _decide(
        self,
        change: Annotated[str, Field(max_length=40)],
        key: Annotated[str, Field(max_length=64)],
        approve: bool,
    ) -> str:
        """For the view only: carries out what the user decided there about a proposed change."""
        from mcp_server.knowledge.review import approve as write
        from mcp_server.knowledge.review import reject, waiting

        memory = await self._memory()
        (found,) = await waiting(memory, change)
        if not hmac.compare_digest(key.encode(), self._key(found).encode()):
            raise Refused(
                "this change is not the one that was shown: only the user decides, in the view or with "
                "`context-manager approve`, which shows it as it is now"
            )
        if approve:
            done = await write(memory, change, anyway=found.changed)
            return f"The user approved the change: {done.path} is {done.action}."
        return f"The user rejected the change: {(await reject(memory, change)).path} stays as it is."

    def _key(self, change: Waiting) -> str:
        return hmac.new(self._secret, change.mark.encode(), hashlib.sha256).hexdigest()


def with_view(tool: Tool) -> Tool:
    """Returns the tool with the address of the view, if its results have one."""
    if tool.name in VIEWED:
        # Some clients read only the flat key, which is older than the standard.
        tool.meta = {"ui": {"resourceUri": VIEW}, "ui/resourceUri": VIEW}
    return tool


def _document() -> str:
    from mcp_server.page.view import document

    return document()
