"""A pydantic-ai agent whose whole prompt is what the memory compiles. It runs as it stands: no key, no network.

    python examples/pydantic_ai_agent.py [FOLDER]

The model is a script (`FunctionModel`) in the place of a real one: put a model's name there, and the rest stays. Each
turn: observe what the user said, compile the prompt within a budget, run the agent, observe its answer. A tool lets
the agent recover what was archived.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile

from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from mcp_server.agent import AgentMemory

BUDGET = 600
SETTINGS = {"CONTEXT_MANAGER_LIFECYCLE__MEMORY_LINE_CAP": "30"}
"""MEMORY.md holds 30 lines instead of 200, so that this short example archives something."""


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The "model". It knows nothing but the prompt, and calls the tool when the user asks for something back."""
    text = str(getattr(messages[0].parts[0], "content", ""))
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    history = text.partition("<!-- history: ")[2].partition("\n\n<!-- ")[0]
    question = history.rpartition("user: ")[2]
    pressure = re.search(r"boiler[^.\n]* (\d+ bar)", text)
    if returned:
        answer = f"Done, it is back: {returned[-1].content}"
    elif back := re.search(r"Keep (.*) in mind again", question):
        return ModelResponse(parts=[ToolCallPart("bring_back", {"about": back[1]})])
    elif "?" in question and "boiler" in question:
        answer = f"The boiler runs at {pressure[1]}." if pressure else "I do not know."
    else:
        answer = "Noted."
    return ModelResponse(parts=[TextPart(answer)])


agent = Agent(FunctionModel(script), deps_type=AgentMemory)


@agent.tool
async def bring_back(context: RunContext[AgentMemory], about: str) -> str:
    """Puts an archived fact back among those that every prompt shows."""
    memory = context.deps
    found = [one for one in await memory.recoverable(about) if one.kind == "archive"]
    if not found:
        return "nothing like that was archived"
    done = await memory.recover(found[0].id, apply=True)
    print(f"tool:  recover {done.id} (recover {done.undo} would undo it)")
    return found[0].summary


async def exchange(memory: AgentMemory, said: str) -> str:
    """One turn of the loop: the prompt is the compiled text, and nothing else."""
    await memory.observe("user", said, delivery="replace")
    prompt = await memory.compile(budget=BUDGET)
    print(f"\nuser:  {said}\n       prompt of {len(prompt):,} characters")
    answer = (await agent.run(prompt, deps=memory)).output
    await memory.observe("agent", answer)
    print(f"agent: {answer}")
    return answer


async def main(workspace: str) -> None:
    print("The first conversation")
    async with AgentMemory.open(workspace, project="boat", environ=SETTINGS) as memory:
        await exchange(memory, "The boiler of the boat runs at 2 bar since we mended the valve.")
        await exchange(memory, "How high is the pressure in the boiler now?")
        await memory.remember("The winter berth is number 14, paid until April.", project="global")
        for deck in range(1, 9):
            await memory.remember(f"Deck {deck} was painted.", project="global")  # the berth is archived meanwhile
        await memory.end()

    print("\nAnother conversation, in another process maybe")
    async with AgentMemory.open(workspace, project="boat", environ=SETTINGS) as memory:
        answer = await exchange(memory, "What was the pressure of the boiler again?")
        assert "2 bar" in answer, answer
        await exchange(memory, "Keep the winter berth in mind again, please.")
        prompt = await memory.compile("Good morning!", budget=BUDGET)
        assert "berth is number 14" in prompt, prompt
        print("\nEvery prompt shows it again: " + next(line for line in prompt.splitlines() if "berth is" in line))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else empty))
