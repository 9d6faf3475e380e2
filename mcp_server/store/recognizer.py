"""Loads the weights of the recognizer from the package, once per process."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

from mcp_server.core.understanding.model import Model, parse

SHIPPED = Path(__file__).parent.parent / "data" / "recognizer.tsv.xz"


@cache
def recognizer(path: Path = SHIPPED) -> Model:
    """Returns the model of a weights file. Loading takes about 0.1 s: call it in a worker thread the first time."""
    return parse(lzma.decompress(path.read_bytes()).decode())
