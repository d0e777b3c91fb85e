"""Detect secrets with a distinctive form: a vendor's prefix, a PEM block, a three-part token.

The forms come from vendors' documentation and repository scanners. To add one, add its row and an example in
`tests/fleetlore/redact/test_redact.py`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fleetlore.redact.vendor_forms import BEFORE, VENDOR_FORMS

__all__ = ["BY_SHAPE", "FORMS"]


class _Form(NamedTuple):
    kind: str
    needles: str
    pattern: str


class _Group(NamedTuple):
    """Forms with a common first test: most texts lack `contains`."""

    contains: str
    shape: str | None
    forms: tuple[_Form, ...]


# One search for both alternatives.
_BEHIND_A_DOT = r"\.[\w-]{6}(?:\.[\w-]{27}|(?<=s\.......)[A-Za-z0-9]{18})"
_BEHIND_DIGITS = r":(?<=\d{8}:)[\w-]{32}"
_BEHIND_A_BAR = r"\|(?<=\d\|)[\w-]{27}"
_BEHIND_A_WORD = r"_(?<=[a-z\d]_)[0-9a-f]{40}"
# Forms without a fixed substring: kind, pattern, and a shape that every match contains. A shape starts with one literal
# character, which makes its search fast.
BY_SHAPE: tuple[tuple[str, str, str], ...] = (
    ("discord_token", r"(?<![\w-])[MNO](?=[\w.-]{0,100}\d)[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}", _BEHIND_A_DOT),
    ("telegram_token", r"(?<!\d)\d{8,10}:[\w-]{35}(?![\w-])", _BEHIND_DIGITS),
    ("asana_token", r"(?<![\w/])[12]/(?:\d{13,20}/)?\d{13,20}:[0-9a-f]{32}\b", _BEHIND_DIGITS),
    ("numbered_token", r"(?<!\d)\d{1,20}\|(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{27,80}(?![\w-])", _BEHIND_A_BAR),
    # Issuers that put a name before the random part.
    (
        "vendor_key",
        r"(?<![\w-])(?!(?:sha|md|hash|commit|blob|digest|etag|file|img|image|rev|node|obj|tx|id|ref|key)\d{0,3}_)"
        r"[a-z][a-z0-9]{2,15}_[0-9a-f]{40,64}(?![\w-])",
        _BEHIND_A_WORD,
    ),
    ("vault_token", r"(?<![\w.])s\.(?=[A-Za-z]*\d)[A-Za-z0-9]{24}(?![\w.])", _BEHIND_A_DOT),
)


def _shape(pattern: str) -> str:
    """Return the pattern as in JSON, where an escape's letter may precede a token."""
    return re.sub(r"\\b|\(\?<!\[[^\]]*\]\)", "", pattern).replace("(?P<secret>", "(?:").replace(BEFORE, "")


_KIND = r"\bkind: {1,4}[\\x22']?Secret\b"
_VALUES = r"(?:\s+[\w.-]+: *[\\x22']?[A-Za-z0-9+/]{8,}={0,2}[\\x22']?)+"

FORMS: tuple[_Group, ...] = (
    _Group(
        "K",
        None,
        (
            _Form(
                "private_key",
                "PRIVATE K",
                (
                    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
                    # Each beginning without an end would otherwise scan to the end of the text.
                    r"(?:(?:[^-]|-(?!----))*+-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
                    r"|(?:(?:\\[rn]|\s)*[A-Za-z0-9+/=]{40,})+(?:\\[rn]|\s)*[A-Za-z0-9+/=]*)"  # truncated
                ),
            ),
            # A key without its first line.
            _Form(
                "private_key",
                "PRIVATE K",
                r"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/]{40,76}(?:\\[rn]|\s){1,4}){1,60}[A-Za-z0-9+/=]{0,76}"
                r"(?:\\[rn]|\s){0,4}-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
            ),
            _Form("age_key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
            _Form("artifactory_key", "AKC", r"\bAKC[A-Za-z0-9]{10,}"),
            _Form("bedrock_key", "ABSK", r"\bABSK[A-Za-z0-9+/]{60,}={0,2}"),
            _Form("easypost_key", "EZAK|EZTK", r"\bEZ[AT]K[A-Za-z0-9]{50,}"),
            _Form("flutterwave_key", "FLWSECK_|FLWPUBK_", r"\bFLW(?:SEC|PUB)K_TEST-[A-Za-z0-9]{12,}(?:-X)?"),
            _Form("heroku_key", "HRKU-AA", r"\bHRKU-AA[\w-]{40,}"),
            _Form("new_relic_key", "NRAK-", r"\bNRAK-[A-Za-z0-9]{20,}"),
            _Form("postman_key", "PMAK-", r"\bPMAK-[A-Za-z0-9]{24}-[A-Za-z0-9]{30,}"),
        ),
    ),
    _Group(
        "A",
        None,
        (
            _Form("aws_access_key", "AKIA|ASIA|ABIA|ACCA|A3T", r"\b(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}\b"),
            _Form("google_api_key", "AIza", r"AIza[\w-]{35}"),
            _Form("telegram_token", ":AA", r"\b\d{8,10}:AA[\w-]{33}"),
            _Form("alibaba_key", "LTAI", r"\bLTAI[A-Za-z0-9]{12,24}\b"),
            _Form("facebook_token", "EAA", r"\bEAA[A-Z][A-Za-z0-9]{80,}"),
            _Form("square_token", "EAAA", r"\bEAAA[\w-]{22,}"),
            _Form("octopus_key", "API-", r"\bAPI-[A-Z0-9]{26,}\b"),
            _Form("onepassword_key", "A3-", r"\bA3-[A-Z0-9]{6}-[A-Z0-9]{6,11}(?:-[A-Z0-9]{5,6}){3,4}\b"),
            _Form("yandex_key", "AQVN", r"\bAQVN[\w-]{35,}"),
        ),
    ),
    _Group(
        "_",
        r"_[\w+/.=-]{10}",
        (
            _Form("github_token", "ghp_|gho_|ghu_|ghs_|ghr_", r"gh[pousr]_\w{30,255}"),
            _Form("github_token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}"),
            _Form("stripe_key", "k_li|k_te|k_pr", r"\b[srp]k_(?:live|test|prod)_[A-Za-z0-9]{10,}"),
            _Form("stripe_key", "whsec_", r"whsec_[A-Za-z0-9+/=]{16,}"),
            _Form("huggingface_token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
            _Form("huggingface_token", "api_or", r"\bapi_org_[A-Za-z0-9]{30,}"),
            _Form("npm_token", "npm_", r"\bnpm_[A-Za-z0-9]{36}"),
            _Form("digitalocean_token", "_v1_", r"\bdo[opr]_v1_[a-f0-9]{64}"),
            _Form("shopify_token", "shpat_|shpca_|shppa_|shpss_", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
            _Form("groq_key", "gsk_", r"\bgsk_[A-Za-z0-9]{40,}"),
            _Form(
                "grafana_token", "glsa_|glc_", r"\bgl(?:sa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}|c_[A-Za-z0-9+/]{32,}={0,3})"
            ),
            _Form("clojars_token", "CLOJARS_", r"\bCLOJARS_[A-Za-z0-9]{40,}"),
            _Form("duffel_token", "duffel_", r"\bduffel_(?:test|live)_[\w=-]{30,}"),
            _Form("fly_token", "fo1_|fm1a_|fm1r_|fm2_", r"\b(?:fo1|fm1[ar]|fm2)_[\w+/-]{40,}={0,3}"),
            _Form("gitlab_session", "_gitlab_se", r"_gitlab_session=(?P<secret>[A-Za-z0-9]{20,})"),
            _Form("linear_key", "lin_ap", r"\blin_api_[A-Za-z0-9]{30,}"),
            _Form("maxmind_key", "_mmk", r"\b[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk\b"),
            _Form("notion_token", "ntn_", r"\bntn_[A-Za-z0-9]{40,}"),
            _Form("onepassword_token", "ops_eyJ", r"\bops_eyJ[A-Za-z0-9+/]{60,}={0,3}"),
            _Form("planetscale_token", "pscale_tkn|pscale_oau|pscale_pw", r"\bpscale_(?:tkn|oauth|pw)_[\w=.-]{30,}"),
            _Form("prefect_key", "pnu_", r"\bpnu_[A-Za-z0-9]{36}"),
            _Form("readme_key", "rdme_", r"\brdme_[a-z0-9]{60,}"),
            _Form("rubygems_key", "rubygem", r"\brubygems_[a-f0-9]{40,}"),
            _Form("sentry_token", "sntryu_|sntrys_", r"\bsntry[us]_[\w+/=-]{40,}"),
            _Form("settlemint_token", "sm_aat_|sm_pat_|sm_sat_", r"\bsm_[aps]at_[A-Za-z0-9]{16}"),
            _Form("shippo_token", "shippo_", r"\bshippo_(?:live|test)_[a-fA-F0-9]{40}"),
            _Form("sourcegraph_token", "sgp_", r"\bsgp_(?:(?:[a-fA-F0-9]{16}|local)_)?[a-fA-F0-9]{40}"),
            _Form("replicate_token", "r8_", r"\br8_[A-Za-z0-9]{37}"),
        ),
    ),
    _Group(
        "-",
        r"-(?<=[a-zX\d]-)[\w.-]{10}",
        (
            _Form(
                "gitlab_token",
                "glpat-|gldt-|glrt-|glptt-|glcbt-|glsoat-|glft-|glag|glimt-|glffct-|gloas-|glrtr-",
                r"gl(?:pat|dt|rtr?|ptt|cbt|soat|ft|agent|imt|ffct|oas)-[\w.-]{20,}",
            ),
            _Form(
                "slack_token",
                "xox|xapp-",
                r"\bxox[a-z]-[A-Za-z0-9-]{8,}|\bxoxe\.xox[a-z]-[A-Za-z0-9-]{10,}|\bxapp-\d-[A-Za-z0-9-]{10,}",
            ),
            _Form("google_client_secret", "GOCSPX-", r"\bGOCSPX-[\w-]{20,}"),
            _Form("anthropic_key", "sk-ant-", r"sk-ant-[\w-]{16,}"),
            _Form("openai_key", "sk-", r"\bsk-(?:[A-Za-z0-9]{20,}[\w-]*|(?:proj|svcacct|admin|None|or-v1)-[\w-]{20,})"),
            _Form("pypi_token", "pypi-AgE", r"pypi-AgE[\w-]{30,}"),
            _Form("adobe_secret", "p8e-", r"\bp8e-[A-Za-z0-9]{32}"),
            _Form("bedrock_key", "bedrock-a", r"\bbedrock-api-key-[A-Za-z0-9+/=]{20,}"),
            _Form("defined_networking_token", "dnke", r"\bdnkey-[\w=-]{26}-[\w=-]{40,}"),
            _Form("frameio_token", "fio-u-", r"\bfio-u-[\w=-]{50,}"),
            _Form("infracost_key", "ico-", r"\bico-[A-Za-z0-9]{32}\b"),
            _Form("intra42_secret", "s-s4t2", r"\bs-s4t2(?:ud|af)-[A-Fa-f0-9]{60,}"),
            _Form("nvidia_key", "nvapi-", r"\bnvapi-[\w-]{40,}"),
            _Form("perplexity_key", "pplx-", r"\bpplx-[A-Za-z0-9]{40,}"),
            _Form("pulumi_token", "pul-", r"\bpul-[a-f0-9]{40}"),
            _Form("scalingo_token", "tk-us-", r"\btk-us-[\w-]{40,}"),
            _Form("brevo_key", "xkeysib-", r"\bxkeysib-[a-f0-9]{60,}-[A-Za-z0-9]{16}"),
            _Form("tavily_key", "tvly-", r"\btvly-(?:dev-|prod-)?[A-Za-z0-9]{24,}"),
            _Form("xai_key", "xai-", r"\bxai-[A-Za-z0-9]{60,}"),
            _Form("cloudflare_key", "v1.0-", r"\bv1\.0-[a-f0-9]{24}-[a-f0-9]{60,}"),
        ),
    ),
    _Group(
        ".",
        r"\.[\w=-]{16}",
        (
            _Form("jwt", "eyJ", r"\beyJ[\w-]{6,}\.eyJ[\w-]{6,}\.[\w-]{6,}"),
            _Form("google_oauth_token", "ya29.", r"\bya29\.[\w-]{20,}"),
            _Form("sendgrid_key", "SG.", r"\bSG\.(?=[\w=-]*\.)[\w=.-]{40,}"),
            _Form("vault_token", "hvs.|hvb.", r"\bhv[sb]\.[\w-]{24,}"),
            _Form(
                "doppler_token",
                "dp.pt.|dp.st.|dp.ct.|dp.sa.",
                r"\bdp\.(?:pt|ct|sa|st(?:\.[\w-]{2,35})?)\.[A-Za-z0-9]{40,}",
            ),
            _Form("dynatrace_token", "dt0c01.|dt0s01.|dt0s16.", r"\bdt0[cs]\d\d\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{60,}"),
            _Form("harness_key", "pat.|sat.", r"\b(?:pat|sat)\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}\b"),
            _Form("mapbox_token", ".eyJ", r"\bsk\.eyJ[\w-]{50,}\.[\w-]{20,}"),
            _Form("terraform_token", ".atlasv1.", r"\b[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{50,}"),
            _Form("dropbox_token", "sl.B|sl.u.", r"\bsl\.(?:u\.|B)[\w=-]{100,}"),
        ),
    ),
    _Group(
        "~",
        None,
        (
            _Form(
                "azure_client_secret",
                "0Q~|1Q~|2Q~|3Q~|4Q~|5Q~|6Q~|7Q~|8Q~|9Q~",
                r"(?<![\w~.])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])",
            ),
            _Form("openshift_token", "sha256~", r"\bsha256~[\w-]{43}"),
        ),
    ),
    _Group(
        "/",
        None,
        (
            _Form("slack_webhook", "hooks.slack.c", r"(?<=hooks\.slack\.com/)[a-z]+/[\w/+-]{20,}"),
            _Form("discord_webhook", "/api/webhooks/", r"(?<=/api/webhooks/)\d{15,22}/[\w-]{40,}"),
            _Form("teams_webhook", "/webhookb2/", r"(?<=/webhookb2/)[\w@/-]{40,}"),
        ),
    ),
    _Group("dapi", None, (_Form("databricks_token", "dapi", r"\bdapi[a-f0-9]{32}"),)),
    _Group("ZXlK", None, (_Form("jwt", "ZXlK", r"\bZXlK[A-Za-z0-9+/]{40,}={0,2}"),)),
    _Group("eyJr", None, (_Form("grafana_token", "eyJrIjoi", r"\beyJrIjoi[A-Za-z0-9]{50,}={0,3}"),)),
    _Group("cmVm", None, (_Form("artifactory_key", "cmVmd", r"\bcmVmd[A-Za-z0-9]{55,}"),)),
    _Group("GR1348", None, (_Form("gitlab_token", "GR1348941", r"\bGR1348941[\w-]{20,}"),)),
    _Group("4b1d", None, (_Form("clickhouse_key", "4b1d", r"\b4b1d[A-Za-z0-9]{38}\b"),)),
    _Group(
        "kind:",
        None,
        (
            # One block of values before or after the kind (`kubectl get` sorts them), not past a masked one.
            _Form(
                "kubernetes_secret",
                "Secret",
                rf"{_KIND}(?s:(?!\bkind:|\[redacted:k).){{0,500}}?\b(?:data|stringData):(?P<secret>{_VALUES})",
            ),
            _Form("kubernetes_secret", "Secret", rf"\b(?:data|stringData):(?P<secret>{_VALUES})(?=\s+{_KIND})"),
        ),
    ),
    _Group(
        "@",
        r"://[^\s/]+@",
        (
            _Form(
                "url_password",
                "://",
                # A password, or a token as user name.
                r"://(?:[^\s/@:\"'\\<>\[]{0,128}:|(?=[\w-]*\d)(?=[\w-]{20,}@))"
                r"(?P<secret>(?!\[redacted:|[$<*{])[^\s/\"'<>\\]{1,256}?)@(?=[\w.\[-])",
            ),
        ),
    ),
    _Group("=", None, (_Form("sas_signature", "sig=", r"[?&;]sig=(?P<secret>[A-Za-z0-9%+/=_-]{20,})"),)),
    _Group(
        "-",
        None,
        (
            _Form(
                "basic_auth",
                "curl",
                r"\bcurl\b(?:(?!\bcurl\b)(?:\\\n|[^\n|;])){0,500}?\s(?:-u|--user)[ =]{0,4}(?![\"']?\[redacted:)"
                # User and password, or a token as user name.
                r"(?:[\"']?[^\s:\"']{0,64}[\"']?:[\"']?(?=[^\s\"'])|[\"']?(?=[^\s:\"']{12,512}:(?:[\s\"']|\Z)))"
                r"(?P<secret>(?!\[redacted:|\$|//)[^\s\"']{1,512})",
            ),
            _Form(
                "password",
                "mysql",
                # A command has one password.
                r"\bmysql\w*\b(?:(?!\bmysql|-p[\"']?\[redacted:)[^\n|;]){0,500}?\s-p[\"']?"
                r"(?P<secret>(?!\[redacted:|[$-]|rint\b|ath\b|erm\b|rune\b|assw)[^\s\"']{3,128})",
            ),
        ),
    ),
    # Short needles need their own shape.
    *(_Group(contains, _shape(row[2]), (_Form(*row),)) for contains, rows in VENDOR_FORMS.items() for row in rows),
)
