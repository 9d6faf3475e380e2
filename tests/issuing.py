"""An issuer of access tokens on this machine, whose tokens can have any claims. It has no login: tests call `token`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from tests.answering import Handler, answering

AUDIENCE = "http://127.0.0.1:8765/mcp"
"""The address of the memory that these tokens are for."""


@cache
def key(kid: str) -> ec.EllipticCurvePrivateKey:
    """Returns a private key, always the same one for a name."""
    return ec.generate_private_key(ec.SECP256R1())


@dataclass
class Issuer:
    """An issuer with published keys. `asked` counts the requests for them."""

    url: str
    kids: list[str] = field(default_factory=lambda: ["first"])
    asked: int = 0

    def published(self, path: str) -> dict[str, Any]:
        """Returns what is at a path."""
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        self.asked += 1
        public = [(kid, json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key(kid).public_key()))) for kid in self.kids]
        return {"keys": [{**one, "kid": kid, "use": "sig", "alg": "ES256"} for kid, one in public]}

    def token(self, subject: str, kid: str = "first", **claims: Any) -> str:
        """Returns a signed token. A claim that is None is left out."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + 600, "scope": "memory"}
        given = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(given, key(kid), "ES256", {"kid": kid})

    def environment(self) -> dict[str, str]:
        """Returns the settings of a server that trusts this issuer."""
        return {"CONTEXT_MANAGER_OAUTH_ISSUER": self.url, "CONTEXT_MANAGER_PUBLIC_URL": AUDIENCE}


@contextmanager
def issuer() -> Iterator[Issuer]:
    """Yields a running issuer."""

    class Publishing(Handler):
        def do_GET(self) -> None:
            self.answer(json.dumps(running.published(self.path)).encode())

    with answering(Publishing) as url:
        running = Issuer(url)
        yield running
