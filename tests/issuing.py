"""An issuer of access tokens on this machine, whose tokens can have any claims. It has no login: tests call `token`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

AUDIENCE = "http://127.0.0.1:8765/mcp"
"""The address of the memory that these tokens are for."""


@cache
def key(kid: str) -> ec.EllipticCurvePrivateKey:
    """Returns a private key, always the same one for a name."""
    return ec.generate_private_key(ec.SECP256R1())


class Issuer:
    """An issuer with published keys. `asked` counts the requests for them."""

    def __init__(self) -> None:
        self.kids = ["first"]
        self.asked = 0
        issuer = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/.well-known/openid-configuration":
                    found: dict[str, Any] = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}
                else:
                    issuer.asked += 1
                    public = [
                        (kid, json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key(kid).public_key())))
                        for kid in issuer.kids
                    ]
                    found = {"keys": [{**one, "kid": kid, "use": "sig", "alg": "ES256"} for kid, one in public]}
                body = json.dumps(found).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

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
    running = Issuer()
    thread = threading.Thread(target=running.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        running.server.server_close()
        thread.join()
