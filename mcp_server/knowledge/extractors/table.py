"""Extractors: what of a conversation becomes knowledge. One file each, by name and version; the same turns give the
same lines.

Whoever writes one of their own publishes an `Extractor` under the entry point group `context_manager.extractors`; one
with the name of ours takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_server.knowledge.extractors import items, journal, lessons, people, procedures
from mcp_server.knowledge.extractors.extractor import Context, Extractor, context_of

REGISTRY: Mapping[str, Extractor] = {
    extractor.name: extractor
    for extractor in (
        *items.EXTRACTORS,
        *(module.EXTRACTOR for module in (lessons, people, procedures, journal)),
    )
}

ENTRY_POINTS = "context_manager.extractors"

__all__ = ["ENTRY_POINTS", "REGISTRY", "Context", "Extractor", "context_of"]
