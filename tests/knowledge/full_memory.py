"""A MEMORY.md that is nearly full, in one write: two hundred calls of `remember` would say no more."""

from __future__ import annotations

from mcp_server.memory import Memory
from mcp_server.text.destinations import MEMORY


def multiply(memory: Memory, entry: str, count: int) -> None:
    """Beside the entry that ends with `entry`, say "number 0", writes the same with the numbers up to `count`."""
    text = memory.files.read_text(MEMORY)
    (line,) = [line for line in text.splitlines(keepends=True) if line.endswith(f"{entry}\n")]
    more = [line.replace("number 0", f"number {number}") for number in range(1, count)]
    memory.files.write_atomic(MEMORY, text.replace(line, "".join([line, *more])), text)
