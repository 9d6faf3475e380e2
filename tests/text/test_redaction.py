"""Secrets go before anything is written; prose and code stay as they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_server.text.redaction import RULES, redact, secrets
from tests.text.secret_samples import Sample, leaks, samples

KEY = "a1B2c3D4" * 5
SECRETS = [
    ("aws-key", "AKIA" + "IOSFODNN7EXAMPLE"),
    ("github-token", f"ghp_{KEY[:36]}"),
    ("github-token", f"github_pat_{KEY}"),
    ("gitlab-token", f"glpat-{KEY[:20]}"),
    ("slack-token", "xoxb" + "-123456789012-abcdefABCDEF"),
    ("slack-webhook", "https://hooks." + "slack.com/services/T00000000/B00000000/abcdefghijkl"),
    ("stripe-key", f"sk_live_{KEY[:24]}"),
    ("openai-key", f"sk-proj-{KEY}"),
    ("anthropic-key", f"sk-ant-api03-{KEY}"),
    ("google-key", "AIza" + "a1B2c3D-" * 4 + "xyz"),
    ("npm-token", f"npm_{KEY[:36]}"),
    ("pypi-token", f"pypi-AgEIcHlwaS5vcmc{KEY}"),
    ("huggingface-token", f"hf_{KEY[:34]}"),
    ("jwt", "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4"),
    ("github-token", f"ghs_12345_eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJ{KEY}.{KEY}-_{KEY}"),
    ("google-key", f"AQ.Ab8RN6{KEY}"),
    ("google-key", f"1//0g{KEY}"),
    ("azure-key", f"aB38Q~{KEY[:34]}"),
    ("slack-token", f"xoxc-123456789012-123456789012-{KEY}"),
    ("slack-token", f"xoxd-{KEY}%2F{KEY}%3D"),
    ("slack-webhook", f"https://hooks.slack.com/triggers/T0/1/{KEY}"),
    ("webhook", f"https://discord.com/api/webhooks/123456789012345678/{KEY}-_{KEY}"),
    ("stripe-key", f"sk_org_live_{KEY}"),
    *(
        ("api-key", f"{begins}{KEY}")
        for begins in ("gsk_", "xai-", "pplx-", "tvly-dev-", "nvapi-", "lsv2_pt_", "sb_secret_", "hvs.", "ATATT3xFfGF0")
    ),
    ("api-key", f"ABSK{KEY}+/{KEY}="),
    ("api-key", "dapi" + "0123456789abcdef" * 2),
    ("api-key", f"a1B2c3D4a1B2c3.atlasv1.{KEY}{KEY[:24]}"),
    ("private-key", "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEabc\nxyz=\n-----END RSA PRIVATE KEY-----"),
    ("private-key", "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\nQyNTUxOQAAACBKJ8sHk2\n"),
]
VALUES = [
    ("password", "password=", "hunter2!"),
    ("password", 'DB_PASSWORD="', 's3cr3tpw"'),
    ("password", '"password": "', 'letmein"'),
    ("password", "my password is ", "hunter22"),
    ("password", "lozinka: ", "Tajna123"),
    ("secret", "api_key: ", "9f8e7d6c5b4a3f2e1d0c"),
    ("secret", "AWS_SECRET_ACCESS_KEY=", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("secret", 'token = "', 'f3a9c1e7b2d84056"'),
    ("bearer-token", "Authorization: Bearer ", "abcdef1234567890ABCDEF"),
    ("bearer-token", "Authorization: Token ", "0123456789abcdef0123"),
    ("url-password", "postgres://admin:", "s3cret@db:5432/x"),
    ("url-password", "postgres://admin:", "s3cr@et@db:5432/x"),
    ("password", "Passwort: ", "Geheim123"),
    ("password", "mot de passe : ", "Secret123"),
    ("password", "mysql --password ", "hunter22"),
    ("password", "the password for the router is ", "hunter22"),
    ("password", "ENV DB_PASSWORD ", "hunter22"),
    ("password", "CREATE USER 'a'@'h' IDENTIFIED BY '", "hunter22'"),
    ("password", "| password | ", "hunter22 |"),
    ("password", "<password>", "hunter22</password>"),
    ("password", "unzip -P ", "hunter22 a.zip"),
    ("password", "curl -u ana:", "hunter22"),
    ("password", "machine api.example.com login ana password ", "hunter22"),
    ("secret", "deploy --api-key ", KEY),
    ("secret", "AccountName=x;AccountKey=", f"{KEY}{KEY}=="),
    ("secret", r'{"out": "{\"api_key\": \"', rf'{KEY}\"}}"'),
    ("password", r'{"out": "{\"password\": \"', r'hunter22\"}"'),
]
WRITTEN_BEFORE = [r"\n", r"\t", r"{\"key\":\"", "\x1b[32m", r"\u001b[1;32m", r"\u0022", "?next=%3Ftoken%3D"]
HARMLESS = [
    "password: required",
    'password = os.environ["PW"]',
    "password = getpass.getpass()",
    "def login(user, password: str = None):",
    "password=password",
    "password=<your password>",
    "Password: ********",
    '"password": "Enter your password"',
    "password is 8 characters",
    "the token is expired",
    "token count: 5000, tokens: 12000",
    "token: user-42-session-name",
    "const token = await fetchToken2FromApi()",
    "api_key = settings.api_key",
    "api_key=${API_KEY}",
    'secret_key = config["secret"]',
    "the secret: practise every day",
    "sk-learn-something-that-is-quite-long-name",
    "Bearer authentication is required here",
    "see http://localhost:8080/@user and https://example.com/a:b@c",
    "commit 3f2a9c1e7b2d840561234 fixes it",
    "docker run --user 1000:1000 and -u www-data:www-data",
    "git push -u origin main:refs/heads/x2",
    "tool --password prompt --token-count 500012345678 --key-file /home/x/id_rsa2048",
    "key-value-stores, patterns and pul-requests; SKU12345; AQ.Abstract-things-that-are-long-words",
    r"C:\new\table\123456789",
    'password = "secure_password123"',
    "create_user(username='newuser', password='newpassword')",
    "Cookie: theme=dark; consent=accepted-all-of-them; _ga=GA1.2.1234567890.1234567890",
    "tests pass: 12, pw = None, DB_PASS=$DB_PASS, pass=True",
    "mysql -u root -p shop, docker run -p 8080:80 nginx, redis-cli -a $REDIS_PASSWORD",
    "src/api/orders.py:1042:error:line2 is too long",
    'auth = {"user": "ana"}; auth: required; "auth": "bearerAuthScheme"',
    "const auth = useAuthenticationContext()",
    "hubspot: 2024-01-15, monday: see https://example.com/boards/123456789",
    "Dropbox = shared-folder-of-the-team-2024",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b (see issue 12345678)",
    "uuid 3f2504e0-4f89-11d3-9a0c-0305e82c3301 of the order",
    "👩‍👩‍👧 family\u200d, soft\u00adhyphen, ﷽",
]


@pytest.mark.parametrize(("kind", "secret"), SECRETS)
def test_a_key_is_found_wherever_it_stands(kind: str, secret: str) -> None:
    answer = redact(f"Use this: {secret} , please.\nThanks")
    assert answer.kinds == (kind,)
    assert secret not in answer.text
    assert answer.text.startswith(f"Use this: [redacted:{kind}]")
    assert answer.text.endswith("Thanks")


@pytest.mark.parametrize(("kind", "before", "secret"), VALUES)
def test_a_password_is_found_by_what_stands_before_it(kind: str, before: str, secret: str) -> None:
    answer = redact(before + secret)
    assert answer.kinds == (kind,)
    assert answer.text.startswith(f"{before}[redacted:{kind}]")


@pytest.mark.parametrize("before", WRITTEN_BEFORE)
def test_what_a_program_writes_before_a_key_does_not_hide_it(before: str) -> None:
    assert redact(f'"out": "x {before}ghp_{KEY[:36]}"').text == f'"out": "x {before}[redacted:github-token]"'


BY_KIND: dict[str, list[Sample]] = {}
for _sample in samples(20, seed=3):
    BY_KIND.setdefault(_sample.kind, []).append(_sample)


@pytest.mark.parametrize("kind", BY_KIND)
def test_secrets_of_every_kind_are_redacted(kind: str) -> None:
    assert not [sample.text for sample in BY_KIND[kind] if leaks(sample, redact(sample.text).text)]


@pytest.mark.parametrize("hidden", ["\u200b", "\u200c", "\u200d", "\u00ad", "\u034f", "\ufe0f", "\u2060", "\U000e0041"])
def test_an_invisible_character_inside_a_key_does_not_hide_it(hidden: str) -> None:
    assert redact(f"é {hidden}x ghp_{KEY[:10]}{hidden}{KEY[10:36]} y").text == f"é {hidden}x [redacted:github-token] y"


def test_no_rule_is_slow_on_a_text_made_to_be_slow() -> None:
    for _, needles, group, pattern in RULES:
        assert re.compile(pattern, re.ASCII).groups >= group
        for needle in needles:  # a pattern that goes back and forth would need hours
            secrets(f"{needle}=a1B2c3D4e5F6g7H8 " * 200 + needle + "a1" * 4_000)


@pytest.mark.parametrize("text", HARMLESS)
def test_prose_and_code_stay_as_they_are(text: str) -> None:
    assert redact(text).text == text


PIECES = st.sampled_from(
    [
        *("password", "=", ": ", '"', "'", "is ", "token", "://", "u:", "@", "h", "Bearer ", "eyJ", ".", "-", "sk-"),
        *("ghp_", "\n", " ", "api_key", "hunter22", "[redacted:password]", "AKIA" + "IOSFODNN7EXAMPLE", KEY),
        *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"),
    ]
)


@given(st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join))
@example("-----BEGIN PRIVATE " + "KEY----------END PRIVATE " + "KEY-----AKIA" + "IOSFODNN7EXAMPLE")
def test_redacting_twice_is_redacting_once_and_spans_are_in_order_and_apart(text: str) -> None:
    once = redact(text).text
    assert redact(once).text == once
