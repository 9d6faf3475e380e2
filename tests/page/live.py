"""Measures how soon a push appears on the open page: python -m tests.page.live [WORKSPACE]

Without a workspace a demo memory is made. A push is answered by a process of its own, as with hooks.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

from mcp_server.app import open_memory
from mcp_server.context.push import for_prompt
from tests.page.browsing import BROWSER, open_page, serving
from tests.page.demo import ASKER, fill

PUSHES = 10
WATCH = """() => {
  window.came = {};
  setInterval(() => {
    for (const one of document.querySelectorAll("a.push .said")) window.came[one.textContent] ??= Date.now() / 1000;
  }, 5);
}"""


def measure(workspace: Path) -> list[float]:
    """Returns the seconds from each prompt to its appearance on the page."""
    from playwright.sync_api import sync_playwright

    times: list[float] = []
    command = [sys.executable, "-m", "tests.page.live", "--push", str(workspace)]
    with serving(workspace) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER)
        page = browser.new_page()
        open_page(page, address)
        page.evaluate(WATCH)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pushing:
            assert pushing.stdin is not None
            assert pushing.stdout is not None
            pushing.stdout.readline()  # the memory is open
            for number in range(PUSHES):
                prompt = f"Which flour do we use now, and what did the mill want for it? {number} {time.time()}"
                began = time.time()
                print(prompt, file=pushing.stdin, flush=True)
                page.wait_for_function("(prompt) => prompt in came", arg=prompt)
                times.append(float(page.evaluate("(prompt) => came[prompt]", prompt)) - began)
                time.sleep(0.37)  # so that pushes fall on different moments of the page's second
        browser.close()
    return times


async def push(workspace: Path) -> None:
    """Answers each line of the standard input as a prompt."""
    async with open_memory(workspace, {}) as memory:
        await memory.index.refresh()
        await for_prompt(memory, "live", "The first prompt loads the modules.", ASKER)
        print("open", flush=True)
        for number, line in enumerate(sys.stdin):
            await for_prompt(memory, f"live-{time.time()}-{number}", line.strip(), ASKER)


async def _build(workspace: Path) -> None:
    async with open_memory(workspace, {}) as memory:
        await fill(memory)


def main() -> None:
    """Runs the command line."""
    if sys.argv[1:2] == ["--push"]:
        anyio.run(push, Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(sys.argv[1]) if sys.argv[1:] else Path(folder) / "bakery"
        if not sys.argv[1:]:
            anyio.run(_build, workspace)
        times = measure(workspace)
    print(f"{len(times)} pushes: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")


if __name__ == "__main__":
    main()
