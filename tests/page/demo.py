"""A memory with something on every screen of the page: the demo's conversations, and a day of work after them."""

from __future__ import annotations

from importlib.resources import as_file, files

from mcp_server.app import catch_up
from mcp_server.checkpoints import checkpoint
from mcp_server.clients.importers.run import import_path
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.push import for_prompt, for_start
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.knowledge.editing import NewFact
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.remember import remember
from mcp_server.memory import Memory
from mcp_server.model import Caller

ASKER = Caller("tool", "claude-code")
CAKE = "Mrs Kovač ordered Filip's birthday cake. What do I tell Luka and Jelena?"
PROMPTS = (
    "Which flour do we use now, and what did the mill want for it?",
    "ok, thanks a lot!",
    "Ognjen asks whether he may change the order page before Saturday.",
    "What is the capital of Australia?",
    CAKE,
)
SAID = (
    ("user", "From now on the order page shows allergies in capitals, above the name of the cake."),
    ("agent", "Noted: allergies come first, in capitals."),
    ("user", "We decided to take card payments with Monri, not with Stripe."),
    ("agent", "Monri for card payments. I will write that into the page of the project."),
    ("user", "Open: who tests the printed sheet with š and đ before Friday?"),
)


async def fill(memory: Memory) -> None:
    """Fills a new memory."""
    with as_file(files("mcp_server.demo") / "conversation.json") as ours:
        await import_path(memory, ours, kind="claude-ai")
    await extract(memory)
    for number, (role, content) in enumerate(SAID):
        await observe(memory, NewTurn(role, content, "order-page-work", project="order-page"), ASKER)
        if number == 2:
            await checkpoint.make(memory, "order-page-work", "asked", "before the payment work")
    await checkpoint.make(memory, "order-page-work", "compaction", "")
    await extract(memory, "order-page-work")
    fact = NewFact("Answer in Serbian if I write in Serbian.", kind="identity", project="global")
    await remember(memory, fact, ASKER)
    await remember(memory, NewFact("Ognjen pays for the server until June.", kind="fact", project="order-page"), ASKER)
    await catch_up(memory)
    await for_start(memory, "window-1", "startup", ASKER)
    for prompt in PROMPTS:
        await for_prompt(memory, "window-1", prompt, ASKER)
    await compile_context(memory, CompileRequest(message="What did we decide about hazelnuts?"), ASKER)
