"""The same memory through MCP: a pydantic-ai agent that has the server's tools. No key, no network.

    python examples/pydantic_ai_over_mcp.py [FOLDER]

Here the model decides when to observe, remember and read, as in any MCP client; `pydantic_ai_agent.py` does it for
the model, every turn.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.function import AgentInfo, FunctionModel


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The "model": it writes the fact down, reads where it went, and answers with that line."""
    returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not returned:
        return ModelResponse(parts=[ToolCallPart("remember", {"content": "The boiler runs at 2 bar."})])
    if len(returned) == 1:
        return ModelResponse(parts=[ToolCallPart("read", {"path": "knowledge/memory/MEMORY.md"})])
    line = next(line for line in str(returned[-1].content).splitlines() if "boiler" in line)
    return ModelResponse(parts=[TextPart(f"Noted: {line}")])


async def main(workspace: str) -> None:
    server = StdioTransport(sys.executable, ["-m", "mcp_server", "--workspace", workspace])
    agent = Agent(FunctionModel(script), toolsets=[MCPToolset(server)])
    async with agent:
        print((await agent.run("The boiler runs at 2 bar, remember that.")).output)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else empty))
