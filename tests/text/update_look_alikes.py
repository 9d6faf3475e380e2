"""Writes `mcp_server/data/look_alikes.json`: characters that look like ASCII, from Unicode's TR 39 and NFKC.

    pip install disarm && python -m tests.text.update_look_alikes

The library (5 MB of native code) is no dependency: comparing needs its table of 2,000 characters only.
"""

from __future__ import annotations

import json
import string
import unicodedata
from importlib import import_module
from pathlib import Path

TARGET = Path(__file__).parents[2] / "mcp_server" / "data" / "look_alikes.json"
SIGNS = "<>/|[]-_:!"
INVISIBLE = {"Cn", "Co", "Cs", "Mn", "Me", "Zs", "Zl", "Zp", "Cc", "Cf"}


def looks_like(character: str) -> str:
    """Returns the ASCII letters or the sign that a character looks like, nothing if it looks like neither."""
    plain = unicodedata.normalize("NFKC", character)
    if not plain.isascii():
        plain = import_module("disarm").normalize_confusables(plain)
    if plain in SIGNS or (plain and all(letter in string.ascii_letters for letter in plain)):
        return str(plain)
    return ""


def main() -> None:
    """Writes the file."""
    table = {
        character: found
        for character in map(chr, range(0x80, 0x110000))
        if unicodedata.category(character) not in INVISIBLE and (found := looks_like(character))
    }
    one = {character: found for character, found in table.items() if len(found) == 1}
    more = {character: found for character, found in table.items() if len(found) > 1}
    looks = {sign: "".join(c for c in one if one[c] == sign) for sign in sorted(set(one.values()))}
    TARGET.write_text(json.dumps({"look_alikes": looks, "ligatures": more}, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
