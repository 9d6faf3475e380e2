"""Made-up secrets of many kinds, each in a sentence, a file or a command as people paste them.

Every secret is made at run time from pieces, so that no file of this repository holds a text that a scanner or a
hosting platform takes for a real one. The forms follow the issuers' documentation.
`python -m tests.text.secret_samples [CONVERSATIONS.json …]` prints how many are taken out.
"""

from __future__ import annotations

import base64
import json
import random
import string
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mcp_server.text.redaction import redact

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = LOWER + UPPER + DIGITS
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
BASE32 = UPPER + "234567"


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, and the secrets inside it."""

    kind: str
    text: str
    secrets: tuple[str, ...]


Maker = Callable[[random.Random], str]
InContext = Callable[[random.Random], tuple[str, str]]


def _chars(alphabet: str, count: int) -> Maker:
    return lambda rng: "".join(rng.choice(alphabet) for _ in range(count))


def _join(*parts: str | Maker) -> Maker:
    return lambda rng: "".join(part if isinstance(part, str) else part(rng) for part in parts)


def _either(*makers: str | Maker) -> Maker:
    return lambda rng: _join(rng.choice(makers))(rng)


def _uuid(rng: random.Random) -> str:
    return "-".join(_chars(HEX, count)(rng) for count in (8, 4, 4, 4, 12))


def _json64(**fields: str) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


def _jwt(rng: random.Random) -> str:
    payload = _json64(sub=_chars(DIGITS, 10)(rng), name=_chars(LOWER, 8)(rng))
    return f"{_json64(alg='HS256', typ='JWT')}.{payload}.{_chars(URLSAFE, 43)(rng)}"


def _discord(rng: random.Random) -> str:
    user = base64.urlsafe_b64encode(_chars("123456789", 18)(rng).encode()).decode().rstrip("=")
    return f"{user}.{_chars(URLSAFE, 6)(rng)}.{_chars(URLSAFE, 38)(rng)}"


def _split(rng: random.Random) -> str:
    token = "ghp" + "_" + _chars(ALNUM, 36)(rng)
    at = rng.randrange(2, len(token) - 4)
    return token[:at] + rng.choice("\u200b\u200c\u200d\u2060\u00ad\ufeff") + token[at:]


def _block(name: str, lines: int) -> Maker:
    def make(rng: random.Random) -> str:
        body = "\n".join(_chars(BASE64, 64)(rng) for _ in range(lines))
        return f"-----BEGIN {name}-----\n{body}\n-----END {name}-----"

    return make


_TEN = _chars(UPPER + DIGITS, 10)


def _password(rng: random.Random) -> str:
    """As people choose them: a word, some digits, often a sign; or as password managers make them."""
    words = ["sunflower", "Dragon", "tiger", "Blue", "kitchen", "Zagreb", "hunter", "Coffee", "winter", "Monkey"]
    if rng.random() < 0.5:
        word = rng.choice(words) + rng.choice(words) * (rng.random() < 0.4)
        return word + _chars(DIGITS, rng.randint(2, 4))(rng) + rng.choice(["", "!", "#", "?", "$", "@"])
    while True:
        made = _chars(ALNUM + "!#%^&*-_+", rng.randint(12, 20))(rng)
        if any(map(str.isdigit, made)) and any(map(str.isalpha, made)) and made[0].isalnum() and made[-1].isalnum():
            return made


def _shell_password(rng: random.Random) -> str:
    return "".join(c for c in _password(rng) if c.isalnum() or c in "!_-+%") + _chars(DIGITS, 2)(rng)


BY_FORM: dict[str, Maker] = {
    "1password-secret-key": lambda rng: "-".join(["A3", *(_chars(UPPER + DIGITS, n)(rng) for n in (6, 11, 5, 5, 5))]),
    "1password-service-account": _join("ops", "_ey", "J", _chars(ALNUM, 260)),
    "age": _join("AGE-SECRET", "-KEY-1", _chars("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    "airtable": _join("pat", _chars(ALNUM, 14), ".", _chars(HEX, 64)),
    "alibaba-key-id": _join("LTAI", "5t", _chars(ALNUM, 18)),
    "anthropic": _join("sk-", "ant-", "api03-", _chars(URLSAFE, 93), "AA"),
    "atlassian": _join("ATA", "TT3xFfGF0", _chars(URLSAFE, 170), "=", _chars(UPPER + DIGITS, 8)),
    "aws-key-id": _join("AK", "IA", _chars(BASE32, 16)),
    "azure-client-secret": _join(_chars(ALNUM, 3), "8Q", "~", _chars(ALNUM + "_~.-", 33), "a"),
    "clojars": _join("CLO", "JARS_", _chars(HEX, 60)),
    "cloudflare-origin-ca": _join("v1.0-", _chars(HEX, 24), "-", _chars(HEX, 146)),
    "databricks": _join("da", "pi", _chars(HEX, 32)),
    "digitalocean": _join("dop", "_v1_", _chars(HEX, 64)),
    "discord-bot": _discord,
    "discord-webhook": _join(
        "https://discord.com/api/", "webhooks/", _chars("123456789", 18), "/", _chars(URLSAFE, 68)
    ),
    "docker-pat": _join("dck", "r_pat_", _chars(URLSAFE, 27)),
    "doppler": _join("dp.", "pt.", _chars(ALNUM, 43)),
    "dropbox": _join("sl", ".", _either(_join("u.AF", _chars(URLSAFE, 160)), _join("B", _chars(URLSAFE, 134)))),
    "duffel": _join("duf", "fel_", _either("live", "test"), "_", _chars(URLSAFE, 43)),
    "dynatrace": _join("dt0", "c01.", _chars(BASE32, 24), ".", _chars(BASE32, 64)),
    "easypost": _join("EZ", _either("AK", "TK"), _chars(ALNUM, 54)),
    "facebook": _join("EAA", _either("M", "C", "G"), _chars(ALNUM, 170)),
    "figma": _join("fi", "gd_", _chars(URLSAFE, 40)),
    "fly": _join("fm", "2_", _chars(BASE64, 200)),
    "frame-io": _join("fio", "-u-", _chars(URLSAFE, 64)),
    "gcp-oauth-secret": _join("GOC", "SPX-", _chars(URLSAFE, 28)),
    "github-app": _join("gh", "s_", _chars(ALNUM, 36)),
    "github-classic": _join("gh", "p_", _chars(ALNUM, 36)),
    "github-fine-grained": _join("github", "_pat_", _chars(ALNUM, 22), "_", _chars(ALNUM, 59)),
    "gitlab-deploy": _join("gl", "dt-", _chars(URLSAFE, 20)),
    "gitlab-pat": _join("gl", "pat-", _chars(URLSAFE, 20)),
    "gitlab-runner-authentication": _join("gl", "rt-", _chars(URLSAFE, 20)),
    "gitlab-runner-registration": _join("GR", "1348941", _chars(URLSAFE, 20)),
    "google-api": _join("AI", "za", "Sy", _chars(URLSAFE, 33)),
    "google-oauth": _join("ya", "29.", "a0", _chars(URLSAFE, 160)),
    "grafana": _join("gl", "sa_", _chars(ALNUM, 32), "_", _chars(HEX, 8)),
    "heroku": _join("HR", "KU-AA", _chars(URLSAFE, 58)),
    "hubspot": _join("pat-", "na1-", _uuid),
    "huggingface": _join("h", "f_", _chars(LOWER + UPPER, 34)),
    "jwt": _jwt,
    "linear": _join("lin", "_api_", _chars(ALNUM, 40)),
    "mailchimp": _join(_chars(HEX, 32), "-us", _chars("123", 1), _chars("0123456789", 1)),
    "mailgun": _join("key", "-", _chars(HEX, 32)),
    "new-relic": _join("NR", "AK-", _chars(UPPER + DIGITS, 27)),
    "notion": _join("nt", "n_", _chars(DIGITS, 11), _chars(ALNUM, 35)),
    "notion-integration": _join("sec", "ret_", _chars(ALNUM, 43)),
    "npm": _join("np", "m_", _chars(ALNUM, 36)),
    "openai-project": _join("sk-", "proj-", _chars(URLSAFE, 74), "T3Blbk", "FJ", _chars(URLSAFE, 74)),
    "openai-user": _join("sk-", _chars(ALNUM, 20), "T3Blbk", "FJ", _chars(ALNUM, 20)),
    "openshift": _join("sha", "256~", _chars(URLSAFE, 43)),
    "planetscale": _join("pscale", "_tkn_", _chars(URLSAFE, 43)),
    "postman": _join("PM", "AK-", _chars(HEX, 24), "-", _chars(HEX, 34)),
    "prefect": _join("pn", _either("u_", "b_"), _chars(ALNUM, 36)),
    "private-key": _block("RSA " + "PRIVATE KEY", 12),
    "private-key-openssh": _block("OPENSSH " + "PRIVATE KEY", 6),
    "private-key-pgp": _block("PGP " + "PRIVATE KEY BLOCK", 10),
    "pulumi": _join("pu", "l-", _chars(HEX, 40)),
    "pypi": _join("py", "pi-", "AgEIcHlwaS5vcmc", _chars(URLSAFE, 150)),
    "readme": _join("rd", "me_", _chars(LOWER + DIGITS, 70)),
    "rubygems": _join("ruby", "gems_", _chars(HEX, 48)),
    "sendgrid": _join("SG", ".", _chars(URLSAFE, 22), ".", _chars(URLSAFE, 43)),
    "sentry": _join("snt", "ryu_", _chars(HEX, 64)),
    "shippo": _join("ship", "po_", _either("live", "test"), "_", _chars(HEX, 40)),
    "shopify": _join("sh", "pat_", _chars(HEX, 32)),
    "slack-app": _join("xa", "pp-1-A", _TEN, "-", _chars(DIGITS, 13), "-", _chars(HEX, 64)),
    "slack-bot": _join("xo", "xb-", _chars(DIGITS, 12), "-", _chars(DIGITS, 13), "-", _chars(ALNUM, 24)),
    "slack-user": _join(
        "xo", "xp-", _chars(DIGITS, 12), "-", _chars(DIGITS, 12), "-", _chars(DIGITS, 13), "-", _chars(HEX, 32)
    ),
    "slack-webhook": _join("https://hooks.", "slack.com/services/T", _TEN, "/B", _TEN, "/", _chars(ALNUM, 24)),
    "sourcegraph": _join("sg", "p_", _either(_join(_chars(HEX, 16), "_"), "local_"), _chars(HEX, 40)),
    "square": _join("EAA", "A", _chars(URLSAFE, 60)),
    "stripe-restricted": _join("rk", "_live_", _chars(ALNUM, 99)),
    "stripe-secret": _join("sk", "_live_", _chars(ALNUM, 99)),
    "stripe-webhook": _join("wh", "sec_", _chars(ALNUM, 32)),
    "supabase": _join("sb", "p_", _chars(HEX, 40)),
    "telegram": _join(_chars("123456789", 10), ":AA", _chars(URLSAFE, 33)),
    "terraform": _join(_chars(ALNUM, 14), ".atl", "asv1.", _chars(URLSAFE, 67)),
    "twilio-key": _join("S", "K", _chars(HEX, 32)),
    "typeform": _join("tf", "p_", _chars(ALNUM, 44), "_", _chars(ALNUM, 14)),
    "vault": _join("hv", "s.", _chars(URLSAFE, 95)),
    "zero-width-split": _split,
}
"""Kinds that are known by their form, in any sentence."""


def _given(before: str, secret: Maker, after: str = "") -> InContext:
    return lambda rng: (before + (made := secret(rng)) + after, made)


def _chosen(*contexts: InContext) -> InContext:
    return lambda rng: rng.choice(contexts)(rng)


def _basic(rng: random.Random) -> str:
    return base64.b64encode(f"{_chars(LOWER, 6)(rng)}:{_password(rng)}".encode()).decode()


def _putty(rng: random.Random) -> tuple[str, str]:
    secret = "\n".join(_chars(BASE64, 64)(rng) for _ in range(8))
    public = "\n".join(_chars(BASE64, 64)(rng) for _ in range(6))
    return (
        f"PuTTY-User-Key-File-3: ssh-rsa\nEncryption: none\nComment: rsa-key-20240101\nPublic-Lines: 6\n{public}\n"
        f"Private-Lines: 8\n{secret}\nPrivate-MAC: {_chars(HEX, 64)(rng)}\n",
        secret,
    )


def _service_account(rng: random.Random) -> tuple[str, str]:
    key = "\\n".join(_chars(BASE64, 64)(rng) for _ in range(12))
    head, foot = (f"-----{word} PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
    return (
        f'{{"type": "service_account", "project_id": "acme", "private_key": "{head}\\n{key}\\n{foot}\\n", '
        '"client_email": "bot@acme.iam.gserviceaccount.com"}',
        key,
    )


_base64_password: Maker = lambda rng: base64.b64encode(_password(rng).encode()).decode()  # noqa: E731

BY_CONTEXT: dict[str, InContext] = {
    "access-token-in-url": _given("GET https://api.acme.io/v1/me?access_token=", _chars(ALNUM, 40), "&limit=5"),
    "alibaba-secret": _given("ALIBABA_CLOUD_ACCESS_KEY_SECRET=", _chars(ALNUM, 30), "\n"),
    "api-key-header": _given("curl -H 'X-API-Key: ", _chars(ALNUM, 32), "' https://api.acme.io"),
    "assignment-in-code": _chosen(
        _given('client = Client(api_key="', _chars(ALNUM, 32), '")'),
        _given("const apiSecret = '", _chars(HEX, 40), "';"),
    ),
    "aws-secret": _chosen(
        _given("AWS_SECRET_ACCESS_KEY=", _chars(BASE64, 40), "\n"),
        _given("aws_secret_access_key = ", _chars(BASE64, 40)),
    ),
    "aws-session-token": _given("aws_session_token = IQoJb3JpZ2luX2Vj", _chars(BASE64, 300), "=="),
    "azure-sas": _given(
        "https://acme.blob.core.windows.net/c?sv=2022-11-02&ss=b&sig=", _join(_chars(ALNUM, 40), "%3D"), ""
    ),
    "azure-storage": _given(
        "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=",
        _join(_chars(BASE64, 86), "=="),
        ";EndpointSuffix=core.windows.net",
    ),
    "basic-header": _given("Authorization: Basic ", _basic, "\n"),
    "bearer-header": _given("curl -H 'Authorization: Bearer ", _chars(ALNUM, 40), "' https://api.acme.io"),
    "connection-string": _chosen(
        _given("Server=db;Database=x;User Id=sa;Password=", _shell_password, ";Encrypt=true"),
        _given("Driver={SQL};Server=db;Uid=sa;Pwd=", _shell_password, ";"),
    ),
    "cookie": _chosen(
        _given("Cookie: sessionid=", _chars(ALNUM, 32), "; theme=dark"),
        _given("curl -b 'JSESSIONID=", _chars(HEX, 32), "' https://intra.acme.io"),
        _given("GET / HTTP/1.1\nHost: acme.io\nCookie: _gat=1; connect.sid=s%3A", _chars(URLSAFE, 60), "\n"),
    ),
    "curl-user": _given("curl -u deploy:", _shell_password, " https://ci.acme.io/job"),
    "django-secret": _given("SECRET_KEY = 'django-insecure-", _chars(LOWER + DIGITS + "!@#%^&*(-_=+)", 50), "'"),
    "docker-auth": _given('{"auths": {"https://index.docker.io/v1/": {"auth": "', _basic, '"}}}'),
    "docker-login": _given("docker login -u ana -p ", _shell_password, " registry.acme.io"),
    "env-db-pass": _chosen(
        _given("DB_PASS=", _shell_password, "\n"),
        _given("export MYSQL_PASS=", _shell_password),
        _given("DBPASS='", _password, "'"),
    ),
    "env-password": _chosen(
        _given("PASSWORD=", _shell_password, "\nDEBUG=1"),
        _given("export PASSWORD=", _shell_password),
        _given("POSTGRES_PASSWORD=", _shell_password, "\n"),
    ),
    "env-secret": _chosen(
        _given("JWT_SECRET=", _chars(ALNUM, 32)),
        _given("SESSION_SECRET='", _chars(HEX, 64), "'"),
        _given("STRIPE_TOKEN=", _chars(ALNUM, 24)),
    ),
    "git-credentials": _given("https://ana:", _shell_password, "@git.acme.io\n"),
    "gcp-service-account": _service_account,
    "htpasswd-hash": _given("admin:$2y$10$", _chars(ALNUM + "./", 53), "\n"),
    "jdbc-url": _given("jdbc:mysql://db:3306/shop?user=app&password=", _shell_password, "&useSSL=false"),
    "json-password": _given('{"user": "ana", "password": "', _password, '"}'),
    "kubeconfig-client-key": _given("    client-key-data: LS0tLS1CRUdJTi", _chars(BASE64, 400), "==\n"),
    "kubeconfig-token": _given("users:\n- name: admin\n  user:\n    token: ", _chars(URLSAFE, 64), "\n"),
    "kubernetes-secret": _given("kind: Secret\ndata:\n  password: ", _base64_password, "\n"),
    "mysql-p": _chosen(
        _given("mysql -u root -p", _shell_password, " shop"),
        _given("mysqldump -h db -uroot -p'", _password, "' shop > a.sql"),
    ),
    "netrc": _given("machine api.acme.io login ana password ", _shell_password, "\n"),
    "nodemailer": _given("auth: { user: 'ana@acme.io', pass: '", _password, "' }"),
    "npmrc": _given("//registry.npmjs.org/:_authToken=", _uuid, "\n"),
    "openssl-passin": _given("openssl rsa -in key.pem -passin pass:", _shell_password, " -out out.pem"),
    "pgpass": _given("db.acme.io:5432:shop:app:", _shell_password, "\n"),
    "pgpassword": _given("PGPASSWORD=", _shell_password, " psql -h db -U app shop"),
    "putty-key": _putty,
    "redis-cli": _chosen(
        _given("redis-cli -h cache -a ", _shell_password, " ping"), _given("requirepass ", _shell_password, "\n")
    ),
    "sshpass": _given("sshpass -p ", _shell_password, " ssh ana@host"),
    "told-in-words": _chosen(
        _given("my password is ", _shell_password, " and the user is ana"),
        _given("The wifi password: ", _shell_password, "\n"),
        _given("login ana, pw: ", _shell_password, "\n"),
    ),
    "twilio-auth": _given("TWILIO_AUTH_TOKEN=", _chars(HEX, 32), "\n"),
    "url-password": _given("postgres://app:", _shell_password, "@db:5432/shop"),
    "wifi-psk": _given('network={\n  ssid="home"\n  psk="', _password, '"\n}'),
    "wireguard": _given("[Interface]\nPrivateKey = ", _join(_chars(BASE64, 43), "="), "\nAddress = 10.0.0.2/32"),
    "yaml-password": _chosen(
        _given("database:\n  user: app\n  password: ", _shell_password, "\n"),
        _given("spring.datasource.password=", _shell_password, "\n"),
    ),
}
"""Kinds that only the text around them tells."""

_AROUND = (
    ("", ""),
    ("here you go: ", ""),
    ("Use this: ", ", please.\nThanks"),
    ("I pasted ", " by mistake."),
    ("the key (", ") expired"),
    ("run it with `", "` and tell me"),
    ('{"value": "', '"}'),
    ('"out": "line\\n', '\\n"'),
    ("MY_SETTING=", "\nDEBUG=1"),
    ("export X='", "'"),
    ("- ", "\n- next"),
    ("<b>", "</b>"),
    ("it was **", "**"),
    ("curl https://api.acme.io -H 'X-Auth: ", "'"),
    ("log: auth=", "; retry=1"),
)


def samples(each: int, seed: int = 1) -> Iterator[Sample]:
    """Yields `each` samples of every kind, the same ones for the same seed."""
    rng = random.Random(seed)
    for kind, maker in BY_FORM.items():
        for _ in range(each):
            before, after = rng.choice(_AROUND)
            secret = maker(rng)
            yield Sample(kind, f"{before}{secret}{after}", (secret,))
    for kind, context in BY_CONTEXT.items():
        for _ in range(each):
            text, secret = context(rng)
            yield Sample(kind, rng.choice(["", "Look:\n", "I ran this\n\n"]) + text, (secret,))


def leaks(sample: Sample, redacted: str) -> bool:
    """Returns whether a part of a secret (12 characters, or half of a short one) is still readable after redaction."""
    for secret in sample.secrets:
        width = min(12, max(4, (len(secret) + 1) // 2))
        if any(secret[at : at + width] in redacted for at in range(len(secret) - width + 1)):
            return True
    return False


def main(files: list[str]) -> None:
    """Prints the share of each kind that is taken out, and false alarms in texts (JSON files of conversations)."""
    caught: dict[str, list[bool]] = {}
    for sample in samples(200):
        caught.setdefault(sample.kind, []).append(not leaks(sample, redact(sample.text).text))
    for kind, each in caught.items():
        print(f"{kind:32} {sum(each) / len(each):6.1%}")
    turns = [text for file in files for text in _texts(json.loads(Path(file).read_text("utf-8")))]
    alarms = [text for text in turns if redact(text).kinds]
    whole = sum(sum(each) / len(each) for each in caught.values()) / len(caught)
    print(f"{len(caught)} kinds: {whole:.2%}; {len(alarms)} of {len(turns):,} texts have a secret")


def _texts(value: object) -> Iterator[str]:
    """Yields what was said in a conversation of LoCoMo, BEAM or our own format."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str) and key in {"text", "content", "query", "result", "summary", "input", "output"}:
                yield inner
            else:
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


if __name__ == "__main__":
    main(sys.argv[1:])
