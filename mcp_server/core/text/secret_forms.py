"""Keys that are known by their form, wherever they stand: one line each, as their issuers document them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Form:
    kind: str
    needles: tuple[str, ...]  # a text without any of these is not searched
    pattern: re.Pattern[str]
    accept: Callable[[str], bool]


def found(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind, start and end of every key, form by form. Linear in the length of the text."""
    for form in _FORMS:
        if any(needle in text for needle in form.needles):
            for match in form.pattern.finditer(text):
                if form.accept(match.group()):
                    yield form.kind, match.start(), match.end()


def mixed(value: str) -> bool:
    """Letters and digits in one unbroken run of eight or more, as random keys have and names do not."""
    return any(
        any(c.isdigit() for c in run) and any(c.isalpha() for c in run) for run in re.findall(r"[A-Za-z0-9]{8,}", value)
    )


def _any(value: str) -> bool:
    return True


def _form(kind: str, needles: str, pattern: str, accept: Callable[[str], bool] = _any) -> _Form:
    # No restart inside a run of key characters: that would make long runs quadratic.
    return _Form(kind, tuple(needles.split()), re.compile(rf"(?<![A-Za-z0-9_-])(?:{pattern})"), accept)


_END = r"(?![A-Za-z0-9])"
_BEGINNINGS = (
    *("gsk_", "xai-", "pplx-", "tvly-", "lsv2_", "nvapi-", "csk-"),  # Groq, xAI, Perplexity, Tavily, LangSmith, …
    *("sbp_", "sb_secret_", "pscale_tkn_", "pscale_pw_", "pscale_oauth_"),  # Supabase, PlanetScale
    *(
        "lin_api_",
        "ntn_",
        "figd_",
        "ATATT3",
        "PMAK-",
        "ops_eyJ",
    ),  # Linear, Notion, Figma, Atlassian, Postman, 1Password
    *("sntrys_", "sntryu_", "glsa_", "glc_", "NRAK-"),  # Sentry, Grafana, New Relic
    *("shpat_", "shpca_", "shppa_", "shpss_", "sq0atp-", "sq0csp-", "EAAA", "xkeysib-"),  # Shopify, Square, Brevo
    *("rubygems_", "dckr_pat_", "dckr_oat_", "AKCp", "CCIPAT_"),  # RubyGems, Docker, JFrog, CircleCI
    *("vcp_", "nfp_", "cfut_", "cfat_", "fm2_", "fo1_", "HRKU-", "pul-", "tskey-"),  # Vercel, Netlify, Cloudflare, …
    *("hvs.", "hvb.", "dp.pt.", "AGE-SECRET-KEY-1", "bedrock-api-key-", "ABSK"),  # Vault, Doppler, age, Bedrock
)
"""Of services whose keys all begin alike."""

_FORMS = (
    _form("aws-key", "AKIA ASIA", rf"(?:AKIA|ASIA)[A-Z2-7]{{16}}{_END}"),
    _form(
        "github-token",  # an app's is a JWT since 2026: three parts, the first one with the app's id
        "gh github_pat_",
        r"gh[pousr]_[A-Za-z0-9_-]{30,800}(?:\.[A-Za-z0-9_-]{20,2000}){0,2}|github_pat_[A-Za-z0-9_]{22,255}",
        mixed,
    ),
    _form("gitlab-token", "gl", r"gl(?:pat|ptt|rt|dt|ft|ffct|imt|oas|soat|cbt|agent)-[A-Za-z0-9_.-]{20,300}"),
    _form(
        "slack-token",
        "xox xapp-",
        r"(?:xox[abcdeoprs]|xapp)-[A-Za-z0-9%-]{10,300}",
        lambda value: any(map(str.isdigit, value)),
    ),
    _form(
        "slack-webhook",
        "hooks.slack.com",
        r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,200}",
    ),
    _form(
        "webhook",
        "/api/webhooks/ /webhookb2/",
        r"https://(?:discord(?:app)?\.com/api/webhooks/[0-9]{10,30}/[A-Za-z0-9_-]{40,100}"
        r"|[a-z0-9.-]{1,100}\.office\.com/webhookb2/[A-Za-z0-9@/_-]{40,400})",
    ),
    _form(
        "stripe-key",
        "sk_ rk_ whsec_",
        r"(?:sk|rk)_(?:org_)?(?:live|test|prod)_[A-Za-z0-9]{16,255}|whsec_[A-Za-z0-9+/=]{24,255}",
    ),
    _form("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,300}"),
    _form("openai-key", "sk-", r"sk-(?!ant-)(?:proj-|svcacct-|admin-|None-)?[A-Za-z0-9_-]{20,300}", mixed),
    _form(
        "google-key",
        "AIza ya29. 1//0 GOCSPX-",
        r"AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,500}|GOCSPX-[A-Za-z0-9_-]{20,60}"
        r"|1//0[A-Za-z0-9_-]{35,200}",
    ),
    _form("google-key", "AQ.Ab", r"AQ\.Ab[A-Za-z0-9_-]{20,200}", mixed),
    _form(
        "azure-key",
        "Q~ sig=",
        r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}|(?<=[?&])sig=[A-Za-z0-9%+/]{30,200}=*",
    ),
    _form("npm-token", "npm_", rf"npm_[A-Za-z0-9]{{36}}{_END}"),
    _form("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,1000}"),
    _form("huggingface-token", "hf_", rf"hf_[A-Za-z0-9]{{30,60}}{_END}"),
    _form("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{30,60}"),
    _form("digitalocean-token", "do", r"do[opr]_v1_[a-f0-9]{64}"),
    _form("telegram-token", ":AA", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])"),
    _form("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    _form(
        "api-key",
        " ".join(_BEGINNINGS),
        rf"(?:{'|'.join(map(re.escape, _BEGINNINGS))})[A-Za-z0-9_+/-]{{20,500}}=*",
        mixed,
    ),
    _form("api-key", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}"),  # Terraform
    _form(
        "api-key",  # Databricks, Airtable, Replicate, Twilio, Mailgun, Bitbucket
        "dapi pat r8_ SK key- ATBB",
        r"(?:dapi[a-f0-9]{32}|pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|r8_[A-Za-z0-9]{37}|SK[a-f0-9]{32}|key-[a-f0-9]{32}"
        rf"|ATBB[A-Za-z0-9]{{32}}){_END}",
    ),
)
