"""Detect secrets by form: a vendor's prefix, PEM block or three-part token.

To add a form, add its row and an example in `tests/fleetlore/redact/test_redact.py`.
"""

import re

from fleetlore.redact.notations import ARGUMENTS, Row

__all__ = ["FORMS"]


# Forms with a common first test: a substring that most texts lack, and a shape.
_Group = tuple[str, str | None, tuple[Row, ...]]


def _shape(pattern: str) -> str:
    """Return the pattern as in JSON, where an escape's letter may precede a token."""
    return re.sub(r"\\b|\(\?<!\[[^\]]*\]\)", "", pattern).replace("(?P<secret>", "(?:").replace(_BEFORE, "")


_KIND = r"\bkind: {1,4}[\x22']?Secret\b"
_VALUES = r"(?:\s+[\w.-]+: *[\x22']?[A-Za-z0-9+/]{8,}={0,2}[\x22']?)+"

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_LOWER = "0123456789abcdefghijklmnopqrstuvwxyz"
# Words before a key's name, which the shape test omits.
_BEFORE = r"(?:[a-z][a-z0-9]{0,15}[_-]){0,3}"


def _any(called: str) -> str:
    return (
        rf"(?<![\w-]){_BEFORE}{called}[_-](?:[a-z0-9]{{1,8}}[_-]){{0,2}}"
        r"(?=[A-Za-z]{0,64}+\d)(?=\d{0,64}+[A-Za-z])[A-Za-z0-9]{20,}[\w-]*"
    )


# Rows that need a shape of their own, by a substring.
VENDOR_FORMS: dict[str, tuple[Row, ...]] = {
    "_": (
        ("docker_token", "dckr_", r"\bdckr_(?:pat|oat)_[\w-]{20,}"),
        ("circleci_token", "CCIPAT_|CCIPRJ_", r"\bCCIP(?:AT|RJ)_[\w-]{16,}"),
        ("buildkite_token", "bkua_|bkpt_|bkaj_|bkct_", r"\bbk(?:ua|pt|aj|ct)_[A-Za-z0-9]{20,}"),
        ("supabase_key", "sbp_|sb_secret_|sb_publis", r"\bsb(?:p|_secret|_publishable)_[\w-]{20,}"),
        ("netlify_token", "nfp_|nfc_|nfo_|nfu_|nfb_", r"\bnf[pcoub]_[A-Za-z0-9]{30,}"),
        ("figma_token", "figd_|figu_|figdr_|figur_|figoh_|figor_", r"\bfig(?:d|u|dr|ur|oh|or)_[\w-]{30,}"),
        ("langsmith_key", "lsv2_|ls__", r"\b(?:lsv2_(?:pt|sk)_[a-f0-9]{32}(?:_[a-f0-9]{10})?|ls__[a-f0-9]{32})"),
        ("pinecone_key", "pcsk_", r"\bpcsk_[\w-]{30,}"),
        ("elevenlabs_key", "sk_", r"\bsk_[a-f0-9]{48}\b"),
        ("composio_key", "ak_", r"\bak_[A-Za-z0-9]{20}\b"),
        ("fireworks_key", "fw_", r"\bfw_[A-Za-z0-9]{22,}"),
        ("sonarqube_token", "sqp_|squ_|sqa_", r"\bsq[pua]_[a-f0-9]{40}"),
        ("notion_token", "secret_", r"\bsecret_[A-Za-z0-9]{30,}"),
        ("resend_key", "re_", r"\bre_[A-Za-z0-9]{6,12}_[A-Za-z0-9]{20,}"),
        ("posthog_key", "phx_|phc_|phs_|pha_|phr_", r"\bph[xcsar]_[A-Za-z0-9]{30,}"),
        ("vercel_token", "vcp_|vck_|vci_|vca_|vcr_|vercel_blo", r"\b(?:vc[pkiar]_[\w-]{20,}|vercel_blob_rw_[\w]{20,})"),
        ("render_key", "rnd_", r"\brnd_[A-Za-z0-9]{20,}"),
        ("e2b_key", "e2b_", r"\be2b_[a-f0-9]{32,}"),
        ("jina_key", "jina_", r"\bjina_[\w-]{40,}"),
        ("typeform_token", "tfp_", r"\btfp_[\w-]{40,}"),
        ("razorpay_key", "rzp_", r"\brzp_(?:live|test)_[A-Za-z0-9]{14,}"),
        ("wakatime_key", "waka_", rf"\bwaka_{_UUID}"),
        ("apify_token", "apify_ap", r"\bapify_api_[A-Za-z0-9]{30,}"),
        ("neon_key", "napi_", r"\bnapi_[A-Za-z0-9]{40,}"),
        ("onesignal_key", "os_v2_", r"\bos_v2_(?:app|org)_[a-z2-7]{60,}"),
        ("elastic_key", "essu_", r"\bessu_[A-Za-z0-9+/]{40,}={0,2}"),
        ("honeycomb_key", "hcaik_|hcbik_|hcxik_|hcxmk_", r"\bhc[a-z](?:ik|mk)_[a-z0-9]{30,}"),
        ("linear_key", "lin_oau|lin_wh", r"\blin_(?:oauth|wh)_[A-Za-z0-9]{30,}"),
        ("lob_key", "live_", r"\blive_(?:pub_)?[a-f0-9]{31,40}\b"),
        ("yandex_token", "y0_A|y1_A|y2_A|y3_A", r"\by[0-3]_A[\w-]{40,}"),
        ("huggingface_token", "hf_", r"\bhf_(?:oauth|jwt)_[\w.-]{20,}"),
        ("vendor_key", "npg_", r"\bnpg_[A-Za-z0-9]{12,}\b"),
        ("vendor_key", "key_", r"\bkey_[0-9a-f]{64}\b"),
        ("clickup_token", "pk_", r"\bpk_\d{6,9}_[A-Z0-9]{32}\b"),
        # Cloudflare, Together, MongoDB Atlas, Polar, Xata, Anyscale, RunPod, Weights & Biases, UpCloud, Alchemy,
        # Pinterest, dbt, CockroachDB, Retool, Socket, DeepSource, Aiven, Dub.
        ("vendor_key",
         "cfut_|cfat_|cfkt_|tgp_v1_|sa_sk_|polar_|xau_|esecret_|rpa_|wandb_v|ucat_|alcht_|pina_|dbtc_|dbtu_|dbts_"
         "|CCDB1_|retool_|sktsec_|dsp_|AVNS_|dub_",
         r"\b(?:cf[aku]t|tgp_v1|mdb_sa_sk|polar_[a-z]{2,5}|xau|esecret|rpa|wandb_v1|ucat|alcht|pina|dbt[csu]|CCDB1"
         r"|retool|sktsec|dsp|AVNS|dub)_(?=[A-Za-z_-]{0,64}+\d)[\w-]{20,}"),
    ),
    "-": (
        ("cerebras_key", "csk-", r"\bcsk-[A-Za-z0-9]{40,}"),
        ("modal_token", "ak-|as-", r"\ba[ks]-[A-Za-z0-9]{22}\b"),
        ("tailscale_key", "tskey-", r"\btskey-(?:[a-z]+-)?[\w-]{12,}"),
        ("plaid_token", "access-", rf"\baccess-(?:sandbox|development|production)-{_UUID}"),
        ("hubspot_token", "pat-", rf"\bpat-[a-z]{{2}}\d-{_UUID}"),
        ("contentful_token", "CFPAT-", r"\bCFPAT-[\w-]{40,}"),
        ("mailgun_key", "key-", r"\bkey-[0-9a-z]{32}\b"),
        ("firecrawl_key", "fc-", r"\bfc-[0-9a-f]{32}\b"),
        ("llamacloud_key", "llx-", r"\bllx-[\w-]{30,}"),
        ("amazon_mws_key", "amzn.mws", rf"\bamzn\.mws\.{_UUID}"),
        ("appsync_key", "da2-", r"\bda2-[a-z0-9]{26}\b"),
        ("launchdarkly_key", "api-|sdk-|mob-", rf"\b(?:api|sdk|mob)-{_UUID}"),
        ("langfuse_key", "sk-lf-|pk-lf-", rf"\b[sp]k-lf-{_UUID}"),
        ("voyage_key", "pa-", r"\bpa-[\w-]{43}(?![\w-])"),
        ("brevo_key", "xsmtpsib-", r"\bxsmtpsib-[a-f0-9]{60,}-[A-Za-z0-9]{16}"),
        ("new_relic_key", "NRII-|NRRA-|NRJS-|NRBR-|NRAA-", r"\bNR(?:II|RA|JS|BR|AA)-[\w-]{19,}"),
        ("akamai_key", "akab-", r"\bakab-[a-z0-9]{16}-[a-z0-9]{16}"),
        ("square_token", "sq0atp-|sq0csp-", r"\bsq0(?:atp|csp)-[\w\\-]{20,}"),
        ("square_token", "sandbox-sq0", r"\bsandbox-sq0[a-z]{3}-[\w-]{20,}"),
        # Axiom; mem0, Context7, Helicone.
        ("vendor_key", "xaat-|xapt-", rf"\bxa[ap]t-{_UUID}"),
        ("vendor_key", "m0-|7sk-|helicone-", r"\b(?:m0|ctx7sk|sk-helicone)-(?=[A-Za-z_-]{0,64}+\d)[\w-]{24,}"),
        ("scalingo_token", "tk-", r"\btk-(?:us|eu)-[\w-]{40,}"),
    ),
    ".": (
        ("airtable_token", "pat", r"\bpat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
        ("sentry_dsn", "sentry.i|@sentry.", r"(?<=://)[0-9a-f]{32}(?::[0-9a-f]{32})?(?=@[\w.-]*(?:sentry|ingest))"),
        ("yandex_token", "t1.", r"\bt1\.[A-Z0-9a-z_-]{20,}={0,2}\.[\w-]{60,}={0,2}"),
        ("paseto", "v1.|v2.|v3.|v4.", r"\bv[1-4]\.(?:local|public)\.[\w-]{40,}"),
        # Snyk, VK, Tinybird, Discord, Authress.
        ("vendor_key", "snyk_uat|snyk_sat|vk1.a.|p.eyJ|mfa.",
         r"\b(?:snyk_[us]at\.|vk1\.a\.|p\.eyJ|mfa\.)[\w-]{8,}\.?[\w-]{40,}(?:\.[\w-]{20,})?"),
        ("vendor_key", ".acc",
         r"\b(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,}"),
    ),
    "/": (
        ("google_code", "/0A", r"\b4/0A[\w.-]{30,}"),
        ("google_refresh_token", "1//0", r"\b1//0[\w-]{30,}"),
        ("zapier_webhook", "mcp.zapier.co", r"(?<=mcp\.zapier\.com/api/mcp/s/)[\w=-]{20,}"),
        ("zapier_webhook", "hooks.zapier.c", r"(?<=hooks\.zapier\.com/hooks/catch/)[\w/]{8,}"),
        ("google_chat_webhook", "chat.googleapi", r"(?<=chat\.googleapis\.com/v1/spaces/)[\w/?=&%-]{30,}"),
        ("mattermost_webhook", "/hooks/", r"(?<=/hooks/)[a-z0-9]{26}\b"),
        ("slack_webhook", "hooks.slack.c", r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/+-]{20,}"),
        ("telegram_token", "/bot", r"(?<=/bot)\d{8,10}:[\w-]{35}"),
    ),
    "$": (
        ("password_hash", "$2a$|$2b$|$2x$|$2y$", r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}"),
        ("password_hash", "$1$|$5$|$6$|$y$|$7$",
         r"\$(?:1|5|6|y|7)\$(?:rounds=\d+\$)?[./A-Za-z0-9$]{1,24}\$[./A-Za-z0-9]{22,}"),
        ("password_hash", "$argon2", r"\$argon2(?:id|i|d)\$v=\d+\$[\w=,]+\$[A-Za-z0-9+/]{8,}\$[A-Za-z0-9+/]{20,}"),
        ("paypal_token", "access_token$", r"\baccess_token\$(?:production|sandbox)\$[A-Za-z0-9]{16}\$[a-f0-9]{32}"),
        ("apr1_hash", "$apr1$", r"\$apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}"),
        ("pbkdf2_hash", "pbkdf2", r"\bpbkdf2[_:](?:sha\d+)?\$\d+\$[A-Za-z0-9+/]{6,}\$[A-Za-z0-9+/=]{20,}"),
    ),
    ":": (
        ("jwk", "\"kty\"|\"kty\\",
         r"\"(?:d|p|q|dp|dq|qi|k)\\*+\"\s?:\s?\\*+\"(?P<secret>[\w-]{20,1024})\\*+\""),
        ("pgpass_line", ":5432:|:5433:|:6432:|:*:*:",
         r"(?<![\w.*:-])[\w.*-]{1,200}:(?:543[23]|6432|\*):[\w*-]{1,64}:[\w*-]{1,64}:(?P<secret>(?!\[redacted:)"
         r"[^\s:]{3,512})(?![^\s:])"),
        ("ntlm_hash", "aad3b435b51404ee", r"\baad3b435b51404ee[a-f0-9]{16}:[a-fA-F0-9]{32}\b"),
        ("putty_key", "PuTTY-Us", r"(?<=PuTTY-User-Key-File-)\d:[\s\S]{0,4000}?(?:Private-MAC: [0-9a-f]{40,64}"
         r"|Private-Lines: \d{1,3}(?:\\[rn]|\s)+(?:[A-Za-z0-9+/=]{1,64}(?:\\[rn]|\s)*){1,99})"),
        ("snowflake_token", "ver:1-hint:", r"(?<=ver:1-hint:)[\w-]{24,}"),
    ),
    "=": (
        ("secret", "?key=|&key=|nkey=|?code=|&code=",
         r"[?&](?:(?:token)?key=|code=(?=[A-Za-z_-]{0,64}+\d))(?P<secret>[\w-]{16,512})"),
        ("digest", "nonce=", r"\bresponse=\\*+\"?(?P<secret>[0-9a-f]{32,64})\b"),
        ("cookie", "?sid=|&sid=|?session_id=|&session_id=",
         r"[?&](?:sid|session_id)=(?=[A-Za-z_-]{0,64}+\d)(?P<secret>[\w%.:-]{16,512})"),
        ("cookie", "PHPSESS|JSESSIO|connect.sid|_SessionId|sessionid",
         r"\b(?:PHPSESSID|(?i:j?sessionid)|connect\.sid|ASP\.NET_SessionId)=(?P<secret>[\w%.:-]{16,512})"),
    ),
    "!": (("salesforce_token", "00D", r"\b00D[A-Za-z0-9]{12,15}![\w.]{60,}"),),
    "AT": (("atlassian_token", "ATATT|ATCTT|ATBB|ATTA|ATST", r"\bAT(?:ATT|CTT|BB|TA|ST)[A-Za-z0-9+/=_-]{28,}"),),
    "-us": (("mailchimp_key", "-us", r"\b[0-9a-z]{32}-us\d{1,2}\b"),),
    "SK": (
        ("twilio_key", "|".join(f"SK{each}" for each in _LOWER + "ABCDEF"),
         r"\bSK(?:[0-9a-z]{32}|[0-9a-fA-F]{32})\b"),
    ),
    "AC": (("twilio_key", "|".join(f"AC{each}" for each in _LOWER), r"\bAC(?:[0-9a-z]{32}|[0-9a-fA-F]{32})\b"),),
    "BSA": (("brave_key", "BSA", r"\bBSA(?=[A-Za-z_-]{0,64}+\d)[\w-]{28}(?![\w-])"),),
    "EXO": (("exoscale_key", "EXO", r"\bEXO(?=[a-z]{0,64}+\d)[0-9a-z]{26}\b"),),
    "AQE": (("adyen_key", "AQE", r"\bAQE[a-z][\w+/-]{30,}={0,2}[\w+/=-]*"),),
    "dkea": (("databricks_token", "dkea", r"\bdkea[a-f0-9]{32}"),),
    "dose": (("databricks_token", "dose", r"\bdose[a-f0-9]{32}"),),
    "AP": (
        ("artifactory_key", "|".join(f"AP{digit:X}" for digit in range(16)),
         r"(?<![A-Za-z0-9])AP[0-9A-F][A-Za-z0-9]{16,}"),
    ),
    "T3BlbkFJ": (("openai_key", "T3BlbkFJ", r"\bsk-[\w-]{20,160}?T3BlbkFJ[\w-]{20,}"),),
    "cio": (("crates_token", "cio", r"\bcio(?=[a-zA-Z]{0,64}+\d)[A-Za-z0-9]{32}\b"),),
    "SSWS": (("okta_token", "SSWS", r"\bSSWS\s+(?P<secret>[\w-]{30,})"),),
    "oy2": (("nuget_key", "oy2", r"\boy2[a-z0-9]{43}\b"),),
    "AKID": (("tencent_key", "AKID", r"\bAKID[A-Za-z0-9]{32}\b"),),
    "SCW": (("scaleway_key", "SCW", r"\bSCW[A-Z0-9]{17}\b"),),
    "AZDO": (("azure_devops_token", "AZDO", r"\b[A-Za-z0-9]{60,80}AZDO[A-Za-z0-9]{4}\b"),),
    "JQQJ99": (("azure_key", "JQQJ99", r"\b[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{26}\b"),),
    "IQoJb": (("aws_session_token", "IQoJb", r"\bIQoJb3[A-Za-z0-9+/=]{60,}"),),
    "FwoGZ": (("aws_session_token", "FwoGZ", r"\bFwoGZXIvYXdz[A-Za-z0-9+/=]{60,}"),),
    "IGQ": (("instagram_token", "IGQ", r"\bIGQ[VW][\w-]{60,}"),),
    "AAAAAAAAAA": (("twitter_token", "AAAAAAAAAA", r"\bA{20,24}[A-Za-z0-9%]{60,}"),),
    "LS0tLS": (("private_key", "LS0tLS1CRU", r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/]{40,}={0,2}"),),
    "TFMwdEx": (("private_key", "TFMwdEx", r"\bTFMwdExTMUNSVWRKVG[A-Za-z0-9+/]{40,}={0,2}"),),
    "MII": (
        # A private key without its first line; certificates begin differently.
        ("private_key", "IBAAKC|IBADANB",
         r"\bMII[A-Za-z0-9+/]{3,5}IBA(?:AKC|DANB)[A-Za-z0-9+/]{8,}"
         r"(?:(?:\\[rn]|[\s\"'\\>|]|\d{1,3}[:|.] )*[A-Za-z0-9+/]{24,})*={0,2}"),
    ),
    # Any vendor: a prefix, then characters that form no word or name.
    "sk": (("vendor_key", "sk_|sk-", _any("sk")),),
    "pat": (("vendor_key", "pat_|pat-", _any("pat")),),
    "api": (("vendor_key", "api_|api-|apikey_|apikey-", _any("api(?:key)?")),),
    "secret": (("vendor_key", "secret_|secret-", _any("secret")),),
    "live": (("vendor_key", "live_|live-", _any("live")),),
    "prod": (("vendor_key", "prod_|prod-", _any("prod")),),
    "token": (("vendor_key", "token_|token-", _any("token")),),
}  # fmt: skip

FORMS: tuple[_Group, ...] = (
    ("K", None, (
        ("private_key", "PRIVATE K",
         r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
         # Otherwise each beginning without an end would scan the whole text.
         r"(?:(?:[^-]|-(?!----))*+-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
         r"|(?:(?:\\[rn]|\s)*[A-Za-z0-9+/=]{40,})+(?:\\[rn]|\s)*[A-Za-z0-9+/=]*)"),  # truncated
        # A key without its first line.
        ("private_key", "PRIVATE K",
         r"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/]{40,76}(?:\\[rn]|\s){1,4}){1,60}[A-Za-z0-9+/=]{0,76}"
         r"(?:\\[rn]|\s){0,4}-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
        ("age_key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
        ("artifactory_key", "AKC", r"\bAKC[A-Za-z0-9]{10,}"),
        ("bedrock_key", "ABSK", r"\bABSK[A-Za-z0-9+/]{60,}={0,2}"),
        ("easypost_key", "EZAK|EZTK", r"\bEZ[AT]K[A-Za-z0-9]{50,}"),
        ("flutterwave_key", "FLWSECK_|FLWPUBK_", r"\bFLW(?:SEC|PUB)K_TEST-[A-Za-z0-9]{12,}(?:-X)?"),
        ("heroku_key", "HRKU-AA", r"\bHRKU-AA[\w-]{40,}"),
        ("new_relic_key", "NRAK-", r"\bNRAK-[A-Za-z0-9]{20,}"),
        ("postman_key", "PMAK-", r"\bPMAK-[A-Za-z0-9]{24}-[A-Za-z0-9]{30,}"),
    )),
    ("A", None, (
        ("aws_access_key", "AKIA|ASIA|ABIA|ACCA|A3T", r"\b(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}\b"),
        ("google_api_key", "AIza", r"AIza[\w-]{35}"),
        ("telegram_token", ":AA", r"\b\d{8,10}:AA[\w-]{33}"),
        ("alibaba_key", "LTAI", r"\bLTAI[A-Za-z0-9]{12,24}\b"),
        ("facebook_token", "EAA", r"\bEAA[A-Z][A-Za-z0-9]{80,}"),
        ("square_token", "EAAA", r"\bEAAA[\w-]{22,}"),
        ("octopus_key", "API-", r"\bAPI-[A-Z0-9]{26,}\b"),
        ("onepassword_key", "A3-", r"\bA3-[A-Z0-9]{6}-[A-Z0-9]{6,11}(?:-[A-Z0-9]{5,6}){3,4}\b"),
        ("yandex_key", "AQVN", r"\bAQVN[\w-]{35,}"),
    )),
    ("_", r"_[\w+/.=-]{10}", (
        ("github_token", "ghp_|gho_|ghu_|ghs_|ghr_", r"gh[pousr]_\w{30,255}"),
        ("github_token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}"),
        ("stripe_key", "k_li|k_te|k_pr", r"\b[srp]k_(?:live|test|prod)_[A-Za-z0-9]{10,}"),
        ("stripe_key", "whsec_", r"whsec_[A-Za-z0-9+/=]{16,}"),
        ("huggingface_token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
        ("huggingface_token", "api_or", r"\bapi_org_[A-Za-z0-9]{30,}"),
        ("npm_token", "npm_", r"\bnpm_[A-Za-z0-9]{36}"),
        ("digitalocean_token", "_v1_", r"\bdo[opr]_v1_[a-f0-9]{64}"),
        ("shopify_token", "shpat_|shpca_|shppa_|shpss_", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
        ("groq_key", "gsk_", r"\bgsk_[A-Za-z0-9]{40,}"),
        ("grafana_token", "glsa_|glc_", r"\bgl(?:sa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}|c_[A-Za-z0-9+/]{32,}={0,3})"),
        ("clojars_token", "CLOJARS_", r"\bCLOJARS_[A-Za-z0-9]{40,}"),
        ("duffel_token", "duffel_", r"\bduffel_(?:test|live)_[\w=-]{30,}"),
        ("fly_token", "fo1_|fm1a_|fm1r_|fm2_", r"\b(?:fo1|fm1[ar]|fm2)_[\w+/-]{40,}={0,3}"),
        ("gitlab_session", "_gitlab_se", r"_gitlab_session=(?P<secret>[A-Za-z0-9]{20,})"),
        ("linear_key", "lin_ap", r"\blin_api_[A-Za-z0-9]{30,}"),
        ("maxmind_key", "_mmk", r"\b[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk\b"),
        ("notion_token", "ntn_", r"\bntn_[A-Za-z0-9]{40,}"),
        ("onepassword_token", "ops_eyJ", r"\bops_eyJ[A-Za-z0-9+/]{60,}={0,3}"),
        ("planetscale_token", "pscale_tkn|pscale_oau|pscale_pw", r"\bpscale_(?:tkn|oauth|pw)_[\w=.-]{30,}"),
        ("prefect_key", "pnu_", r"\bpnu_[A-Za-z0-9]{36}"),
        ("readme_key", "rdme_", r"\brdme_[a-z0-9]{60,}"),
        ("rubygems_key", "rubygem", r"\brubygems_[a-f0-9]{40,}"),
        ("sentry_token", "sntryu_|sntrys_", r"\bsntry[us]_[\w+/=-]{40,}"),
        ("settlemint_token", "sm_aat_|sm_pat_|sm_sat_", r"\bsm_[aps]at_[A-Za-z0-9]{16}"),
        ("shippo_token", "shippo_", r"\bshippo_(?:live|test)_[a-fA-F0-9]{40}"),
        ("sourcegraph_token", "sgp_", r"\bsgp_(?:(?:[a-fA-F0-9]{16}|local)_)?[a-fA-F0-9]{40}"),
        ("replicate_token", "r8_", r"\br8_[A-Za-z0-9]{37}"),
    )),
    ("-", r"-(?<=[a-zX\d]-)[\w.-]{10}", (
        ("gitlab_token", "glpat-|gldt-|glrt-|glptt-|glcbt-|glsoat-|glft-|glag|glimt-|glffct-|gloas-|glrtr-",
         r"gl(?:pat|dt|rtr?|ptt|cbt|soat|ft|agent|imt|ffct|oas)-[\w.-]{20,}"),
        ("slack_token", "xox|xapp-",
         r"\bxox[a-z]-[A-Za-z0-9-]{8,}|\bxoxe\.xox[a-z]-[A-Za-z0-9-]{10,}|\bxapp-\d-[A-Za-z0-9-]{10,}"),
        ("google_client_secret", "GOCSPX-", r"\bGOCSPX-[\w-]{20,}"),
        ("anthropic_key", "sk-ant-", r"sk-ant-[\w-]{16,}"),
        ("openai_key", "sk-", r"\bsk-(?:[A-Za-z0-9]{20,}[\w-]*|(?:proj|svcacct|admin|None|or-v1)-[\w-]{20,})"),
        ("pypi_token", "pypi-AgE", r"pypi-AgE[\w-]{30,}"),
        ("adobe_secret", "p8e-", r"\bp8e-[A-Za-z0-9]{32}"),
        ("bedrock_key", "bedrock-a", r"\bbedrock-api-key-[A-Za-z0-9+/=]{20,}"),
        ("defined_networking_token", "dnke", r"\bdnkey-[\w=-]{26}-[\w=-]{40,}"),
        ("frameio_token", "fio-u-", r"\bfio-u-[\w=-]{50,}"),
        ("infracost_key", "ico-", r"\bico-[A-Za-z0-9]{32}\b"),
        ("intra42_secret", "s-s4t2", r"\bs-s4t2(?:ud|af)-[A-Fa-f0-9]{60,}"),
        ("nvidia_key", "nvapi-", r"\bnvapi-[\w-]{40,}"),
        ("perplexity_key", "pplx-", r"\bpplx-[A-Za-z0-9]{40,}"),
        ("pulumi_token", "pul-", r"\bpul-[a-f0-9]{40}"),
        ("scalingo_token", "tk-us-", r"\btk-us-[\w-]{40,}"),
        ("brevo_key", "xkeysib-", r"\bxkeysib-[a-f0-9]{60,}-[A-Za-z0-9]{16}"),
        ("tavily_key", "tvly-", r"\btvly-(?:dev-|prod-)?[A-Za-z0-9]{24,}"),
        ("xai_key", "xai-", r"\bxai-[A-Za-z0-9]{60,}"),
        ("cloudflare_key", "v1.0-", r"\bv1\.0-[a-f0-9]{24}-[a-f0-9]{60,}"),
    )),
    (".", r"\.[\w=-]{16}", (
        ("jwt", "eyJ", r"\beyJ[\w-]{6,}\.(?:eyJ[\w-]{6,}\.[\w-]{6,}|[\w-]*\.[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"),
        ("google_oauth_token", "ya29.", r"\bya29\.[\w-]{20,}"),
        ("sendgrid_key", "SG.", r"\bSG\.(?=[\w=-]{0,64}+\.)[\w=.-]{40,}"),
        ("vault_token", "hvs.|hvb.", r"\bhv[sb]\.[\w-]{24,}"),
        ("doppler_token", "dp.pt.|dp.st.|dp.ct.|dp.sa.", r"\bdp\.(?:pt|ct|sa|st(?:\.[\w-]{2,35})?)\.[A-Za-z0-9]{40,}"),
        ("dynatrace_token", "dt0c01.|dt0s01.|dt0s16.", r"\bdt0[cs]\d\d\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{60,}"),
        ("harness_key", "pat.|sat.", r"\b(?:pat|sat)\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}\b"),
        ("mapbox_token", ".eyJ", r"\bsk\.eyJ[\w-]{50,}\.[\w-]{20,}"),
        ("terraform_token", ".atlasv1.", r"\b[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{50,}"),
        ("dropbox_token", "sl.B|sl.u.", r"\bsl\.(?:u\.|B)[\w=-]{100,}"),
    )),
    ("~", None, (
        ("azure_client_secret", "0Q~|1Q~|2Q~|3Q~|4Q~|5Q~|6Q~|7Q~|8Q~|9Q~",
         r"(?<![\w~.])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])"),
        ("openshift_token", "sha256~", r"\bsha256~[\w-]{43}"),
    )),
    ("/", None, (
        ("slack_webhook", "hooks.slack.c", r"(?<=hooks\.slack\.com/)[a-z]+/[\w/+-]{20,}"),
        ("discord_webhook", "/api/webhooks/", r"(?<=/api/webhooks/)\d{15,22}/[\w-]{40,}"),
        ("teams_webhook", "/webhookb2/", r"(?<=/webhookb2/)[\w@/-]{40,}"),
    )),
    ("dapi", None, (("databricks_token", "dapi", r"\bdapi[a-f0-9]{32}"),)),
    ("ZXlK", None, (("jwt", "ZXlK", r"\bZXlK[A-Za-z0-9+/]{40,}={0,2}"),)),
    ("eyJr", None, (("grafana_token", "eyJrIjoi", r"\beyJrIjoi[A-Za-z0-9]{50,}={0,3}"),)),
    ("cmVm", None, (("artifactory_key", "cmVmd", r"\bcmVmd[A-Za-z0-9]{55,}"),)),
    ("GR1348", None, (("gitlab_token", "GR1348941", r"\bGR1348941[\w-]{20,}"),)),
    ("4b1d", None, (("clickhouse_key", "4b1d", r"\b4b1d[A-Za-z0-9]{38}\b"),)),
    ("kind:", None, (
        # One block of values before or after the kind (`kubectl get` sorts them), not past a masked one.
        ("kubernetes_secret", "Secret",
         rf"{_KIND}(?s:(?!\bkind:|\[redacted:k).){{0,500}}?\b(?:data|stringData):(?P<secret>{_VALUES})"),
        ("kubernetes_secret", "Secret", rf"\b(?:data|stringData):(?P<secret>{_VALUES})(?=\s+{_KIND})"),
    )),
    ("@", r"://[^\s/]+@", (
        ("url_password", "://",
         r"://(?:[^\s/@:\"'\\<>\[]{0,128}:|(?=[A-Za-z_-]{0,64}+\d)(?=[\w-]{20,}@))"
         r"(?P<secret>(?!\[redacted:|[$<*{])[^\s/\"'<>\\]{1,256}?)@(?=[\w.\[-])"),
    )),
    ("=", None, (("sas_signature", "sig=|ignature=", r"[?&;](?:sig|Signature)=(?P<secret>[A-Za-z0-9%+/=_-]{20,})"),)),
    ("-", None, (
        ("basic_auth", "curl",
         r"\bcurl\b(?:(?!\bcurl\b)(?:\\\n|[^\n|;])){0,500}?\s(?:-[a-zA-Z]{0,3}[uU]|--(?:proxy-)?user)[ =]{0,4}"
         r"(?![\"']?\[redacted:)"
         # User and password, or a token as user name.
         r"(?:[\"']?[^\s:\"']{0,64}[\"']?:[\"']?(?=[^\s\"'])|[\"']?(?=[^\s:\"']{12,512}:(?:[\s\"']|\Z)))"
         r"(?P<secret>(?!\[redacted:|\$|//)[^\s\"']{1,512})"),
        # A command has one password.
        ("password", "mysql|mariadb|mycli",
         r"\bm(?:ysql|ariadb|ycli)\w*\b(?:(?!\bm(?:ysql|ariadb|ycli)|-p[\"']?\[redacted:)[^\n|;]){0,500}?\s-p[\"']?"
         r"(?P<secret>(?!\[redacted:|[$-]|rint\b|ath\b|erm\b|rune\b|assw)[^\s\"']{3,128})"),
    )),
    *((contains, _shape(row[2]), (row,)) for contains, rows in (*VENDOR_FORMS.items(), *ARGUMENTS.items())
      for row in rows),
)  # fmt: skip
