"""Plant secrets by rules of others, in the notations in which agents meet them, beside texts that hold none.

The forms are those of the plug-ins of detect-secrets (Yelp), read from the installed package when it runs, and those
that vendors document; the notations are those of programming languages, configuration files, headers and commands.
Planted secrets are random and open nothing.
"""

from __future__ import annotations

import hashlib
import re
import re._constants as sre  # type: ignore[import-not-found, unused-ignore]
import re._parser as parser  # type: ignore[import-not-found, unused-ignore]
import string
import uuid
from base64 import b64encode
from collections.abc import Iterator
from random import Random
from typing import Any

from benchmarks.secrets import Planted, filled

# Forms from the documentation of vendors: `<36a>` is 36 letters and digits (`benchmarks.secrets`).
VENDORS = (
    "ATATT3xFfGF0<180w>=<8u>", "ATCTT3xFfGN0<180w>=<8u>", "ATBB<32a>", "dckr_pat_<27w>", "CCIPAT_<22a>_<40h>",
    "bkua_<40h>", "sbp_<40h>", "nfp_<36a>", "figd_<40w>", "lsv2_pt_<32h>_<10h>", "pcsk_<6a>_<63a>", "sk_<48h>",
    "fw_<24a>", "csk-<48l>", "ak-<22a>", "as-<22a>", "tskey-auth-<17a>-<32a>", "sqp_<40h>", "squ_<40h>",
    "access-sandbox-<8h>-<4h>-<4h>-<4h>-<12h>", "pat-na1-<8h>-<4h>-<4h>-<4h>-<12h>", "CFPAT-<43w>",
    "00D<12a>!<96a>", "1//0<60w>", "<32h>-us12", "key-<32l>", "secret_<43a>", "re_<8a>_<24a>", "phx_<43a>",
    "vcp_<56a>", "rnd_<32a>", "e2b_<40h>", "fc-<32h>", "jina_<60w>", "llx-<48a>", "pat<14a>.<64h>", "SK<32h>",
    "waka_<8h>-<4h>-<4h>-<4h>-<12h>", "rzp_live_<14a>", "apify_api_<36a>", "napi_<64l>", "lin_oauth_<64h>",
    "tfp_<59w>", "oy2<43l>", "SCW<17u>", "AKID<32a>", "da2-<26l>", "xsmtpsib-<64h>-<16a>",
    "sk-lf-<8h>-<4h>-<4h>-<4h>-<12h>", "hcaik_<58l>", "essu_<60b>=", "IGQWRN<120w>", "NRJS-<19h>",
    "sb_secret_<31w>", "$2b$12$<53a>", "$6$<16a>$<86a>", "xoxe-1-<146a>", "shppa_<32h>", "glrt-<20w>", "ghs_<36a>",
    "cfut_<40a>", "tgp_v1_<43w>", "mdb_sa_sk_<40w>", "polar_oat_<43a>", "xau_<43a>", "esecret_<26a>", "rpa_<45a>",
    "ucat_<26u>", "alcht_<30a>", "dbtu_<43w>", "retool_<26l>", "m0-<40a>", "snyk_uat.<8h>.<90w>", "vk1.a.<120w>",
    "xaat-<8h>-<4h>-<4h>-<4h>-<12h>", "p.eyJ<60w>.<43w>", "mfa.<84w>", "s.<24a>", "BSA<28w>", "EXO<26l>", "dkea<32h>",
    "2/1204567890123456/1204567890123457:<32h>", "pk_12345678_<32u>", "ctx7sk-<36w>", "AVNS_<24w>", "4/0A<60w>",
    "dp.st.prd.<43a>", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi<40w>.<43w>",
)  # fmt: skip

# A secret is `{}`; what is in front of it says so.
NOTATIONS = (
    'password := "{}"', 'var apiToken string = "{}"', 'const apiKey: string = "{}";', 'let token: &str = "{}";',
    'String password = "{}";', 'char *password = "{}";', 'self.password = "{}"', "openai.api_key = '{}'",
    "spring.datasource.password={}", "helm install --set db.password={}", 'config["password"] = "{}"',
    "os.environ['OPENAI_API_KEY'] = '{}'", "<password>{}</password>", "&lt;password&gt;{}&lt;/password&gt;",
    "password = `{}`", 'password = """{}"""', "password = b'{}'", "token = f'{}'", 'if password == "{}":',
    "password === '{}'", "pass={}", "DB_PASS={}", "SMTP_PASS: {}", "ansible_ssh_pass={}", "pw: {}", "Passwort: {}",
    "Kennwort={}", "contraseña: {}", "password1={}", "new_password_again={}",
    '{{"name": "DB_PASSWORD", "value": "{}"}}', '["--password", "{}"]', '["X-Api-Key", "{}"]',
    "sshpass -p {} ssh u@h", "docker login -u me -p {} r.example", "redis-cli -h c -a {} ping",
    "echo {} | sudo -S ls", "echo 'bob:{}' | chpasswd", "htpasswd -b f bob {}", "openssl enc -k {} -in f",
    "openssl rsa -passin pass:{} -in f", "smbclient -U bob%{} //h/s", "ldapsearch -x -w {} -b dc=x",
    "machine h login bob password {}", "db:5432:shop:bob:{}", "CREATE USER bob IDENTIFIED BY '{}'",
    "ALTER USER bob WITH PASSWORD '{}'", "aws configure set aws_secret_access_key {}",
    "curl -b session={} https://x.example", "curl -u bob:{} https://x.example",
    'curl -H "X-Zendesk-Key: {}" https://x.example', "export API_TOKEN={}", "set API_TOKEN={}",
    "$env:API_TOKEN = '{}'", "-Password {}", "--client-secret={}", "--api-key {}",
    'ConvertTo-SecureString "{}" -AsPlainText -Force', "https://x.example/?api_key={}&page=2",
    "https://bob:{}@x.example/", "Authorization: Bearer {}", "X-Api-Key: {}", "password%3D{}&x=1",
    "%22password%22%3A%22{}%22", '{{\\"password\\": \\"{}\\"}}', '{{\\\\\\"password\\\\\\": \\\\\\"{}\\\\\\"}}',
    "api_key: {}", "api_key: '{}'", "[db]\npassword = {}", "secret=> '{}'", 'api_key <- "{}"',
    'System.setProperty("db.password", "{}")', 'resource "x" {{\n  password = "{}"\n}}', "Pwd={};Server=x",
    "PGPASSWORD={} psql", "mysql -u root -p{} shop", 'client_secret: !!str "{}"', ":password => '{}'",
    "passwd='{}'", 'API_TOKEN ?= "{}"', 'API_TOKEN ::= "{}"', '$apiToken .= "{}"', '$apiToken ??= "{}"',
    "api_token: |\n  {}", "db_password: >-\n    {}", 'let api_token = String::from("{}");', "secret_key_base: {}",
    "mysql -uroot -p'{}' shop", "az login --service-principal -u me -p {}", "twine upload -u me -p {} dist/*",
    "unzip -P {} f.zip", 'ssh-keygen -t rsa -N "{}" -f k', "keytool -storepass {} -list",
    "rabbitmqctl add_user bob {}", "CONFIG SET requirepass {}", 'echo "{}" | passwd --stdin bob', 'psk="{}"',
    "lftp -u bob,{} h", 'gh secret set API_TOKEN --body "{}"', "requests.get(u, auth=('bob', '{}'))",
    "chpasswd <<< 'bob:{}'", "chpasswd <<EOF\nbob:{}\nEOF", "id,name,password\n7,bob,{}\n", "user;password\nbob;{}\n",
    "| user | password |\n| --- | --- |\n| bob | {} |", "user\tpassword\nbob\t{}\n",
    "INSERT INTO users (id, password) VALUES (1, '{}')", "insert into `t` (`token`, `id`) values ('{}', 7), ('x', 8);",
    "<db-password>{}</db-password>", '<password encrypted="no">{}</password>', "пароль: {}", "密码: {}", "hasło={}",
    "echo cGFzc3dvcmQ9 | base64 -d; password={}", "\x1b[1mpassword:\x1b[0m {}", "pass\u200bword={}", "pwdnew={}",
    "https://x.example/v1?key={}", "auth=HTTPBasicAuth('bob', '{}')",
    "PHPSESSID={}", '<entry name="apiToken" value="{}" />',
)  # fmt: skip

SENTENCES = (
    "the token is {}", "401 for key {}", "token - '{}'", "using secret {}", "my api key: {}", "secret ({})",
    "API token → {}", "password was {}", "set the token to {}", 'found credentials "{}"', "access key [{}]",
    "token\n{}", "key = {}", "secret, {}",
)  # fmt: skip

PLACES = (
    "{}", "got {} back", '{{"id": 7, "v": "{}"}}', "Client('{}')", "--x={}", "https://x.example/?k={}&p=1",
    "error at\n{}\nend",
)  # fmt: skip


def forms_of_others(rng: Random, each: int) -> Iterator[Planted]:
    """Random matches of the plug-ins of detect-secrets that know a form."""
    for kind, pattern in detector_patterns():
        for _ in range(each):
            secret = matching(pattern, rng)
            if len(secret) >= 16:
                yield Planted(kind, rng.choice(PLACES).format(secret), secret)


def vendors(rng: Random, each: int) -> Iterator[Planted]:
    """The forms of `VENDORS`."""
    for form in VENDORS:
        for _ in range(each):
            secret = filled(form, rng)
            yield Planted(re.split(r"<|\d", form)[0], rng.choice(PLACES).format(secret), secret)


def detector_patterns() -> Iterator[tuple[str, str]]:
    """Kind and pattern of each plug-in that needs no word next to the secret."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    for kind, plugin in sorted(get_mapping_from_secret_type_to_class().items()):
        for pattern in getattr(plugin, "denylist", ()):
            text = getattr(pattern, "pattern", "")
            # Skip names with quotes, whole addresses, and forms that the plug-in checks further, such as a JWT.
            if text and plugin.__name__ in _WITH_FORM and not text.startswith("https") and ".{" not in text:
                yield kind, text


_WITH_FORM = frozenset(
    f"{each}Detector"
    for each in (
        "AWSKey", "GitHubToken", "GitLabToken", "Mailchimp", "OpenAI", "PypiToken", "SendGrid", "Slack", "SquareOAuth",
        "Stripe", "TwilioKey", "AzureStorageKey", "Artifactory", "DiscordBotToken", "TelegramBotToken",
    )
)  # fmt: skip


def named(rng: Random, each: int) -> Iterator[Planted]:
    for notation in NOTATIONS:
        for _ in range(each):
            secret = filled(rng.choice(("<16a>", "<24a>", "<32h>", "<20a>")), rng)
            yield Planted(notation, notation.format(secret), secret)


def said(rng: Random, each: int) -> Iterator[Planted]:
    for sentence in SENTENCES:
        for _ in range(each):
            secret = filled(rng.choice(("<24a>", "<32a>", "<40l>", "<20a>-<12a>")), rng)
            yield Planted(sentence, sentence.format(secret), secret)


def harmless(rng: Random, each: int) -> Iterator[str]:
    """Texts that look random and are no secrets: hashes, ids, paths, checksums, colours, pictures."""
    for _ in range(each):
        data = rng.randbytes(64)
        sha1, sha256 = hashlib.sha1(data).hexdigest(), hashlib.sha256(data).hexdigest()
        yield f"commit {sha1}"
        yield f"index {sha1[:7]}..{sha1[7:14]} 100644"
        yield f"sha256:{sha256}"
        yield f'"integrity": "sha512-{b64encode(data).decode()}"'
        yield str(uuid.UUID(bytes=data[:16]))
        yield f"data:image/png;base64,{b64encode(data * 3).decode()}"
        yield f"/var/lib/docker/overlay2/{sha256}/merged"
        yield f"color: #{sha1[:6]};"
        yield f"toolu_{sha1[:24]} call_{sha1[:24]} chatcmpl-{sha256[:29]} msg_{sha1[:24]} run-{sha1[:10]} i-{sha1[:17]}"
        yield f"ETag: {sha1[:32]}"
        yield f"https://x.example/a/{sha1}/b.tgz?v={sha1[:8]}"
        yield f"File /usr/lib/python3.11/{sha1[:8]}/mod_{rng.randrange(999)}.py, line {rng.randrange(999)}"


def matching(pattern: str, rng: Random) -> str:
    """A random text that the pattern matches; look-arounds are taken for nothing."""
    return _made(parser.parse(pattern), rng)


_ANY = string.ascii_letters + string.digits


def _made(parsed: Any, rng: Random) -> str:
    text = ""
    for op, value in parsed:
        if op is sre.LITERAL:
            text += chr(value)
        elif op is sre.ANY:
            text += "."  # of a host's name, mostly
        elif op is sre.NOT_LITERAL:
            text += rng.choice(_ANY)
        elif op is sre.IN:
            text += _one_of(value, rng)
        elif op is sre.BRANCH:
            text += _made(rng.choice(value[1]), rng)
        elif op is sre.SUBPATTERN:
            text += _made(value[3], rng)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            least, most, inner = value
            most = min(most, max(least, 24) + 16)
            if list(inner) == [(sre.ANY, None)]:
                inner = parser.parse("[A-Za-z0-9]")
            text += "".join(
                _made(inner, rng) for _ in range(rng.randint(max(least, min(most, 24)), most) if most > 1 else least)
            )
    return text


def _one_of(choices: Any, rng: Random) -> str:
    found = ""
    for op, value in choices:
        if op is sre.LITERAL:
            found += chr(value)
        elif op is sre.RANGE:
            found += "".join(map(chr, range(value[0], value[1] + 1)))
        elif op is sre.CATEGORY:
            found += {sre.CATEGORY_DIGIT: string.digits, sre.CATEGORY_SPACE: " "}.get(value, _ANY)
        elif op is sre.NEGATE:
            return rng.choice(_ANY)
    return rng.choice(found)
