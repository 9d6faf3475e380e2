"""Secrets in text: found by their form, and replaced by `[redacted:KIND]` before anything is written.

Keys with a form of their own (`ghp_…`, `AKIA…`, private key blocks) are found anywhere. Passwords and keys without
one are found by what stands before them (`password=`, `api_key:`), and only if the value looks like one: `password:
required` and `password = os.environ["PW"]` are left alone. Every search is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from mcp_server.core.model import ToolCall, Turn

MARK = "[redacted:"


@dataclass(frozen=True, slots=True)
class SecretSpan:
    """text[start:end] is a secret of this kind."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and the kinds of those taken out, each once, in order."""

    text: str
    kinds: tuple[str, ...] = ()


def redact(text: str) -> Redacted:
    """Replaces every secret by `[redacted:KIND]`. Doing it twice is doing it once."""
    found = secrets(text)
    if not found:
        return Redacted(text)
    parts: list[str] = []
    position = 0
    for secret in found:
        parts += (text[position : secret.start], f"{MARK}{secret.kind}]")
        position = secret.end
    parts.append(text[position:])
    return Redacted("".join(parts), tuple(dict.fromkeys(secret.kind for secret in found)))


def redact_turn(turn: Turn) -> Turn:
    """A turn without secrets in its content, its speaker's name and its tool calls; `redacted` names their kinds."""
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


def secrets(text: str) -> tuple[SecretSpan, ...]:
    """Every secret in the text, in order, none overlapping another."""
    found = [*_private_keys(text), *_formed(text), *_in_urls(text), *_after_scheme(text), *_assigned(text)]
    found.sort(key=lambda secret: (secret.start, -secret.end))
    apart: list[SecretSpan] = []
    for secret in found:
        if apart and secret.start < apart[-1].end:
            if secret.end > apart[-1].end:  # one secret inside the other's beginning: take out both
                apart[-1] = SecretSpan(apart[-1].kind, apart[-1].start, secret.end)
            continue
        apart.append(secret)
    return tuple(apart)


# ---------------------------------------------------------------- keys with a form of their own


@dataclass(frozen=True, slots=True)
class _Form:
    kind: str
    needles: tuple[str, ...]  # a text without any of these is not searched
    pattern: re.Pattern[str]
    accept: Callable[[str], bool] = lambda value: True


def _form(kind: str, needles: str, pattern: str, accept: Callable[[str], bool] | None = None) -> _Form:
    # No restart inside a run of key characters: that would make long runs quadratic.
    compiled = re.compile(rf"(?<![A-Za-z0-9_-])(?:{pattern})")
    return _Form(kind, tuple(needles.split()), compiled, accept or (lambda value: True))


def _mixed(value: str) -> bool:
    """Letters and digits in one unbroken run of eight or more, as random keys have and names do not."""
    return any(
        any(c.isdigit() for c in run) and any(c.isalpha() for c in run) for run in re.findall(r"[A-Za-z0-9]{8,}", value)
    )


_FORMS = (
    _form("aws-key", "AKIA ASIA", r"(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    _form("github-token", "gh github_pat_", r"gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255}", _mixed),
    _form("gitlab-token", "gl", r"gl(?:pat|ptt|rt|dt|ft|oas|soat|cbt|imt|agent)-[A-Za-z0-9_.-]{20,300}"),
    _form(
        "slack-token",
        "xox xapp-",
        r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,300}",
        lambda value: any(map(str.isdigit, value)),
    ),
    _form(
        "slack-webhook", "hooks.slack.com", r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,200}"
    ),
    _form("stripe-key", "sk_ rk_ whsec_", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,255}|whsec_[A-Za-z0-9+/=]{24,255}"),
    _form("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,300}"),
    _form("openai-key", "sk-", r"sk-(?!ant-)(?:proj-|svcacct-|admin-|None-)?[A-Za-z0-9_-]{20,300}", _mixed),
    _form(
        "google-key",
        "AIza ya29. GOCSPX-",
        r"AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,500}|GOCSPX-[A-Za-z0-9_-]{20,60}",
    ),
    _form("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _form("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,500}"),
    _form("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,60}(?![A-Za-z0-9])"),
    _form("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{30,60}"),
    _form("digitalocean-token", "do", r"do[opr]_v1_[a-f0-9]{64}"),
    _form("telegram-token", ":AA", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])"),
    _form("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
)


def _formed(text: str) -> Iterator[SecretSpan]:
    for form in _FORMS:
        if any(needle in text for needle in form.needles):
            for match in form.pattern.finditer(text):
                if form.accept(match.group()):
                    yield SecretSpan(form.kind, match.start(), match.end())


_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")


def _private_keys(text: str) -> Iterator[SecretSpan]:
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
    """Where a key block without its last line ends: at the first line that is not base64."""
    for line in re.compile(r"\s*([^\n]*)").finditer(text, position, position + 20_000):
        if not re.fullmatch(
            r"[A-Za-z0-9+/=\\]{16,}|(?:Proc-Type|DEK-Info|Version|Comment): .*|", line.group(1).strip()
        ):
            return position
        position = line.end()
    return position


_URL_PASSWORD = re.compile(r"://[^\s/:@\"'<>]{0,100}:([^\s/@\"'<>]{1,200})@(?=[A-Za-z0-9\[])")


def _in_urls(text: str) -> Iterator[SecretSpan]:
    if "://" in text:
        for match in _URL_PASSWORD.finditer(text):
            if not _is_placeholder(match.group(1)):
                yield SecretSpan("url-password", *match.span(1))


_SCHEME = re.compile(
    r"\b(?:[Bb]earer|BEARER|[Aa]uthorization[\"']?[:=][ \t]{0,4}[\"']?[Bb]asic)[ \t]{1,4}([A-Za-z0-9._~+/-]{16,4000}=*)"
)


def _after_scheme(text: str) -> Iterator[SecretSpan]:
    if "earer" in text or "BEARER" in text or "asic" in text:
        for match in _SCHEME.finditer(text):
            if _mixed(match.group(1)):
                yield SecretSpan("bearer-token", *match.span(1))


# ---------------------------------------------------------------- passwords and keys by what stands before them


_PASSWORD = r"pass(?:word|wd|phrase|code)|pwd|lozinka|šifra"
_KEY = r"secret(?:[_-]?(?:access)?[_-]?key)?|(?:api|access|private|signing|encryption|auth)[_-]?key|token|credentials?"
_ASSIGNED = re.compile(
    rf"(?:(?P<password>{_PASSWORD})|(?P<key>{_KEY}))[0-9]{{0,2}}"
    r"(?P<how>[\"'`]?[ \t]{0,8}(?::=|=>|={1,3}|:)[ \t]{0,8}|[ \t]{1,4}(?:is|je)[ \t]{1,4}(?::[ \t]{1,4})?)"
    r"(?:\"(?P<double>[^\"\n]{4,400})\"|'(?P<single>[^'\n]{4,400})'|`(?P<tick>[^`\n]{4,400})`|(?P<bare>[^\s\"'`,;|]{6,400}))",
    re.IGNORECASE,
)
_HINTS = re.compile(r"pass|pwd|lozink|šifr|secret|key|token|credential", re.IGNORECASE)
_EMPTY_WORDS = frozenset(
    """
    password passwd passphrase passcode pass secret token key apikey required optional none null true false undefined
    nil string str text bytes number integer boolean object example sample placeholder default changeme change-me todo
    fixme hidden masked invalid incorrect wrong missing expired forgotten unknown empty value input field username user
    admin-password my-password mypassword yourpassword lozinka
    """.split()  # noqa: SIM905  a list of sixty quoted words is harder to read
)
_PLACEHOLDER = re.compile(
    r"^(?:\$|%[({A-Z]|\{|<|\*{3}|x{3}|\.{3}|…|\[redacted|\[?your[-_ ]|(?:my|some)[-_ ](?:secret|pass|token|key|api)"
    r"|process\.env|os\.|env[.(\[:]|vault[:.]|ssm:|secrets?[.:/]|config[.\[]|settings[.\[]|self\.|this\.|args\."
    r"|request\.|getenv|import )",
    re.IGNORECASE,
)
_CODE = re.compile(r"^[A-Za-z_][\w.]*(?:[(\[].*|(?:\.[A-Za-z_]\w*)+)$|^[A-Za-z_][\w.]*\($")


def _assigned(text: str) -> Iterator[SecretSpan]:
    if not _HINTS.search(text):
        return
    for match in _ASSIGNED.finditer(text):
        group = next(name for name in ("double", "single", "tick", "bare") if match.group(name) is not None)
        start, end = match.span(group)
        value = match.group(group)
        if group == "bare":
            value = value.rstrip(".)]}>\\")
            end = start + len(value)
        prose = match.group("how").strip().rstrip(":").strip().lower() in {"is", "je"}
        if match.group("password"):
            if _looks_like_password(value, quoted=group != "bare", prose=prose):
                yield SecretSpan("password", start, end)
        elif not prose and _looks_like_key(value):
            yield SecretSpan("secret", start, end)


def _looks_like_password(value: str, *, quoted: bool, prose: bool) -> bool:
    if len(value) < 4 or _is_placeholder(value) or (not quoted and _CODE.match(value)):
        return False
    kinds = sum(
        (bool(re.search(r"[A-Za-z]", value)), bool(re.search(r"\d", value)), bool(re.search(r"[^\w\s.,:/()-]", value)))
    )
    if quoted and not prose:  # a literal: most are passwords, labels are words with spaces
        return " " not in value and (len(value) >= 5 or kinds >= 2)
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
    """As a generator makes them: mixed letters and digits in one run, or long and varied without being words."""
    if value.startswith(("http://", "https://", "/", "./")):
        return False
    if _mixed(value):
        return True
    return (
        len(value) >= 20
        and bool(re.fullmatch(r"[A-Za-z0-9+/=]*", value))
        and len(set(value)) >= 14
        and _flips(value) >= 3
    )


def _flips(value: str) -> int:
    return sum(a.islower() and b.isupper() for a, b in pairwise(value))


def _is_placeholder(value: str) -> bool:
    return value.lower().strip() in _EMPTY_WORDS or _PLACEHOLDER.match(value) is not None or len(set(value)) <= 2
