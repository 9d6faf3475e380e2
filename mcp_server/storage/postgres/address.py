"""The address of a team's memory: `postgresql://USER@HOST/DATABASE?workspace=NAME`.

The rest of the address is libpq's: `sslmode`, `passfile` and so on are passed on as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mcp_server.errors import Invalid

DEFAULT_WORKSPACE = "main"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address. `connection` is what libpq gets; `shown` has no password."""

    connection: str
    workspace: str
    shown: str


def parse(text: str) -> Address:
    """Returns the parts of an address. Raises Invalid for a malformed one, and never repeats its password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # its message may have a part of the password
        raise Invalid(f"the address of the memory is malformed; {_FORM}") from None
    options = dict(parse_qsl(parts.query))
    workspace = options.pop("workspace", DEFAULT_WORKSPACE)
    if not _NAME.fullmatch(workspace):
        raise Invalid(
            f"workspace={workspace[:80]!r} is no name of a workspace: use 1 to 63 lower-case letters, digits, '.', '_' "
            "and '-', the first one a letter or digit"
        )
    if not parts.path.strip("/"):
        raise Invalid(f"the address of the memory names no database; {_FORM}")
    user = f"{parts.username}@" if parts.username else ""
    host = (parts.hostname or "") + (f":{port}" if port else "")
    return Address(
        urlunsplit(parts._replace(query=urlencode(options))),
        workspace,
        f"postgresql://{user}{host}{parts.path}?workspace={workspace}",
    )


_FORM = "it has the form postgresql://USER@HOST/DATABASE?workspace=NAME, with a password in PGPASSWORD or ~/.pgpass"
