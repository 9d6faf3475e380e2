from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.preloaded import python

SHOWS = """
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), dict(os.environ), sys.stdin.read(), __name__]))
print("to stderr", file=sys.stderr)
sys.exit(3)
"""


ENDS = """
import atexit, threading, time
atexit.register(print, "after the thread")
threading.Thread(target=lambda: print("thread", time.sleep(0.1))).start()
"""
PROGRAMS = {
    "shows": SHOWS,
    "killed": "import os; os.kill(os.getpid(), 9)",
    "raises": "raise ValueError('é')",
    "says why": "import sys; sys.exit('because é')",
    "interrupted": "raise KeyboardInterrupt",
    "ends": ENDS,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_forked_process_does_what_a_fresh_one_does(tmp_path: Path, program: str) -> None:
    def ran(command: list[str]) -> tuple[int, str, str]:
        env = {**os.environ, "ONLY": "here", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, input="said é\n", cwd=tmp_path, env=env, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr.splitlines()[-1] if done.stderr else ""

    arguments = ("-c", program, "one", "", "two words")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
    try:
        assert ran(python(*arguments)) == ran([sys.executable, *arguments])
    finally:
        signal.signal(signal.SIGINT, before)
