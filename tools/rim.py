"""Receives all MCP calls: checks arguments and translates our errors into the protocol's."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import anyio
from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolResult, GetPromptResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import AnyUrl, ConfigDict, Field, ValidationError

from mcp_server.errors import ContextManagerError, Invalid, NotFound, Unavailable
from mcp_server.text.fencing import neutralise, neutralise_values
from mcp_server.text.prose import did_you_mean

if TYPE_CHECKING:
    from mcp_server.memory import Memory

T = TypeVar("T")

HANDED_BACK = frozenset({"path", "session", "turn_id", "workspace"})
"""Fields that a model passes to its next call: their values are not neutralized."""

LONGEST_QUESTION = 3_000
"""Characters of a question to the user."""

PROGRESS_SECONDS = 1.0
"""Seconds between progress notifications of a long call."""

Short = Annotated[str, Field(min_length=1, max_length=200)]
Path = Annotated[str, Field(min_length=1, max_length=1000)]
MaxTokens = Annotated[int, Field(ge=100, le=100_000, description="A longer answer is cut")]


class Rim(MCPServer[Any]):
    """An MCPServer that passes the messages of our own errors on; the SDK hides the text of all other exceptions.

    `memory` opens the workspace, for webhooks.
    """

    memory: Callable[[], Awaitable[Memory]]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        try:
            return await with_progress(context, name, super().call_tool(name, arguments, context))
        except ToolError as error:
            if isinstance(error.__cause__, ContextManagerError):
                raise ToolError(neutralise(str(error.__cause__))) from error.__cause__  # it may quote a file
            raise

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        try:
            return await with_progress(context, str(uri), super().read_resource(uri, context))
        except ResourceError as error:
            cause = error.__cause__
            if isinstance(cause, NotFound):
                raise ResourceNotFoundError(neutralise(str(cause))) from cause
            if isinstance(cause, Unavailable):
                raise ResourceError(neutralise(str(cause))) from cause
            if isinstance(cause, ContextManagerError):  # the caller's mistake, not an internal error
                raise MCPError(INVALID_PARAMS, neutralise(str(cause)), {"uri": str(uri)}) from cause
            raise

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        try:
            return await with_progress(context, name, super().get_prompt(name, arguments, context))
        except ValueError as error:  # the SDK raises this for every error of a prompt
            cause: BaseException = error
            while cause.__cause__ is not None and not isinstance(cause, ContextManagerError):
                cause = cause.__cause__
            raise MCPError(INVALID_PARAMS, str(cause if isinstance(cause, ContextManagerError) else error)) from error


async def with_progress(context: Context[Any, Any] | None, what: str, work: Awaitable[T]) -> T:
    """Returns the result of `work`, and sends the client a progress notification every second.

    The SDK sends them only to a client that gave a progress token.
    """
    if context is None:
        return await work

    async def report() -> None:
        for seconds in itertools.count(PROGRESS_SECONDS, PROGRESS_SECONDS):
            await anyio.sleep(PROGRESS_SECONDS)
            with contextlib.suppress(Exception):  # the work continues if the client has gone
                await context.report_progress(seconds, message=f"{what}: still working")

    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report)
        try:
            result = await work
        except Exception as error:  # the task group would wrap it in an exception group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


class CheckedArguments(FuncMetadata):
    """The arguments of a tool. Unknown ones are refused, and errors are explained in words.

    `texts` are the arguments of type string: JSON in them is not parsed. Arguments in the object `more` are also
    accepted outside of it.
    """

    texts: frozenset[str]

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        try:
            return super().validate_arguments(_flattened(arguments_to_validate))
        except ValidationError as error:
            raise Invalid(
                "; ".join(_explain(item, list(self.arg_model.model_fields)) for item in error.errors())
            ) from error

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Parses lists and objects that a client sent as JSON text. Strings stay as they are, except `null`."""
        parsed = super().pre_parse_json(data)
        return parsed | {name: data[name] for name in self.texts & data.keys() if parsed[name] is not None}


def _flattened(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments together with those in `more`. If one is given in both places, the one outside counts."""
    outer = {name: value for name, value in arguments.items() if name != "more"}
    inner = arguments.get("more")
    if isinstance(inner, str):  # some clients send objects as JSON text
        with contextlib.suppress(ValueError, RecursionError):
            inner = json.loads(inner)
    if not isinstance(inner, dict | None):
        raise Invalid("argument 'more': must be an object")
    return {**(inner or {}), **outer}


def strict_tool(
    fn: Callable[..., Any], hints: ToolAnnotations, structured: bool = False, more: Mapping[str, str] | None = None
) -> Tool:
    """Returns the tool that a function describes by its signature and docstring, with a compact schema.

    `more` names rarely used arguments, each with a short description. The schema offers them as one object, because
    every session of a client pays for every argument. Descriptions are cached for other connections, unless the
    function has a resolver, which belongs to one connection.
    """
    known = _DESCRIBED.get(fn.__code__)
    if known is None:
        known = _described(fn, hints, structured, more)
        if known.resolved_params:
            return known
        _DESCRIBED[fn.__code__] = known
    return known.model_copy(update={"fn": fn})


_DESCRIBED: dict[CodeType, Tool] = {}
"""Tools by the code of their functions. Describing all tools takes 60 ms, for each workspace that a server opens."""


def _described(
    fn: Callable[..., Any], hints: ToolAnnotations, structured: bool, more: Mapping[str, str] | None
) -> Tool:
    tool = Tool.from_function(fn, annotations=hints, structured_output=None if structured else False)
    made = tool.fn_metadata
    strict: type[ArgModelBase] = type(fn.__name__, (made.arg_model,), {"model_config": ConfigDict(extra="forbid")})
    tool.parameters = compact(strict.model_json_schema())
    tool.fn_metadata = CheckedArguments(
        texts=frozenset(name for name, schema in tool.parameters["properties"].items() if schema["type"] == "string"),
        arg_model=strict,
        output_model=made.output_model,
        wrap_output=made.wrap_output,
        output_schema=made.output_schema and compact(made.output_schema, nulls=True),
    )
    tool.description = " ".join(tool.description.split())
    if more:
        offered = {name: schema for name, schema in tool.parameters["properties"].items() if name not in more}
        listed = "; ".join(f"{name}: {about}" for name, about in more.items())
        offered["more"] = {"type": "object", "description": f"Rarely needed. {listed}"}
        tool.parameters["properties"] = offered
    return tool


def hints(*, reads: bool, destroys: bool = False, repeats: bool = True) -> ToolAnnotations:
    """Returns the four annotations of a tool. Our tools never leave the workspace."""
    return ToolAnnotations(
        read_only_hint=reads, destructive_hint=destroys, idempotent_hint=repeats, open_world_hint=False
    )


async def fitted(memory: Memory, text: str, max_tokens: int) -> str:
    """Returns neutralized stored text with at most `max_tokens` tokens. A cut text says so."""
    shown = neutralise(text)
    fits = await run_sync(memory.tokens.truncate, shown, max_tokens)
    return shown if fits == shown else f"{fits}\n[… cut after {max_tokens:,} tokens; raise max_tokens for the rest]"


def shortened(text: str) -> str:
    """Returns neutralized stored text for a question to the user. A cut text says so."""
    shown = neutralise(text)
    more = len(shown) - LONGEST_QUESTION
    return shown if more <= 0 else f"{shown[:LONGEST_QUESTION]}\n[… {more:,} more characters]"


def answer(text: str, data: dict[str, Any]) -> CallToolResult:
    """Returns a structured answer with its text. Clients show either, so both are complete and neutralized."""
    return CallToolResult(
        content=[TextContent(type="text", text=neutralise(text))],
        structured_content=neutralise_values(data, HANDED_BACK),
    )


def can_ask(ctx: Context[Any, Any]) -> bool:
    """Returns whether the client can show forms to its user: `elicitation: {}` means yes, only `url` in it means no."""
    capabilities = ctx.client_capabilities
    asks = capabilities.elicitation if capabilities else None
    return asks is not None and (asks.form is not None or asks.url is None)


def client_of(context: Context[Any, Any]) -> str | None:
    """Returns the client's name from its `clientInfo`, if any."""
    params = context.session.client_params
    return params.client_info.name if params else None


def compact(schema: dict[str, Any], nulls: bool = False) -> dict[str, Any]:
    """Returns a shorter schema, without titles, references and `minLength`. Unless `nulls`, it also leaves out the type
    `null`, because such an argument can be left out."""
    definitions = schema.get("$defs", {})

    def shrink(node: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in node:
            node = definitions[node["$ref"].rsplit("/", 1)[1]] | {k: v for k, v in node.items() if k != "$ref"}
        options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
        if len(options) == 1 and not nulls:
            node = shrink(options[0]) | {k: v for k, v in node.items() if k != "anyOf"}
        if node.get("default", ...) is None and not nulls:
            node = {k: v for k, v in node.items() if k != "default"}
        kept = {key: value for key, value in node.items() if key not in ("title", "$defs", "minLength")}
        if "properties" in kept:
            kept["properties"] = {name: shrink(value) for name, value in kept["properties"].items()}
        if "anyOf" in kept:
            kept["anyOf"] = [shrink(option) for option in kept["anyOf"]]
        for key in ("items", "additionalProperties"):
            if isinstance(kept.get(key), dict):
                kept[key] = shrink(kept[key])
        return kept

    return shrink(schema)


def _explain(problem: Any, known: list[str]) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
        hint = did_you_mean(where, known, cutoff=0.5) or f"; the arguments are {', '.join(known)}"
        return f"there is no argument {where!r}{hint}"
    if problem["type"] == "missing":
        return f"the argument {where!r} is missing"
    return f"argument {where!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
