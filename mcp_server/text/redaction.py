"""Finds secrets in text and replaces them by `[redacted:KIND]` before anything is written.

Keys with a known form (`ghp_…`, `AKIA…`, private key blocks) are found anywhere. Other passwords and keys are found by
the text before them (`password=`, `api_key:`, `mysql -p`), if the value looks like a secret: `password: required` and
`password = os.environ["PW"]` do not. Every search is linear in the length of the text.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from mcp_server.model import ToolCall, Turn
from mcp_server.text.fencing import visible
from mcp_server.text.secret_forms import FORMS, mixed
from mcp_server.text.words import listed

MARK = "[redacted:"


@dataclass(frozen=True, slots=True)
class SecretSpan:
    """text[start:end] is a secret of this kind."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without secrets, and the kinds of the removed ones, each once, in order."""

    text: str
    kinds: tuple[str, ...] = ()


def redact(text: str) -> Redacted:
    """Replaces every secret by `[redacted:KIND]`. Idempotent."""
    kinds: dict[str, None] = {}
    while found := secrets(text):  # a replacement can expose another key
        parts: list[str] = []
        position = 0
        for secret in found:
            parts += (text[position : secret.start], f"{MARK}{secret.kind}]")
            position = secret.end
            kinds[secret.kind] = None
        text = "".join([*parts, text[position:]])
    return Redacted(text, tuple(kinds))


def redact_turn(turn: Turn) -> Turn:
    """Returns a turn without secrets in content, speaker's name and tool calls; `redacted` has their kinds."""
    kinds: list[str] = [*turn.redacted]

    def clean(text: str) -> str:
        found = redact(text)
        kinds.extend(found.kinds)
        return found.text

    content, name = clean(turn.content), None if turn.name is None else clean(turn.name)
    calls = tuple(
        ToolCall(clean(call.name), clean(call.summary), clean(call.result), tuple(map(clean, call.files)))
        for call in turn.tool_calls
    )
    return replace(turn, content=content, name=name, tool_calls=calls, redacted=tuple(dict.fromkeys(kinds)))


_CODES = re.compile(
    r"(?:\x1b|\\(?:x1b|u001b|033|e))\[[0-9;]{0,20}m|\\[nrt]|\\u00[0-9a-f]{2}|%(?:20|22|26|27|3[AaDdFf])", re.IGNORECASE
)
"""Escape codes for a color, a line end or a quote. Their last letter would hide the beginning of a key (`\\nghp_…`)."""


def secrets(text: str) -> tuple[SecretSpan, ...]:
    """Returns every secret in the text, in order and without overlap. Invisible characters do not hide secrets."""
    seen, positions = visible(text)
    if positions is not None:
        return tuple(
            SecretSpan(span.kind, positions[span.start], positions[span.end - 1] + 1) for span in secrets(seen)
        )
    shown = (
        _CODES.sub(lambda match: " " * len(match.group()), text) if any(sign in text for sign in "\\\x1b%") else text
    )
    found = [
        *_private_keys(text),
        *_of_known_form(shown),
        *_marked(text, ("://",), _URL_PASSWORD, "url-password", lambda value: not _is_placeholder(value)),
        *_marked(shown, ("bearer", "authorization"), _SCHEME, "bearer-token", lambda v: mixed(v) or _is_login(v)),
        *_assigned(text, shown),
        *_in_cookies(text),
        *_marked(shown, ("auth",), _AUTH_FIELD, "password", _is_login),  # as Docker and npm store it
    ]
    found.sort(key=lambda secret: (secret.start, -secret.end))
    apart: list[SecretSpan] = []
    for secret in found:
        if apart and secret.start < apart[-1].end:
            if secret.end > apart[-1].end:  # overlapping secrets: remove both
                apart[-1] = SecretSpan(apart[-1].kind, apart[-1].start, secret.end)
            continue
        apart.append(secret)
    return tuple(apart)


def _of_known_form(text: str) -> Iterator[SecretSpan]:
    """Yields every key of a known form, in linear time."""
    windows = _around((match.span() for match in _LONG_RUN.finditer(text) if _dense(match.group())), 100)
    if not windows:
        return
    for form in FORMS:
        if any(needle in text for needle in form.needles.split()):
            for start, end in windows:
                for match in _pattern(form.pattern).finditer(text, start, end):
                    if form.accept(match.group()):
                        yield SecretSpan(form.kind, match.start(), match.end())
    yield from _by_rules(text, windows)


_LONG_RUN = re.compile(r"[A-Za-z0-9_+/=.~-]{15,}")
"""Every key has such a run and most sentences have none, so that only the text around one is searched."""
_REST_OF_KEY = re.compile(r"[A-Za-z0-9_-]{0,400}={0,2}")
RULES: list[tuple[str, list[str], int, str]] = json.loads(
    (Path(__file__).parents[1] / "data" / "secret_rules.json").read_text("utf-8")
)
"""Patterns of kingfisher-secret-scanner, written by `tests/text/update_secret_rules.py`: name, texts in lower case
one of which a match contains, group, pattern. Copyright of the rules: the Betterleaks authors (MIT license), the Veles
and the Kingfisher authors (Apache License 2.0)."""

_NEEDLES: dict[str, list[int]] = {}
for _number, _rule in enumerate(RULES):
    for _needle in _rule[1]:
        _NEEDLES.setdefault(_needle, []).append(_number)


def _dense(run: str) -> bool:
    return any(map(str.isdigit, run)) or sum(map(str.isupper, run)) >= 4


def _around(spans: Iterable[tuple[int, int]], margin: int) -> list[tuple[int, int]]:
    """Returns the given spans with a margin on both sides, joined where they overlap. The last may end after the text,
    which the search in a window allows."""
    windows: list[tuple[int, int]] = []
    for start, end in spans:
        start, end = max(0, start - margin), end + margin
        if windows and start <= windows[-1][1]:
            windows[-1] = (windows[-1][0], max(end, windows[-1][1]))
        else:
            windows.append((start, end))
    return windows


def _by_rules(text: str, windows: list[tuple[int, int]]) -> Iterator[SecretSpan]:
    lower = "\n".join(text[start:end] for start, end in windows).lower()
    tried = {number for needle, numbers in _NEEDLES.items() if needle in lower for number in numbers}
    for number in sorted(tried):
        kind, _, group, _ = RULES[number]
        pattern, alone = _compiled(number)
        for start, end in windows:
            for match in pattern.finditer(text, start, end):
                first, last = match.span(group if match.group(group) is not None else 0)
                if _varied(match.group()) if alone else _generated(text[first:last]):
                    rest = _REST_OF_KEY.match(text, last)
                    yield SecretSpan(kind, first, rest.end() if rest else last)


@cache
def _pattern(source: str) -> re.Pattern[str]:
    """Returns the pattern of a form, compiled on first use, which keeps the start fast. A match must not begin inside a
    run of key characters: that would make long runs quadratic."""
    return re.compile(rf"(?<![A-Za-z0-9_-])(?:{source})")


@cache
def _compiled(number: int) -> tuple[re.Pattern[str], bool]:
    """Returns the pattern of a rule, and whether its key is recognizable without a service's name before it."""
    source = RULES[number][3]
    return re.compile(source, re.ASCII), "{0,20})[" not in source and "{0,32}?" not in source


def _varied(value: str) -> bool:
    """Returns whether a key of a known form is not a placeholder (`xxxx`, `your_token`)."""
    return len(set(value)) >= 8 and (any(map(str.isdigit, value)) or sum(map(str.isupper, value)) >= 4)


def _generated(value: str) -> bool:
    """Returns whether a value is random, unlike a date or a name."""
    return mixed(value) and len(set(value)) >= 8


_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")

_PUTTY = re.compile(r"Private-Lines: [0-9]{1,3}(?:\r?\n|\\n)((?:[A-Za-z0-9+/=]{1,80}(?:\r?\n|\\n|$)){1,999})")


def _private_keys(text: str) -> Iterator[SecretSpan]:
    if "Private-Lines" in text:
        yield from (SecretSpan("private-key", *match.span(1)) for match in _PUTTY.finditer(text))
    if "PRIVATE KEY" not in text:
        return
    ends = [match.end() for match in _KEY_END.finditer(text)]
    position = passed = 0
    for begin in _KEY_BEGIN.finditer(text):
        if begin.start() < position:
            continue
        while passed < len(ends) and ends[passed] <= begin.end():
            passed += 1
        closed = passed < len(ends) and ends[passed] - begin.start() <= 20_000
        position = ends[passed] if closed else _end_of_lines(text, begin.end())
        yield SecretSpan("private-key", begin.start(), position)


def _end_of_lines(text: str, position: int) -> int:
    """Returns the end of a key block without its last line: the first line that is not base64."""
    for line in re.compile(r"\s*([^\n]*)").finditer(text, position, position + 20_000):
        if not re.fullmatch(
            r"[A-Za-z0-9+/=\\]{16,}|(?:Proc-Type|DEK-Info|Version|Comment): .*|", line.group(1).strip()
        ):
            return position
        position = line.end()
    return position


_URL_PASSWORD = re.compile(r"://[^\s/:@\"'<>]{0,100}:([^\s/\"'<>]{1,200})@(?=[A-Za-z0-9\[])")
_SCHEME = re.compile(
    r"\b(?:bearer|authorization\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,3}[\"']?(?:basic|token|api-?key|bot))"
    r"[ \t]{1,4}([A-Za-z0-9._~+/-]{16,4000}=*)",
    re.IGNORECASE,
)
_AUTH_FIELD = re.compile(r"\b_?auth\\{0,3}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,3}[\"']?([A-Za-z0-9+/]{8,2000}={0,2})")


def _marked(
    text: str, needles: tuple[str, ...], pattern: re.Pattern[str], kind: str, accept: Callable[[str], bool]
) -> Iterator[SecretSpan]:
    """Yields the accepted values of a pattern, which is only tried in texts with one of the lower-case `needles`."""
    lower = text.lower()
    if any(needle in lower for needle in needles):
        yield from (SecretSpan(kind, *found.span(1)) for found in pattern.finditer(text) if accept(found[1]))


_COOKIES = re.compile(
    r"(?:\bcookie\\{0,3}[\"']?[ \t]{0,4}[:=]|\bcurl\b[^\n|;]{0,300}?[ \t](?:-b|--cookie)[ \t=]{1,4}[\"']?)"
    r"[ \t]{0,4}([^\r\n\"']{8,8000})",
    re.IGNORECASE,
)
_COOKIE = re.compile(r"[^\s;=,]{1,100}=([^\s;,]{16,4000})")


def _in_cookies(text: str) -> Iterator[SecretSpan]:
    """Yields the values of cookies that a server generated."""
    if "cookie" in (lower := text.lower()) or ("curl" in lower and "-b" in lower):
        for header in _COOKIES.finditer(text):
            for match in _COOKIE.finditer(text, *header.span(1)):
                if _random(match.group(1)):
                    yield SecretSpan("cookie", *match.span(1))


def _is_login(value: str) -> bool:
    """Returns whether a value is base64 of `user:password`."""
    return re.fullmatch(rb"[!-9;-~]{1,200}:[ -~]{3,1500}", _from_base64(value)) is not None


def _from_base64(value: str) -> bytes:
    """Returns the decoded value; b"" if it is not base64."""
    try:
        return b64decode(value, validate=True)
    except ValueError:
        return b""


# ---------------------------------------------------------------- passwords and keys by the text before them


_PASSWORD = (
    r"pass(?:word|wd|phrase|code|wort)|(?:(?<![a-z])|(?<=db))pass(?![a-z])|(?<![a-z])(?:pw|psk|pswd)(?![a-z])"
    r"|kennwort|pwd|lozinka|šifra|contraseña|mot[ \t]de[ \t]passe|senha|wachtwoord"
    r"|hasło|heslo|пароль|密码"
)
_KEY = (
    r"secret(?:[_-]?(?:access)?[_-]?key)?|(?:api|access|account|private|signing|encryption|auth|master)[_-]?key|token"
    r"|credentials?|client-key-data|(?:tls|ssh)[.-](?:private)?key"
)
_VALUE = re.compile(
    r"(?:\"(?P<double>[^\"\n]{4,400})\"|'(?P<single>[^'\n]{4,400})'|`(?P<tick>[^`\n]{4,400})`"
    r"|(?P<bare>[^\s\"'`,;|<]{6,8000}))"
)
_ASSIGNED = re.compile(
    rf"(?:(?:{_PASSWORD})|(?P<key>{_KEY}))[0-9]{{0,2}}"
    r"(?P<how>\\{0,3}[\"'`]?[ \t]{0,12}(?::=|=>|={1,3}|[:：])[ \t]{0,12}"
    r"|[ \t]{1,4}(?:is|je|lautet)[ \t]{1,4}(?::[ \t]{1,4})?"
    r"|(?P<loose>[ \t]{0,4}(?:→|->|\||%3D|>|\t)[ \t]{0,4}|:[ \t]{0,4}\r?\n[ \t]{0,12}|[ \t]{1,4}(?=[\"'])"
    r"|[ \t](?:for|of)[ \t][^\n.:;=]{1,40}?[ \t](?:is|to)[ \t]{1,4}|(?-i:(?<=PASSWORD)|(?<=PASS)|(?<=PWD))[ \t]{1,4}))"
    r"\\{0,3}",
    re.IGNORECASE,
)
_GIVEN = re.compile(  # to a command, or in a `.netrc`
    rf"(?:(?<![\w-])--[a-z0-9-]{{0,40}}(?:(?:{_PASSWORD})|(?P<key>{_KEY}))[ \t]{{1,4}}"
    r"|\bsshpass[ \t]{1,4}-p[ \t]{0,4}"
    r"|\b(?:mysql|mariadb|mycli)[a-z-]{0,12}[ \t][^\n|;&]{0,300}?(?<=[ \t])-p(?=[^\s-])"
    r"|\b(?:docker|podman|nerdctl|helm|oc|az|mongo[a-z]{0,7})[ \t][^\n|;&]{0,300}?(?<=[ \t])-p[ \t=]{1,4}"
    r"|\bredis-cli[ \t][^\n|;&]{0,300}?(?<=[ \t])-a[ \t]{1,4}"
    r"|\bsqlcmd[ \t][^\n|;&]{0,300}?(?<=[ \t])-P[ \t]{0,4}"
    r"|\bldap[a-z]{3,12}[ \t][^\n|;&]{0,300}?(?<=[ \t])-w[ \t]{1,4}"
    r"|\b(?:(?:un)?zip|7za?)[ \t][^\n|;&]{0,300}?(?<=[ \t])-p[ \t]{0,4}(?=[^\s-])|\bidentified[ \t]by[ \t](?=[\"'])"
    r"|\b(?:requirepass|masterauth)[ \t]{1,4}"
    r"|-pass(?:in|out)?[ \t]{1,4}[\"']?pass:"
    r"|\blogin[ \t]{1,4}[^\s]{1,100}[ \t]{1,4}password[ \t]{1,4}"
    rf"|(?<!\S)(?:-u|--user)[ \t=]{{1,4}}[\"']?[^\s:\"']{{1,100}}:(?=\S))",
    re.IGNORECASE,
)
_PGPASS = re.compile(
    r"^[a-z0-9.*_-]{1,253}:(?:[0-9]{4,5}|\*):(?![0-9]{1,9}:)[^\s:]{1,63}:[^\s:]{1,63}:", re.IGNORECASE | re.MULTILINE
)
_NAMES = (
    *("pass", "pwd", "pw", "psk", "pswd", "kennwort", "lozinka", "šifra", "contraseña", "senha", "wachtwoord", "hasło"),
    *("heslo", "пароль", "密码", "secret", "key", "token", "credential"),
)
_COMMANDS = (
    *("--", "-u", "-pass", "sshpass", "login", "mysql", "mariadb", "mycli", "docker", "podman", "nerdctl", "helm"),
    *("oc ", "oc\t", "az ", "az\t", "mongo", "redis-cli", "sqlcmd", "ldap", "zip ", "zip\t", "7z", "identified"),
    *("requirepass", "masterauth"),
)
"""Lower-case words. A text is searched only near one of `_NAMES` for assignments, of `_COMMANDS` for arguments. Words
that are parts of many others, such as "oc" of "process", have the white space that must follow them."""
_EMPTY_WORDS = listed(
    """
    password passwd passphrase passcode pass secret token key apikey required optional none null true false undefined
    nil string str text bytes number integer boolean object example sample placeholder default changeme change-me todo
    fixme hidden masked invalid incorrect wrong missing expired forgotten unknown empty value input field username user
    admin-password my-password mypassword yourpassword lozinka
    """
)
_PLACEHOLDER = re.compile(
    r"^(?:\$|%[({A-Z]|\{|<|\*{3}|x{3}|\.{3}|…|\[(?:redacted|forgotten)|\[?your[-_ ]"
    r"|(?:my|some)[-_ ](?:secret|pass|token|key|api)"
    r"|process\.env|os\.|env[.(\[:]|vault[:.]|ssm:|secrets?[.:/]|config[.\[]|settings[.\[]|self\.|this\.|args\."
    r"|request\.|getenv|import )",
    re.IGNORECASE,
)
_CODE = re.compile(r"^[A-Za-z_][\w.]*(?:[(\[].*|(?:\.[A-Za-z_]\w*)+)$|^[A-Za-z_][\w.]*\($")


def _assigned(text: str, shown: str) -> Iterator[SecretSpan]:
    lower = shown.lower()
    if len(lower) != len(shown):  # `İ` became two characters
        lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in shown)
    for match in (
        *_matches_near(_NAMES, _ASSIGNED, lower, shown, 40),
        *_matches_near(_COMMANDS, _GIVEN, lower, shown, 420),
    ):
        groups = match.groupdict()
        prose = (groups.get("how") or "").strip().rstrip(":").strip().lower() in {"is", "je", "lautet"}
        key, loose = groups.get("key") is not None, groups.get("loose") is not None
        if not (key and loose):
            yield from _value(text, shown, match.end(), key=key, prose=prose, loose=loose)
    for match in _PGPASS.finditer(shown):
        yield from _value(text, shown, match.end(), key=False, prose=False, loose=False)


def _matches_near(
    words: tuple[str, ...], pattern: re.Pattern[str], lower: str, shown: str, margin: int
) -> Iterator[re.Match[str]]:
    """Yields the matches within a margin of one of these words."""
    hits = sorted(match.span() for word in words if word in lower for match in re.finditer(re.escape(word), lower))
    for start, end in _around(hits, margin):
        yield from pattern.finditer(shown, start, end)


_LETTERS_AND_DIGITS = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[^\s()\[\]{}/\\]{6,}$")


def _value(text: str, shown: str, position: int, *, key: bool, prose: bool, loose: bool) -> Iterator[SecretSpan]:
    """Yields the value that begins at this position if it is a secret.

    `prose`: a word such as `is` precedes it. `loose`: the sign before it often precedes other text than values.
    """
    match = _VALUE.match(shown, position)
    if match is None or match.lastgroup is None:
        return
    quoted = match.lastgroup != "bare"
    start, end = match.span(match.lastgroup)
    value = text[start:end].rstrip("\\" if quoted else ".)]}>\\")
    if loose and not _LETTERS_AND_DIGITS.match(value):
        return
    if not key and _looks_like_password(value, quoted=quoted, prose=prose):
        yield SecretSpan("password", start, start + len(value))
    elif key and not prose and _looks_like_key(value):
        yield SecretSpan("secret", start, start + len(value))


_EXAMPLE = re.compile(r"[a-z_-]{0,20}pass(?:word|wd|phrase|code)?[a-z_-]{0,12}[0-9]{0,3}", re.IGNORECASE)
"""Passwords of tutorials: `testpassword`, `secure_password123`."""


def _looks_like_password(value: str, *, quoted: bool, prose: bool) -> bool:
    if len(value) < 4 or _is_placeholder(value) or _EXAMPLE.fullmatch(value) or (not quoted and _CODE.match(value)):
        return False
    kinds = sum(
        (bool(re.search(r"[A-Za-z]", value)), bool(re.search(r"\d", value)), bool(re.search(r"[^\w\s.,:/()-]", value)))
    )
    if quoted and not prose:  # most literals are passwords; labels contain spaces
        return " " not in value and (len(value) >= 5 or kinds >= 2)
    if re.fullmatch(rb"[!-~]{6,300}", _from_base64(value)):  # base64, as in Kubernetes
        return True
    return len(value) >= 6 and kinds >= 2 and not value.startswith(("http://", "https://", "/", "./", "--"))


def _looks_like_key(value: str) -> bool:
    return (
        len(value) >= 12
        and " " not in value
        and not _is_placeholder(value)
        and not _CODE.match(value)
        and _random(value)
    )


def _random(value: str) -> bool:
    """Returns whether a value looks generated: mixed letters and digits in one run, or long and varied."""
    if value.startswith(("http://", "https://", "./")) or (value[0] == "/" and not value.endswith("=")):
        return False
    if mixed(value) or (len(value) >= 40 and len(set(value)) >= 20 and len(set(value) & set("!@#%^&*(=+)")) >= 2):
        return True
    return (
        len(value) >= 20
        and bool(re.fullmatch(r"[A-Za-z0-9+/=]*", value))
        and len(set(value)) >= 14
        and sum(a.islower() and b.isupper() for a, b in pairwise(value)) >= 3
    )


def _is_placeholder(value: str) -> bool:
    return (
        value.lower().strip() in _EMPTY_WORDS
        or _PLACEHOLDER.match(value) is not None
        or len(set(value)) <= 2
        or (len(value) >= 40 and len(set(value[-32:])) <= 5)  # typed by hand: `5b7c7b7c7b7c…`
    )
