"""Writes `mcp_server/data/secret_rules.json` from the rules that Kingfisher ships (Betterleaks, Veles).

    pip install kingfisher-secret-scanner && python -m tests.text.update_secret_rules

Kingfisher itself is no dependency: it is 35 MB of native code, needs seconds to compile its rules and 100 MB of memory,
and it expects source files. In conversations a key is followed by a comma, a bracket or a full stop; its rules want
a quote, a blank or the end of the line. So the patterns are taken over with a looser end, as Python's `re` reads them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

TARGET = Path(__file__).parents[2] / "mcp_server" / "data" / "secret_rules.json"
DISTRIBUTION = "kingfisher-secret-scanner"

NOT_SECRET = re.compile(
    r"(?:client|application|account|auth|tenant|app|key|token)-id(?:\.\d)?$|public-key|(?:pub|publishable)-(?:api-)?key"
    r"|-(?:name|host|url|username|address|repository|domain)(?:\.\d)?$|^planetscale-id|-cloud-name|client-id"
)
SECRET_ALL_THE_SAME = {"alibaba-access-key-id", "alibaba-sts-access-key-id", "aws-access-token"}
OURS = re.compile(r"^(?:generic-|curl-|private-key|kubernetes-secret-yaml|gcp-service-account|nuget|.*-webhook$)")
"""Found by `redaction.py` and `secret_forms.py`, which read more contexts than these rules."""

EVERYDAY = {"key", "secret", "token", "api", "private"}
"""No rule is tried because of these words alone."""

_END = r"""(?:\\?['"\x60]|[\s;]|\\[nr]|$)"""
_LOOSE_END = "(?![A-Za-z0-9])"
_MAX = 2000
_SLOWEST = 0.02
"""Seconds that one rule may take on 100,000 hostile characters."""


def pattern_for_python(pattern: str) -> str:
    """Returns a pattern of Rust's `regex` in the syntax of Python's `re`, with a loose end and bounded repetitions."""
    pattern = pattern.replace(_END, _LOOSE_END).replace("[[:alnum:]]", "[A-Za-z0-9]").replace(r"\z", r"\Z")
    pattern = pattern.replace("[:alnum:]", "A-Za-z0-9").replace(r"(?:[\x00-,\./:-@\[-\^`\{-\xFF])", r"[^\w-]")
    return _bounded(_scoped_flags(pattern))


def _scoped_flags(pattern: str) -> str:
    """Turns `a(?i)b` into `a(?i:b)`: Python takes flags for the whole pattern at its beginning only."""
    while found := re.search(r"(?<!^)(?<!\\)\(\?([a-z]+)\)", pattern):
        depth, at = 0, found.end()
        while at < len(pattern) and depth >= 0:
            if pattern[at] == "\\":
                at += 1
            elif pattern[at] == "[":
                at = pattern.index("]", at + 2)
            else:
                depth += {"(": 1, ")": -1}.get(pattern[at], 0)
            at += depth >= 0
        pattern = f"{pattern[: found.start()]}(?{found[1]}:{pattern[found.end() : at]}){pattern[at:]}"
    return pattern


def _bounded(pattern: str) -> str:
    """Gives unbounded repetitions an upper bound, without which a hostile text costs quadratic time."""
    parts = re.findall(r"\\.|\[(?:\\.|[^\\\]])(?:\\.|[^\\\]])*\]|\{\d+,\}|[+*]|\(\?[^)]|.", pattern, re.DOTALL)
    for number, part in enumerate(parts):
        if part in {"+", "*"} and parts[number - 1] not in {"+", "*", "?", "}"}:
            parts[number] = f"{{{int(part == '+')},{_MAX}}}"
        elif re.fullmatch(r"\{\d+,\}", part):
            parts[number] = part[:-1] + f"{_MAX}}}"
    return "".join(parts)


def needles(pattern: str) -> tuple[str, ...]:
    """Returns texts in lower case one of which every match contains; nothing if there are none of three characters."""
    return min(_needed(_parser.parse(pattern)), key=lambda some: -min(map(len, some)), default=())


def _needed(parsed: Any) -> Iterator[tuple[str, ...]]:
    """Yields sets of literals; a match contains at least one of each set."""
    run = ""
    for operation, value in [*parsed, (None, None)]:
        if operation is _constants.LITERAL:
            run += chr(value).lower()
            continue
        if len(run) >= 3:
            yield (run,)
        run = ""
        if operation is _constants.SUBPATTERN:
            yield from _needed(value[3])
        elif operation is _constants.BRANCH:
            choices = [min(_needed(choice), key=lambda some: -min(map(len, some)), default=()) for choice in value[1]]
            if all(choices):
                yield tuple(sorted({needle for choice in choices for needle in choice}))
        elif operation in {_constants.MAX_REPEAT, _constants.MIN_REPEAT} and value[0] >= 1:
            yield from _needed(value[2])


def bare(pattern: str, named: int | None) -> tuple[str, int]:
    """Returns the pattern and the number of the group that holds the secret (0: the whole match).

    Many rules want the service's name before a key whose form says enough (`typeform … tfp_…`). People paste such a key
    alone, so the rest of the pattern is left out.
    """
    if named or pattern.count("{0,20})[\\s'\"]{0,3}") != 1 or not pattern.endswith(f"){_LOOSE_END}"):
        return pattern, named or min(1, re.compile(pattern).groups)
    opened = pattern.rfind("{0,5}(") + 5
    secret = pattern[opened : -len(_LOOSE_END)]
    if not needles(secret):
        return pattern, 1
    flags = "(?i)" if pattern.startswith("(?i)") else ""
    return rf"{flags}\b{secret}{_LOOSE_END}", 1


def is_fast(pattern: str, starts: tuple[str, ...]) -> bool:
    """Returns whether the pattern takes linear time on texts that are made to be slow."""
    compiled = re.compile(pattern, re.ASCII)
    for start in starts:
        for filling in ("", "a", "a1", ".", " ", "-", "=", '"', "a=", "AB1_", "\n", "://a:"):
            text = (start + filling * 3000) * (100_000 // (len(start) + 3000 * len(filling)) + 1)
            begun = time.process_time()
            for _ in compiled.finditer(text):
                pass
            if time.process_time() - begun > _SLOWEST * max(1, len(text) / 100_000) * 10:
                return False
    return True


def rules() -> Iterator[tuple[str, tuple[str, ...], int, str]]:
    """Yields name, needles, group and pattern of each rule that is of use here."""
    shipped = import_module("kingfisher_sdk").Rules(confidence="low", cache=False)
    for entry in shipped.metadata():
        rule = shipped.detail(entry["id"])
        name = re.sub(r"\.\d$", "", rule["id"].split("/")[-1].removeprefix("betterleaks."))
        if rule["path"] or OURS.match(name) or (NOT_SECRET.search(name) and name not in SECRET_ALL_THE_SAME):
            continue
        pattern, group = bare(pattern_for_python(rule["detection_regex"]), rule["betterleaks_secret_group"])
        found = tuple(needle for needle in needles(pattern) if needle not in EVERYDAY)
        if not found:
            print(f"left out, no fixed text: {name}")
        elif not is_fast(pattern, found):
            print(f"left out, slow on hostile texts: {name}")
        else:
            yield name, found, group, pattern


def main() -> None:
    """Writes the file, one rule a line."""
    print(DISTRIBUTION, metadata.version(DISTRIBUTION))
    TARGET.write_text("[\n" + ",\n".join(map(json.dumps, rules())) + "\n]\n", "utf-8")


if __name__ == "__main__":
    main()
