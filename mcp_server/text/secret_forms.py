"""The forms of keys that the rules of `data/secret_rules.json` lack, or have only for source code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """A form of keys. A text without any of the words `needles` is not searched; `accept` judges a match."""

    kind: str
    needles: str
    pattern: str
    accept: Callable[[str], bool] = bool


def mixed(value: str) -> bool:
    """Returns whether a value has a run of eight or more letters and digits mixed, as random keys have."""
    return any(
        any(c.isdigit() for c in run) and any(c.isalpha() for c in run) for run in re.findall(r"[A-Za-z0-9]{8,}", value)
    )


_END = r"(?![A-Za-z0-9])"
_BEGINNINGS = (
    *("gsk_", "xai-", "pplx-", "tvly-", "lsv2_", "nvapi-", "csk-"),  # Groq, xAI, Perplexity, Tavily, LangSmith, …
    *("sbp_", "sb_secret_", "pscale_tkn_", "pscale_pw_", "pscale_oauth_"),  # Supabase, PlanetScale
    *("lin_api_", "ntn_", "figd_", "ATATT3", "PMAK-", "ops_eyJ"),  # Linear, Notion, Figma, Atlassian, Postman, …
    "pnb_",  # Prefect, for automations
    *("sntrys_", "sntryu_", "glsa_", "glc_", "NRAK-"),  # Sentry, Grafana, New Relic
    *("shpat_", "shpca_", "shppa_", "shpss_", "sq0atp-", "sq0csp-", "EAAA", "xkeysib-"),  # Shopify, Square, Brevo
    *("rubygems_", "dckr_pat_", "dckr_oat_", "AKCp", "CCIPAT_"),  # RubyGems, Docker, JFrog, CircleCI
    *("vcp_", "nfp_", "cfut_", "cfat_", "fm2_", "fo1_", "HRKU-", "pul-", "tskey-"),  # Vercel, Netlify, Cloudflare, …
    *("hvs.", "hvb.", "dp.pt.", "AGE-SECRET-KEY-1", "bedrock-api-key-", "ABSK"),  # Vault, Doppler, age, Bedrock
)
"""Prefixes that all keys of a service have."""

FORMS = (
    Form("aws-key", "AKIA ASIA", rf"(?:AKIA|ASIA)[A-Z2-7]{{16}}{_END}"),
    Form(
        "github-token",  # since 2026 an app's token is a JWT with three parts
        "gh github_pat_",
        r"gh[pousr]_[A-Za-z0-9_-]{30,800}(?:\.[A-Za-z0-9_-]{20,2000}){0,2}|github_pat_[A-Za-z0-9_]{22,255}",
        mixed,
    ),
    Form("gitlab-token", "gl", r"gl(?:pat|ptt|rt|dt|ft|ffct|imt|oas|soat|cbt|agent)-[A-Za-z0-9_.-]{20,300}"),
    Form(
        "slack-token",
        "xox xapp-",
        r"(?:xox[abcdeoprs]|xapp)-[A-Za-z0-9%-]{10,300}",
        lambda value: any(map(str.isdigit, value)),
    ),
    Form(
        "slack-webhook",
        "hooks.slack.com",
        r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,200}",
    ),
    Form(
        "webhook",
        "/api/webhooks/ /webhookb2/",
        r"https://(?:discord(?:app)?\.com/api/webhooks/[0-9]{10,30}/[A-Za-z0-9_-]{40,100}"
        r"|[a-z0-9.-]{1,100}\.office\.com/webhookb2/[A-Za-z0-9@/_-]{40,400})",
    ),
    Form(
        "stripe-key",
        "sk_ rk_ whsec_",
        r"(?:sk|rk)_(?:org_)?(?:live|test|prod)_[A-Za-z0-9]{16,255}|whsec_[A-Za-z0-9+/=]{24,255}",
    ),
    Form("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,300}"),
    Form("openai-key", "sk-", r"sk-(?!ant-)(?:proj-|svcacct-|admin-|None-)?[A-Za-z0-9_-]{20,300}", mixed),
    Form(
        "google-key",
        "AIza ya29. 1//0 GOCSPX-",
        r"AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,500}|GOCSPX-[A-Za-z0-9_-]{20,60}"
        r"|1//0[A-Za-z0-9_-]{35,200}",
    ),
    Form("google-key", "AQ.Ab", r"AQ\.Ab[A-Za-z0-9_-]{20,200}", mixed),
    Form(
        "azure-key", "Q~ sig=", r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}|(?<=[?&])sig=[A-Za-z0-9%+/]{30,200}=*"
    ),
    Form("npm-token", "npm_", rf"npm_[A-Za-z0-9]{{36}}{_END}"),
    Form("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,1000}"),
    Form("huggingface-token", "hf_", rf"hf_[A-Za-z0-9]{{30,60}}{_END}"),
    Form("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{30,60}"),
    Form("digitalocean-token", "do", r"do[opr]_v1_[a-f0-9]{64}"),
    Form("telegram-token", ":AA", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])"),
    Form("discord-token", ".", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}", mixed),
    Form("dropbox-token", "sl.", r"sl\.(?:u\.)?[A-Za-z0-9_-]{100,400}", mixed),
    Form("facebook-token", "EAA", r"EAA[A-Za-z0-9]{60,500}", mixed),
    Form("hubspot-token", "pat-", r"pat-(?:na|eu|ap)[0-9]-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    Form("notion-token", "secret_", rf"secret_[A-Za-z0-9]{{43}}{_END}"),
    Form("password-hash", "$", r"\$(?:2[abxy]|5|6|y|apr1|argon2id?)\$[A-Za-z0-9$./,=+]{30,200}", mixed),
    Form("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    Form(
        "api-key",
        " ".join(_BEGINNINGS),
        rf"(?:{'|'.join(map(re.escape, _BEGINNINGS))})[A-Za-z0-9_+/-]{{20,500}}=*",
        mixed,
    ),
    Form("api-key", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}"),  # Terraform
    Form(
        "api-key",  # Databricks, Airtable, Replicate, Twilio, Mailgun, Bitbucket
        "dapi pat r8_ SK key- ATBB",
        r"(?:dapi[a-f0-9]{32}|pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|r8_[A-Za-z0-9]{37}|SK[a-f0-9]{32}|key-[a-f0-9]{32}"
        rf"|ATBB[A-Za-z0-9]{{32}}){_END}",
    ),
)
