"""The weights of the recognizer, read from the package once a process."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

from mcp_server.core.understanding.model import Model, parse

SHIPPED = Path(__file__).parent.parent / "data" / "recognizer.tsv.xz"


@cache
def recognizer() -> Model:
    """Returns the model. Loading takes about 0.1 s: call it in a worker thread the first time."""
    return parse(lzma.decompress(SHIPPED.read_bytes()).decode())
