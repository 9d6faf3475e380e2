"""Checks the access tokens of requests: a JWT that an OAuth issuer signed for this server.

A request without a valid token is answered with 401, one without the scopes with 403. Both name the metadata of this
resource (RFC 9728), from which a client learns the issuer and signs its user in.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import jwt
from anyio.to_thread import run_sync
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware, get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.routes import build_resource_metadata_url
from pydantic import AnyHttpUrl
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_server.errors import Invalid, Unavailable

ISSUER_VARIABLE = "CONTEXT_MANAGER_OAUTH_ISSUER"
AUDIENCE_VARIABLE = "CONTEXT_MANAGER_OAUTH_AUDIENCE"
SCOPES_VARIABLE = "CONTEXT_MANAGER_OAUTH_SCOPES"
URL_VARIABLE = "CONTEXT_MANAGER_PUBLIC_URL"

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a public key. A secret that the issuer shares with clients must not open a memory."""

LEEWAY_SECONDS = 5
"""Accepted difference between the issuer's clock and ours."""

KEYS_SECONDS = 300.0
"""Seconds for which the issuer's keys are cached. An unknown key is looked up earlier, every 30 seconds at most."""

ISSUER_SECONDS = 5.0
"""Time limit of a request to the issuer."""

NAMES = ("name", "preferred_username", "email")
"""Claims that name a person, for lists of members."""


class InvalidToken(Exception):
    """The token is refused. The message gives the reason, and contains no part of the token."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """The settings: the issuer of tokens, the public address of this server, and the required audience and scopes."""

    issuer: str
    url: str
    audience: str
    scopes: tuple[str, ...]

    @property
    def metadata_url(self) -> str:
        return str(build_resource_metadata_url(AnyHttpUrl(self.url)))


def settings_of(environ: Mapping[str, str]) -> OAuth:
    """Returns the settings in the environment. Raises Invalid if one is missing or malformed."""
    issuer, url = environ.get(ISSUER_VARIABLE, ""), environ.get(URL_VARIABLE, "").rstrip("/")
    for variable, value, example in (
        (ISSUER_VARIABLE, issuer, "https://login.example.org"),
        (URL_VARIABLE, url, "https://memory.example.org/mcp"),
    ):
        parts = urlsplit(value)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
            raise Invalid(
                f"serving a memory on PostgreSQL over HTTP needs OAuth: set {variable}, as in {example} (docs/team.md)"
            )
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise Invalid(f"{variable} must begin with https://, because tokens must not be sent in the clear")
    if not urlsplit(url).path:
        raise Invalid(f"{URL_VARIABLE} needs a path, as in https://memory.example.org/mcp")
    scopes = tuple(environ.get(SCOPES_VARIABLE, "memory").split())
    return OAuth(issuer, url, environ.get(AUDIENCE_VARIABLE) or url, scopes)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The person whose token the request has. `expires` is when the token expires, in seconds since 1970."""

    issuer: str
    subject: str
    name: str
    expires: int


def signed_in() -> SignedIn:
    """Returns the person whose token the current request has. Works only in requests that `guarded` passed on."""
    token = get_access_token()
    assert token is not None
    claims = token.claims or {}
    return SignedIn(claims["iss"], str(token.subject), claims["name"], token.expires_at or 0)


class Verifier:
    """Verifies tokens with the issuer's keys, which are fetched when they are first needed."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._keys: jwt.PyJWKClient | None = None

    def verify(self, token: str) -> AccessToken:
        """Returns the content of a valid token. Raises InvalidToken, or Unavailable if the issuer does not answer."""
        if self._keys is None:
            self._keys = jwt.PyJWKClient(_keys_url(self._oauth.issuer), lifespan=KEYS_SECONDS, timeout=ISSUER_SECONDS)
        try:
            key = self._keys.get_signing_key_from_jwt(token)
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._oauth.audience,
                issuer=self._oauth.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWKClientConnectionError as error:
            raise Unavailable(f"the issuer {self._oauth.issuer} does not answer, so no token can be checked") from error
        except jwt.ExpiredSignatureError as error:
            raise InvalidToken("the token has expired") from error
        except jwt.InvalidAudienceError as error:
            raise InvalidToken(f"the token is not for {self._oauth.audience}") from error
        except jwt.InvalidIssuerError as error:
            raise InvalidToken(f"the token is not from {self._oauth.issuer}") from error
        except jwt.PyJWTError as error:  # malformed, an unknown key, a wrong signature, a missing claim
            raise InvalidToken("the token is malformed, or its signature is wrong") from error
        scope = claims.get("scope", claims.get("scp", ""))
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id", claims.get("azp", ""))),
            scopes=scope.split() if isinstance(scope, str) else [str(one) for one in scope],
            expires_at=int(claims["exp"]),
            resource=self._oauth.audience,
            subject=str(claims["sub"]),
            claims={"iss": claims["iss"], "name": next((str(claims[name]) for name in NAMES if claims.get(name)), "")},
        )


def _keys_url(issuer: str) -> str:
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    for url in (  # OpenID Connect Discovery, and RFC 8414
        f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}",
    ):
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(url, timeout=ISSUER_SECONDS) as answer:
                found: dict[str, Any] = json.load(answer)
            if found.get("issuer") == issuer and isinstance(found.get("jwks_uri"), str):
                return str(found["jwks_uri"])
    raise Unavailable(f"the issuer {issuer} publishes no metadata with its name and keys, so no token can be checked")


def guarded(app: ASGIApp, oauth: OAuth, verifier: Verifier) -> ASGIApp:
    """Returns an ASGI application that passes requests with a valid token to `app` and refuses all others."""
    authenticated = AuthContextMiddleware(app)
    challenge = f'Bearer resource_metadata="{oauth.metadata_url}"'
    if oauth.scopes:
        challenge += f', scope="{" ".join(oauth.scopes)}"'

    def refusal(status: int, error: str, why: str) -> JSONResponse:
        return JSONResponse(
            {"error": error, "error_description": why},
            status_code=status,
            headers={"WWW-Authenticate": f'{challenge}, error="{error}", error_description="{why}"'},
        )

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
        scheme, _, token = given.partition(" ")
        answer: ASGIApp
        if scheme.lower() != "bearer" or not token.strip():
            answer = JSONResponse(
                {"error": "invalid_token", "error_description": "sign in: send Authorization: Bearer …"},
                status_code=401,
                headers={"WWW-Authenticate": challenge},
            )
        else:
            try:
                access = await run_sync(verifier.verify, token.strip())
                missing = [one for one in oauth.scopes if one not in access.scopes]
                scope["user"] = AuthenticatedUser(access)
                answer = authenticated
                if missing:
                    answer = refusal(403, "insufficient_scope", f"the token lacks the scope {' '.join(missing)}")
            except InvalidToken as error:
                answer = refusal(401, "invalid_token", str(error))
            except Unavailable as error:
                answer = JSONResponse({"error": "unavailable", "error_description": str(error)}, status_code=503)
        await answer(scope, receive, send)

    return call
