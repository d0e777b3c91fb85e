"""Plant secrets in texts, made up from the forms that vendors document: a corpus to try redaction on.

Planted secrets are random and open nothing. The forms are written down here a second time, apart from the table that
masks them, so that a mistake in the one shows against the other.
"""

from __future__ import annotations

import re
import string
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

__all__ = ["Planted", "filled", "planted_secrets"]

_WINDOW = 12

_ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "h": "0123456789abcdef",
    "d": string.digits,
    "w": string.ascii_letters + string.digits + "-_",
    "b": string.ascii_letters + string.digits + "+/",
    "7": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
}
_PART = re.compile(r"<(\d+)([alhudwb7])>")

# `<36a>` means 36 letters and digits; see the alphabets.
_TOKENS: dict[str, tuple[str, ...]] = {
    "1Password": ("ops_eyJ<250b>", "A3-<6u>-<11u>-<5u>-<5u>-<5u>"),
    "Adobe": ("p8e-<32l>",),
    "age": ("AGE-SECRET-KEY-1<58u>",),
    "Alibaba": ("LTAI<20a>",),
    "Anthropic": ("sk-ant-api03-<93w>AA", "sk-ant-admin01-<93w>AA"),
    "Artifactory": ("AKCp<69a>", "cmVmd<59a>"),
    "AWS": ("AKIA<167>", "ASIA<167>", "ABSK<120b>="),
    "Azure": ("<3a>8Q~<34a>",),
    "Brevo": ("xkeysib-<64h>-<16a>",),
    "ClickHouse": ("4b1d<38a>",),
    "Clojars": ("CLOJARS_<60l>",),
    "Databricks": ("dapi<32h>",),
    "DigitalOcean": ("dop_v1_<64h>", "doo_v1_<64h>", "dor_v1_<64h>"),
    "Doppler": ("dp.pt.<43a>",),
    "Dropbox": ("sl.B<134w>",),
    "Duffel": ("duffel_test_<43w>",),
    "Dynatrace": ("dt0c01.<24u>.<64u>",),
    "EasyPost": ("EZAK<54a>", "EZTK<54a>"),
    "Facebook": ("EAAC<150a>",),
    "Flutterwave": ("FLWSECK_TEST-<32h>-X",),
    "Fly": ("fo1_<43w>", "fm2_<120b>"),
    "GitHub": ("ghp_<36a>", "gho_<36a>", "ghu_<36a>", "ghs_<36a>", "ghr_<36a>", "github_pat_<22a>_<59a>"),
    "GitLab": (
        "glpat-<20w>",
        "gldt-<20w>",
        "glrt-<20w>",
        "glptt-<40h>",
        "gloas-<64w>",
        "glffct-<20w>",
        "GR1348941<20w>",
    ),
    "Google": ("AIza<35w>", "GOCSPX-<28w>", "ya29.<80w>"),
    "Grafana": ("glsa_<32a>_<8h>", "glc_<60b>"),
    "Groq": ("gsk_<52a>",),
    "Harness": ("pat.<22w>.<24a>.<20a>",),
    "Heroku": ("HRKU-AA<58w>",),
    "Hugging Face": ("hf_<34a>", "api_org_<34a>"),
    "Infracost": ("ico-<32a>",),
    "JWT": ("eyJ<30a>.eyJ<60w>.<43w>",),
    "Linear": ("lin_api_<40a>",),
    "MaxMind": ("<6a>_<29a>_mmk",),
    "New Relic": ("NRAK-<27u>",),
    "Notion": ("ntn_<11d><35a>",),
    "npm": ("npm_<36a>",),
    "NVIDIA": ("nvapi-<64w>",),
    "OpenAI": ("sk-<48a>", "sk-proj-<120w>", "sk-svcacct-<120w>"),
    "OpenShift": ("sha256~<43w>",),
    "Perplexity": ("pplx-<48a>",),
    "PlanetScale": ("pscale_tkn_<43w>", "pscale_pw_<43w>"),
    "Postman": ("PMAK-<24h>-<34h>",),
    "Prefect": ("pnu_<36a>",),
    "Pulumi": ("pul-<40h>",),
    "PyPI": ("pypi-AgEIcHlwaS5vcmc<90w>",),
    "ReadMe": ("rdme_<70l>",),
    "Replicate": ("r8_<37a>",),
    "RubyGems": ("rubygems_<48h>",),
    "SendGrid": ("SG.<22w>.<43w>",),
    "Sentry": ("sntryu_<64h>",),
    "Shippo": ("shippo_live_<40h>",),
    "Shopify": ("shpat_<32h>", "shpss_<32h>"),
    "Slack": ("xoxb-<12d>-<12d>-<24a>", "xoxp-<12d>-<12d>-<12d>-<32h>", "xapp-1-<11u>-<13d>-<64h>"),
    "Sourcegraph": ("sgp_<16h>_<40h>",),
    "Square": ("sq0atp-<22w>", "EAAA<60w>"),
    "Stripe": ("sk_live_<24a>", "rk_live_<24a>", "sk_test_<99a>", "whsec_<32a>"),
    "Tavily": ("tvly-<32a>",),
    "Telegram": ("<9d>:AA<33w>",),
    "Terraform": ("<14a>.atlasv1.<67w>",),
    "Vault": ("hvs.<95w>", "hvb.<140w>"),
    "xAI": ("xai-<80a>",),
    "Yandex": ("AQVN<36w>",),
}
# Such a token is met here. `{}`. Only the last ones announce a secret.
_PLACES = (
    "request failed: {} was rejected (HTTP 401)", '{{"id": 7, "value": "{}", "ok": false}}',
    "https://api.example.com/v1/items?k={}&page=2", "client = Client('{}')",
    "  File \"app.py\", line 12, in connect\n    raise AuthError('{}')\nAuthError", "+ deploy {} --region eu-west-1",
    "export SERVICE_TOKEN={}", "Authorization: Bearer {}", "api_key: {}\nregion: eu",
)  # fmt: skip
# Secrets without a form, known by the words next to them.
_WORDS: dict[str, tuple[str, ...]] = {
    "API key": (
        '"apiKey": "{<32h>}"',
        "X-API-Key: {<40a>}",
        "curl -H 'x-api-key: {<32a>}' https://x.example",
        "--api-key {<24a>}",
    ),
    "authorization header": ("Authorization: Token {<40h>}", "'Authorization': 'ApiKey {<44a>}'"),
    "AWS secret": ("AWS_SECRET_ACCESS_KEY={<40b>}", 'aws_secret_access_key = "{<40b>}"'),
    "Azure key": ("AccountName=x;AccountKey={<86b>}==;EndpointSuffix=core.windows.net", "SharedAccessKey={<43b>}="),
    "client secret": ('"client_secret": "{<32w>}"', "client_secret={<40a>}&grant_type=client_credentials"),
    "connection string": (
        "postgresql://app:{<16a>}@db.internal:5432/orders",
        "could not connect to mongodb+srv://svc:{<20w>}@cluster0.example.net/test",
        "redis://:{<24h>}@cache:6379/0",
        "amqp://guest:{<12a>}@rabbit:5672//",
    ),
    "cookie": ("Cookie: sessionid={<32l>}; theme=dark", "Set-Cookie: sid={<40w>}; HttpOnly"),
    "database password": (
        "PGPASSWORD={<14a>} psql -h db",
        "Server=db;User Id=sa;Password={<16a>};",
        "mysql -u root -p{<12a>} shop",
    ),
    "encryption key": ("ENCRYPTION_KEY={<44b>}", '"signing_key": "{<64h>}"'),
    "password": ("password={<12a>}", '"password": "{<16w>}"', "login --password {<12a>}", "passwd: '{<14a>}'"),
    "refresh token": ('"refresh_token": "{<60w>}"', "access_token={<48w>}&token_type=bearer"),
    "SAS signature": ("https://x.blob.core.windows.net/c/f?sv=2024-01-01&sig={<43a>}%3D",),
    "webhook": (
        "https://hooks.slack.com/services/{T<8u>/B<8u>/<24a>}",
        "https://discord.com/api/webhooks/<18d>/{<68w>}",
    ),
}


@dataclass(frozen=True, slots=True)
class Planted:
    """`text` with `secret` in it."""

    kind: str
    text: str
    secret: str

    def is_left_in(self, masked: str) -> bool:
        """Whether a part of the secret that somebody could use is still there: twelve characters in a row."""
        if len(self.secret) <= _WINDOW:
            return self.secret in masked
        return any(self.secret[start : start + _WINDOW] in masked for start in range(len(self.secret) - _WINDOW + 1))

    def is_found(self, values: Sequence[str]) -> bool:
        """Whether one of the values is the secret, a part of it that somebody could use, or more than it."""
        return any(self.secret in value or (len(value) >= _WINDOW and value in self.secret) for value in values)


def planted_secrets(rng: Random, each: int) -> Iterator[Planted]:
    """`each` texts of every kind."""
    for kind, forms in _TOKENS.items():
        for number in range(each):
            secret = filled(forms[number % len(forms)], rng)
            yield Planted(kind, rng.choice(_PLACES).format(secret), secret)
    for kind, texts in _WORDS.items():
        for number in range(each):
            before, _, rest = filled(texts[number % len(texts)], rng).partition("{")
            secret, _, after = rest.partition("}")
            yield Planted(kind, f"{before}{secret}{after}", secret)
    for _ in range(each):
        secret = b64encode(filled("svc:<14a>", rng).encode()).decode()
        yield Planted("basic credentials", f"Authorization: Basic {secret}", secret)
        body = "\n".join(filled("<64b>", rng) for _ in range(rng.randint(4, 12)))
        name = rng.choice(("RSA ", "EC ", "OPENSSH ", ""))
        # In two parts, so that a scanner of repositories finds no key in this file.
        pem = f"-----BEGIN {name}PRIVATE " + f"KEY-----\n{body}\n-----END {name}PRIVATE " + "KEY-----"
        yield Planted("private key", f"error in key file:\n{pem}\n", body)


def filled(form: str, rng: Random) -> str:
    return _PART.sub(lambda part: "".join(rng.choices(_ALPHABETS[part[2]], k=int(part[1]))), form)
