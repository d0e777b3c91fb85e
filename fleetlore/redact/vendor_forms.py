"""List tokens and commands of more vendors by a common substring, as rows of `detectors.Form`."""

from __future__ import annotations

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_LOWER = "0123456789abcdefghijklmnopqrstuvwxyz"
# A command-line word, quoted or not.
_WORD = r"\\*[\"']?(?P<secret>(?!\[redacted:|[$-])[^\s\"'|;]{3,512})"
# Words before a key's name. The shape test omits them.
BEFORE = r"(?:[a-z][a-z0-9]{0,15}[_-]){0,3}"


def _any(called: str) -> str:
    return (
        rf"(?<![\w-]){BEFORE}{called}[_-](?:[a-z0-9]{{1,8}}[_-]){{0,2}}"
        r"(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{20,}[\w-]*"
    )


VENDOR_FORMS: dict[str, tuple[tuple[str, str, str], ...]] = {
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
        ("neon_key", "napi_", r"\bnapi_[a-z0-9]{40,}"),
        ("onesignal_key", "os_v2_", r"\bos_v2_(?:app|org)_[a-z2-7]{60,}"),
        ("elastic_key", "essu_", r"\bessu_[A-Za-z0-9+/]{40,}={0,2}"),
        ("honeycomb_key", "hcaik_|hcbik_|hcxik_|hcxmk_", r"\bhc[a-z](?:ik|mk)_[a-z0-9]{30,}"),
        ("linear_key", "lin_oau|lin_wh", r"\blin_(?:oauth|wh)_[A-Za-z0-9]{30,}"),
        ("lob_key", "live_", r"\blive_(?:pub_)?[a-f0-9]{31,40}\b"),
        ("yandex_token", "y0_A|y1_A|y2_A|y3_A", r"\by[0-3]_A[\w-]{40,}"),
        ("huggingface_token", "hf_", r"\bhf_(?:oauth|jwt)_[\w.-]{20,}"),
        ("clickup_token", "pk_", r"\bpk_\d{6,9}_[A-Z0-9]{32}\b"),
        # Cloudflare, Together, MongoDB Atlas, Polar, Xata, Anyscale, RunPod, Weights & Biases, UpCloud, Alchemy,
        # Pinterest, dbt, CockroachDB, Retool, Socket, DeepSource, Aiven, Dub.
        ("vendor_key",
         "cfut_|cfat_|cfkt_|tgp_v1_|sa_sk_|polar_|xau_|esecret_|rpa_|wandb_v|ucat_|alcht_|pina_|dbtc_|dbtu_|dbts_"
         "|CCDB1_|retool_|sktsec_|dsp_|AVNS_|dub_",
         r"\b(?:cf[aku]t|tgp_v1|mdb_sa_sk|polar_[a-z]{2,5}|xau|esecret|rpa|wandb_v1|ucat|alcht|pina|dbt[csu]|CCDB1"
         r"|retool|sktsec|dsp|AVNS|dub)_(?=[\w-]*\d)[\w-]{20,}"),
    ),
    "-": (
        ("cerebras_key", "csk-", r"\bcsk-[a-z0-9]{40,}"),
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
        ("vendor_key", "m0-|7sk-|helicone-", r"\b(?:m0|ctx7sk|sk-helicone)-(?=[\w-]*\d)[\w-]{24,}"),
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
        ("paypal_token", "access_token$", r"\baccess_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}"),
        ("apr1_hash", "$apr1$", r"\$apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}"),
        ("pbkdf2_hash", "pbkdf2", r"\bpbkdf2[_:](?:sha\d+)?\$\d+\$[A-Za-z0-9+/]{6,}\$[A-Za-z0-9+/=]{20,}"),
    ),
    ":": (
        ("pgpass_line", ":5432:",
         r"(?<![\w.*-])[\w.*-]{1,200}:5432:[\w*-]{1,64}:[\w*-]{1,64}:(?P<secret>(?!\[redacted:)"
         r"[^\s:]{3,512})(?![^\s:])"),
        ("ntlm_hash", "aad3b435b51404ee", r"\baad3b435b51404ee[a-f0-9]{16}:[a-fA-F0-9]{32}\b"),
        ("putty_key", "PuTTY-Us", r"(?<=PuTTY-User-Key-File-)\d:[\s\S]{0,4000}?Private-MAC: [0-9a-f]{40,64}"),
    ),
    "(": (
        ("password", "roperty(|.put(|.set(|etItem(",
         r"\b(?:put|set|setItem|\w{0,20}Property)\(\s?\\*[\"'][\w.-]{0,40}"
         r"(?i:password|passwd|secret|token|api[._-]?key)"
         r"\\*[\"'],\s{0,2}\\*[\"'](?P<secret>(?!\[redacted:|[$<{%*])[^\s\"'\\]{3,512})"),
        ("password", "BasicAut|DigestAu|auth=(|login(|asic_auth(",
         r"\b(?:HTTP(?:Basic|Digest)Auth|auth\s?=\s?|login|basic_auth)\(\s{0,4}\\*[\"'][^\"'\n]{1,64}[\"']"
         r"\s{0,2},\s{0,2}\\*[\"'](?P<secret>(?!\[redacted:|[$<{%*])[^\s\"']{3,512})[\"']"),
    ),
    "=": (
        ("secret", "?key=|&key=|nkey=", r"[?&](?:token)?key=(?P<secret>[\w-]{16,512})"),
        ("password", "psk=", rf"\b(?:wpa[_-])?psk\s?=\s?{_WORD}"),
        ("cookie", "PHPSESS|JSESSIO|connect.sid|_SessionId|sessionid",
         r"\b(?:PHPSESSID|JSESSIONID|connect\.sid|ASP\.NET_SessionId|sessionid)=(?P<secret>[\w%.:-]{16,512})"),
    ),
    "!": (("salesforce_token", "00D", r"\b00D[A-Za-z0-9]{12,15}![\w.]{60,}"),),
    "AT": (("atlassian_token", "ATATT|ATCTT|ATBB|ATTA|ATST", r"\bAT(?:ATT|CTT|BB|TA|ST)[A-Za-z0-9+/=_-]{28,}"),),
    "-us": (("mailchimp_key", "-us", r"\b[0-9a-z]{32}-us\d{1,2}\b"),),
    "SK": (
        ("twilio_key", "|".join(f"SK{each}" for each in _LOWER + "ABCDEF"),
         r"\bSK(?:[0-9a-z]{32}|[0-9a-fA-F]{32})\b"),
    ),
    "AC": (("twilio_key", "|".join(f"AC{each}" for each in _LOWER), r"\bAC(?:[0-9a-z]{32}|[0-9a-fA-F]{32})\b"),),
    "BSA": (("brave_key", "BSA", r"\bBSA(?=[\w-]*\d)[\w-]{28}(?![\w-])"),),
    "EXO": (("exoscale_key", "EXO", r"\bEXO(?=[a-z]*\d)[0-9a-z]{26}\b"),),
    "AQE": (("adyen_key", "AQE", r"\bAQE[a-z][\w+/-]{30,}={0,2}[\w+/=-]*"),),
    "dkea": (("databricks_token", "dkea", r"\bdkea[a-f0-9]{32}"),),
    "dose": (("databricks_token", "dose", r"\bdose[a-f0-9]{32}"),),
    "AP": (
        ("artifactory_key", "|".join(f"AP{digit:X}" for digit in range(16)),
         r"(?<![A-Za-z0-9])AP[0-9A-F][A-Za-z0-9]{16,}"),
    ),
    "T3BlbkFJ": (("openai_key", "T3BlbkFJ", r"\bsk-[\w-]{20,}T3BlbkFJ[\w-]{20,}"),),
    "oy2": (("nuget_key", "oy2", r"\boy2[a-z0-9]{43}\b"),),
    "AKID": (("tencent_key", "AKID", r"\bAKID[A-Za-z0-9]{32}\b"),),
    "SCW": (("scaleway_key", "SCW", r"\bSCW[A-Z0-9]{17}\b"),),
    "AZDO": (("azure_devops_token", "AZDO", r"\b[A-Za-z0-9]{60,80}AZDO[A-Za-z0-9]{4}\b"),),
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
    # Any vendor: a prefix with a telling word, then characters that form no word or name.
    "sk": (("vendor_key", "sk_|sk-", _any("sk")),),
    "pat": (("vendor_key", "pat_|pat-", _any("pat")),),
    "api": (("vendor_key", "api_|api-|apikey_|apikey-", _any("api(?:key)?")),),
    "secret": (("vendor_key", "secret_|secret-", _any("secret")),),
    "live": (("vendor_key", "live_|live-", _any("live")),),
    "prod": (("vendor_key", "prod_|prod-", _any("prod")),),
    "token": (("vendor_key", "token_|token-", _any("token")),),
    # Commands with a password argument.
    " ": (
        ("password", "sshpa", rf"\bsshpass\s+-p\s?{_WORD}"),
        ("password", "docker|podman|helm|oras|nerdctl",
         rf"\b(?:docker|podman|helm|oras|nerdctl)\b[^\n|;]{{0,40}}?\blogin\b[^\n|;]{{0,200}}?\s-p"
         rf"[ =]?{_WORD}"),
        ("password", "redis-cli|valkey-cli", rf"\b(?:redis|valkey)-cli\b[^\n|;]{{0,200}}?\s-a\s?{_WORD}"),
        ("password", "ldap", rf"\bldap[a-z]+\b[^\n|;]{{0,200}}?\s-w\s?{_WORD}"),
        ("password", "smbcli|rpccli|smbget",
         rf"\b(?:smbclient|rpcclient|smbget)\b"
         rf"[^\n|;]{{0,200}}?\s-U\s?[\"']?[\w.\\-]{{1,64}}%{_WORD}"),
        ("password", "htpasswd", rf"\bhtpasswd\s+-\w*b\w*\s+\S{{1,200}}\s+\S{{1,64}}\s+{_WORD}"),
        ("password", "openssl", rf"\bopenssl\b[^\n|;]{{0,200}}?\s(?:-k\s+|-pass(?:in|out)?\s+[\"']?pass:){_WORD}"),
        ("password", "chpasswd",
         rf"\b(?:echo|printf)\s+[\"']?[\w.-]{{1,64}}:{_WORD}[^\n|]{{0,20}}\|[^\n|]{{0,20}}chpasswd"),
        ("password", "chpasswd",
         r"\bchpasswd\b[^\n|;]{0,40}<<(?:<\s{0,2}|-?\s{0,2}[\"']?\w{1,20}[\"']?\n)[\"']?[\w.-]{1,64}:"
         r"(?P<secret>(?!\[redacted:|[$-])[^\s\"'|;]{3,512})"),
        ("password", "sudo|su -",
         rf"\b(?:echo|printf)\s+(?:-n\s+)?{_WORD}[\"']?\s*\|\s*(?:sudo\s+(?:-\S+\s+){{0,3}}-\w*S|su\b)"),
        ("password", "entified by '|entified by \"|entified by \\|NTIFIED BY '|NTIFIED BY \"|NTIFIED BY \\",
         r"(?i:\bidentified\s+(?:with\s+\w+\s+)?(?:by|as)\s+(?:password\s+)?)\\*[\"'](?P<secret>"
         r"(?!\[redacted:)[^\"'\n]{3,512})"),
        ("password", "machine",
         r"\bmachine\s+\S{1,200}\s+login\s+\S{1,64}\s+password\s+(?P<secret>(?!\[redacted:)\S{3,512})"),
        ("aws_secret_key", "aws_secret", rf"\baws_secret_access_key\s+{_WORD}"),
        ("cookie", "curl",
         r"\bcurl\b(?:(?!\bcurl\b)[^\n|;]){0,300}?\s(?:-b|--cookie)[ =][\"']?[\w.-]{1,64}=(?P<secret>"
         r"(?!\[redacted:)[^\s\"';]{8,512})"),
        ("password", "sqlcmd|mongo|bcp -|svn ",
         rf"\b(?:sqlcmd|mongo(?:sh|dump|restore|import|export)?|bcp|svn)\b"
         rf"[^\n|;]{{0,200}}?\s-[pP]\s{{0,2}}{_WORD}"),
        ("password", "-principal|twine|cqlsh|useradd|mosquitto|zip -P",
         rf"\b(?:(?:az\s+login|twine|cqlsh|useradd)\b[^\n|;]{{0,200}}?\s-p\s{{1,2}}"
         rf"|(?:(?:un)?zip|mosquitto_\w+)\b[^\n|;]{{0,200}}?\s-P\s{{0,2}}){_WORD}"),
        ("password", "ssh-keyg", rf"\bssh-keygen\b[^\n|;]{{0,200}}?\s-[NP]\s{{1,2}}{_WORD}"),
        ("password", "storepas|keypas", rf"\s-(?:store|key|dest|src)(?:store)?pass(?:wd)?\s{{1,2}}{_WORD}"),
        ("password", "rabbitmqc|requirep|wpa_passphrase",
         rf"\b(?:rabbitmqctl\s+(?:add_user|change_password)\s+\S{{1,64}}\s+"
         rf"|requirepass\s+|wpa_passphrase\s+\S{{1,64}}\s+){_WORD}"),
        ("password", "passwd",
         rf"\b(?:echo|printf)\s+(?:-\w\s+)?{_WORD}[^\n|]{{0,140}}\|\s{{0,4}}(?:sudo\s+)?passwd\b"),
        ("password", "lftp", rf"\blftp\b[^\n|;]{{0,80}}?\s-u\s{{1,2}}[\w.-]{{1,64}},{_WORD}"),
        ("secret", "gh secret", rf"\bgh\s+secret\s+set\b[^\n|;]{{0,200}}?\s(?:-b|--body)[ =]{_WORD}"),
        ("password", "freerdp|rdesktop", rf"\b(?:xfreerdp|wfreerdp|rdesktop)\b[^\n|;]{{0,200}}?\s(?:/p:|-p\s){_WORD}"),
        ("password", "To-SecureS|to-securest",
         r"(?i:\bconvertto-securestring\s+(?:-string\s+)?)\\*[\"'](?P<secret>(?!\[redacted:|\$)"
         r"[^\"'\n]{3,512})"),
    ),
}  # fmt: skip
