"""Writes `mcp_server/text/look_alikes.py`: characters that look like ASCII, from Unicode's TR 39 and NFKC.

    pip install disarm && python -m tests.core.text.update_look_alikes

The library (5 MB of native code) is no dependency: comparing needs its table of 2,000 characters only.
"""

from __future__ import annotations

import string
import unicodedata
from importlib import import_module
from pathlib import Path

TARGET = Path(__file__).parents[3] / "mcp_server" / "text" / "look_alikes.py"
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
    """Writes the module."""
    table = {
        character: found
        for character in map(chr, range(0x80, 0x110000))
        if unicodedata.category(character) not in INVISIBLE and (found := looks_like(character))
    }
    one = {character: found for character, found in table.items() if len(found) == 1}
    more = {character: found for character, found in table.items() if len(found) > 1}
    lines = "".join(
        f"    {sign!r}: {''.join(c for c in one if one[c] == sign)!a},\n" for sign in sorted(set(one.values()))
    )
    version = import_module("disarm").CONFUSABLES_VERSION
    TARGET.write_text(
        f'"""Characters that look like ASCII (Unicode {version}, TR 39 and NFKC). `fencing.skeleton` replaces them.\n\n'
        "Written by `tests/core/text/update_look_alikes.py` from the library `disarm` (MIT license).\n"
        '"""\n\nfrom __future__ import annotations\n\n# ruff: noqa: E501\n# fmt: off\n\n'
        f"LOOK_ALIKES: dict[str, str] = {{\n{lines}}}\n"
        '"""All characters that look like one ASCII character."""\n\n'
        f"LIGATURES: dict[str, str] = {more!a}\n"
        '"""What a character looks like that looks like several letters."""\n',
        "utf-8",
    )


if __name__ == "__main__":
    main()
