"""The advisor's lexicon: the file that ships, or the user's own in its place (`advisor.lexicon`)."""

from __future__ import annotations

from pathlib import Path

from mcp_server.errors import Invalid
from mcp_server.relevance.advisor_items import Lexicon
from mcp_server.storage.lexicon import SHIPPED, parsed


class LexiconFile:
    """The lexicon file. It is read on first use, and again after a change."""

    def __init__(self, root: Path, chosen: str | None) -> None:
        self._path = root / Path(chosen).expanduser() if chosen else SHIPPED
        self._name = chosen or SHIPPED.name
        self._seen: tuple[int, int] | None = None
        self._lexicon: Lexicon | None = None

    def read(self) -> Lexicon:
        """Returns the lexicon. Raises Invalid with file and line."""
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if self._lexicon is None or stamp != self._seen:
                self._lexicon = parsed(self._path.read_text("utf-8"), self._name)
                self._seen = stamp
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise Invalid(f"advisor.lexicon: {self._name} cannot be read: {what}") from error
        return self._lexicon

    def read_or_shipped(self) -> tuple[Lexicon, str]:
        """Returns the lexicon, and the problem of the user's file if the built-in lexicon is used instead."""
        try:
            return self.read(), ""
        except Invalid as error:
            return LexiconFile(self._path.parent, None).read(), f"{error}; the lexicon that ships is used until then"
