import re
import string
from base64 import b64encode
from random import Random
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.secrets import planted_secrets
from benchmarks.security.corpora import matching
from fleetlore.redact import redact as redaction
from fleetlore.redact.detectors import VENDOR_FORMS
from fleetlore.redact.named_values import FOREIGN
from fleetlore.redact.prefilter import masked_again, uncovered
from fleetlore.redact.redact import KINDS, may_hold_secret, redact, redact_name, stored_name, suspects
from fleetlore.redact.values import redact_value
from tests.cpu import costs_less_than
from tests.rows import for_each

# Written in two parts, so that a scanner of the repository finds no secret in it.
A = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0"  # 40 letters and digits
HEX = "0123456789abcdef"
PEM = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEpAIBAAKCAQEA" + A * 2 + "\nabc=\n-----END RSA PRIVATE " + "KEY-----"

SECRETS: list[tuple[str, str, str]] = [
    # kind, text, what must be gone
    ("password", "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44: Xk9hunter22", "Xk9hunter22"),
    ("password", "p\u0430ssw\u043erd: Xk9hunter22", "Xk9hunter22"),
    ("password", "\U0001d5fd\U0001d5ee\U0001d600\U0001d600: Xk9hunter22", "Xk9hunter22"),
    ("password", "passwords:\n- hunter1\n- 'hunter22'\n", "hunter22"),
    ("password", '<property name="db.password">hunter22</property>', "hunter22"),
    ("password", "credentials are admin and hunter22", "hunter22"),
    ("password", "login: bob:hunter22", "hunter22"),
    ("password", "recovery code: a1b2c-d3e4f", "d3e4f"),
    ("password", "password -> Xk9hunter22", "Xk9hunter22"),
    ("password", "I set the password to Xk9hunter22", "Xk9hunter22"),
    ("password", "password: &anchor hunter", "hunter"),
    ("password", "POST /login user[password]=hunter22&commit=x", "hunter22"),
    ("password", "user%5Bpassword%5D=hunter22&commit=x", "hunter22"),
    ("password", "dbpass=hunter22", "hunter22"),
    ("password", "the password is: Xk9hunter22", "Xk9hunter22"),
    ("password", "passwords:\n  - hunter22", "hunter22"),
    ("password", "password:\n  value: hunter22", "hunter22"),
    ("password", '{"password": {"value": "hunter22"}}', "hunter22"),
    ("password", '<entry key="password">hunter22</entry>', "hunter22"),
    ("password", "<name>password</name><value>hunter22</value>", "hunter22"),
    ("password", " id | password \n----+----------\n  1 | hunter22\n", "hunter22"),
    ("password", "credentials: admin / hunter22", "hunter22"),
    ("password", "jdbc:oracle:thin:bob/hunter22@//host:1521/svc", "hunter22"),
    ("password", "Recovery codes:\na1b2c-d3e4f\n1234 5678\n", "5678"),
    ("password", '{"backup_codes":["a1b2c3d4","e5f6g7h8"]}', "e5f6g7h8"),
    ("password", f'"mnemonic": "{"legal winner " * 5}thank yellow"', "yellow"),
    ("pgpass_line", "*:*:*:bob:hunter22", "hunter22"),
    ("jwk", f'{{"kty":"EC","d":"{A}"}}', A),
    ("digest", f'Digest username="b", nonce="x", response="{HEX * 2}"', HEX),
    ("cookie", "https://x.example/app?sid=" + HEX, HEX),
    ("encoded_secret", "echo " + b64encode(b"password=hunter22").decode() + " | base64 -d", "aHVudGVyMj"),
    ("password", "PASSWORD=Xk9hunter22\nxxd -r -p <<< " + b"Xk9hunter22".hex(), b"hunter22".hex()),
    ("password", "PASSWORD=Xk9hunter22\necho Xk9hunter22 " + b64encode(b"Xk9hunter22").decode(), "hunter22"),
    ("password", "password: " + b64encode(b"Xk9hunter22").decode() + "\npassword: Xk9hunter22", "Xk9hunter22"),
    ("password", "PASS\u200bWORD=hunt\u200ber22", "er22"),
    ("password", "\x1b[1mpassword\x1b[0m=\x1b[31mhunter22\x1b[0m", "hunter22"),
    ("password", "id,name,password,mail\n1,bob,hunter22,b@x.example\n2,eve,Xk9other,e@x.example", "Xk9other"),
    ("password", "| id | password |\n| --- | --- |\n| 1 | hunter22 |", "hunter22"),
    ("password", "id\tdb_password\n1\thunter22\n", "hunter22"),
    ("password", "INSERT INTO users (id, password) VALUES (1, 'hunter22'), (2, crypt('Xk9other', 'md5'))", "Xk9other"),
    ("password", "replace into `u` (`password`,`id`) values ('hunter22', 1);", "hunter22"),
    ("password", "<password>a&b</password>", "a&b"),
    ("password", '<Password type="text">hunter22</Password>', "hunter22"),
    ("password", "<secret>{AQAAABAAA " + A + "}</secret>", A),
    ("password", "chpasswd <<< bob:hunter22", "hunter22"),
    ("password", "sudo chpasswd <<EOF\nbob:hunter22\nEOF", "hunter22"),
    ("password", "pwdnew=hunter22", "hunter22"),
    ("password", "the password is Tr0ub4dor-zebra and works", "Tr0ub4dor"),
    ("password", "das Passwort lautet S3cr3t!pass", "S3cr3t"),
    ("password", "le mot de passe est xK9#mQ2vL8pR.", "xK9#"),
    ("password", "Password \u2014 Tr0ub4dor-zebra", "Tr0ub4dor"),
    ("password", "**Password:** `correcthorse`", "correcthorse"),
    ("password", "**Password**: correcthorse", "correcthorse"),
    *(("password", f"{name}{sign}hunter22", "hunter22") for name in FOREIGN for sign in (": ", "\uff1a", "=")),
    ("password", "\u5bc6\u7801\u662f Tr0ub4dor-zebra", "Tr0ub4dor"),
    ("password", "<td>Password</td><td>hunter22</td>", "hunter22"),
    ("password", "<key>password</key>\n<string>hunter22</string>", "hunter22"),
    ("password", 'name="password"\r\n\r\ncorrecthorse\r\n--x', "correcthorse"),
    ("password", 'body: ["password", "hunter22"]', "hunter22"),
    ("password", 'ds.setPassword("correcthorse")', "correcthorse"),
    ("password", "define('DB_PASSWORD', 'correcthorse');", "correcthorse"),
    ("password", 'new NetworkCredential("ann", "correcthorse")', "correcthorse"),
    ("password", 'variable "db_password" {\n  type = string\n  default = "correcthorse"\n}', "correcthorse"),
    ("password", "az login -u ann -p correcthorse", "correcthorse"),
    ("password", "net user ann correcthorse /add", "correcthorse"),
    ("password", "setx DB_PASSWORD correcthorse", "correcthorse"),
    ("password", "-storepass correcthorse", "correcthorse"),
    ("password", "echo correcthorse | docker login -u ann --password-stdin", "correcthorse"),
    ("password", "echo correcthorse | kinit ann", "correcthorse"),
    ("snowflake_token", "ver:1-hint:1234-" + A, A),
    ("password", "<password><![CDATA[hunter22]]></password>", "hunter22"),
    ("password", "Password for ann: hunter22", "hunter22"),
    ("password", "password%253Dhunter22", "hunter22"),
    ("sas_signature", "https://d1.cloudfront.net/x?Expires=1&Signature=" + A, A),
    ("principal_key", "signs with " + HEX * 4 + ":support", HEX),
    ("putty_key", "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 14\n" + A, A),
    ("cerebras_key", "csk-" + A + A[:8], A),
    ("neon_key", "napi_" + A + A[:24], A),
    ("private_key", (A + A[:24] + "\n") * 3 + "abc=\n-----END RSA PRIVATE " + "KEY-----", A),
    ("asana_token", "2/1204567890123456/1204567890123457:" + "0123456789abcdef" * 2, "0123456789abcdef"),
    ("vault_token", "s." + A[:24], A[:24]),
    ("numbered_token", "got 4711|" + A + " back", A),
    ("vendor_key", "use acmecorp_" + HEX * 3, HEX * 2),
    ("secret", "secret_id = '" + HEX * 2 + "'", HEX),
    ("secret", 'FASTLY_KEY = "' + HEX * 2 + '"', HEX),
    ("secret", "fastlySKey=" + A, A),
    ("secret", "token - 'A1b2C3d4E5f6!G7h8^I9j0'", "A1b2C3d4E5f6"),
    # Characters attached to a mask belong to it, and a value that was masked once is masked each time.
    ("secret", "api_key: " + A[:22] + "?" + A, A[:12]),
    ("secret", "token='" + (plain := "wjXKCFzOWEPRqhTmmbWtVQ") + "' | '" + plain + "'", plain),
    ("password", f'System.setProperty("X_TOKEN", "{A * 5}")', A),
    ("basic_auth", 'curl -u ":d2LkV78zLx!t" https://x.example', "d2LkV78zLx!t"),
    ("basic_auth", 'curl -u "d2LkV78zLx9t:" https://x.example', "d2LkV78zLx9t"),
    ("basic_auth", "curl --user  'bob:hunter22' https://x.example", "hunter22"),
    ("basic_auth", 'curl --user "bob":"hunter22" https://x.example', "hunter22"),
    ("basic_auth", "curl https://x.example \\\n  --user bob:hunter22", "hunter22"),
    ("secret", "secret_key_base: " + A, A),
    ("secret", "api_token: |\n    " + A, A),
    ("secret", "API_TOKEN ?= " + A, A),
    ("password", "mysql -uroot -p'hunter22' db", "hunter22"),
    ("password", "requests.get(url, auth=('bob', 'hunter22'))", "hunter22"),
    ("cookie", "PHPSESSID=" + A, A),
    ("url_password", f"git clone https://{A}@git.example/a/b.git", A),
    # Characters after a vendor's mask and within its quotes belong to it.
    ("password", f"password = 'ghp_{A[:36]}!more-of-it9'", "more-of-it9"),
    ("private_key", f"key:\n{PEM}\nend", "MIIEpAIBAAKCAQEA"),
    ("private_key", PEM.replace("\n", "\\n"), "MIIEpAIBAAKCAQEA"),
    ("private_key", PEM[:110], "MIIEpAIBAAKCAQEA"),
    ("aws_secret_key", '{"SecretAccess' + 'Key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}', "wJalrXUtn"),
    ("github_token", "ghs_" + A[:36], A[:36]),
    ("slack_token", "xapp-1-" + "A01234-" + A[:24], A[:24]),
    ("discord_token", "login('M" + A[:23] + "." + A[:6] + "." + A[:27] + "')", A[:23]),
    ("telegram_token", "bot 123456789:" + A[:35] + " up", A[:35]),
    ("url_password", "psycopg2.connect('postgresql://app:s3cr3tpw@db:5432/x')", "s3cr3tpw"),
    ("url_password", "redis://:hunter2hunter2@10.0.0.1:6379/0", "hunter2"),
    ("url_password", "mongodb+srv://u:pa$word!@cluster0.example.net", "pa$word!"),
    ("bearer_token", "Authorization: Bearer " + A.lower(), A.lower()),
    (
        "basic_auth",
        "Authorization: Basic " + b64encode(b"user:pass1234").decode(),
        b64encode(b"user:pass1234").decode(),
    ),
    ("basic_auth", "curl -s -u admin:hunter2 https://x", "hunter2"),
    ("sas_signature", "https://a.blob.core.windows.net/c?sv=2020&sig=" + A + "%3D", A),
    ("azure_key", "DefaultEndpointsProtocol=https;AccountKey=" + A + A + "==;EndpointSuffix=x", A),
    ("cookie", "Set-Cookie: session=" + A + "; Path=/", A),
    ("password", "PGPASSWORD=correcthorse psql", "correcthorse"),
    ("password", "DB_PASSWORD: 'correct horse'", "correct horse"),
    ("password", '{"user": "x", "password": "correct\\"horse"}', "horse"),
    ("password", '{\\"password\\": \\"correcthorse\\"}', "correcthorse"),
    ("password", "mysqldump --password correcthorse db", "correcthorse"),
    ("password", "mysql -u root -phunter2 db", "hunter2"),
    ("password", "Server=x;Database=y;User Id=z;Password=Corr3ct,Horse;", "Corr3ct"),
    ("password", "login failed, password: hunter2, user: bob", "hunter2"),
    ("password", "password: correcthorse\nuser: bob", "correcthorse"),
    ("password", "connect(user='bob', passwd='correcthorse')", "correcthorse"),
    ("secret", "API_KEY=" + A[:16], A[:16]),
    ("secret", '{"auths": {"r.example": {"auth": "' + A[:24] + '"}}}', A[:24]),
    ("secret", '<add key="ServiceToken" value="' + A[:20] + '" />', A[:20]),
    ("password", '<add key="Password" value="correcthorse" />', "correcthorse"),
    ("auth_header", "Authorization: Token " + A.lower(), A.lower()),
    (
        "kubernetes_secret",
        "kind: Secret\nmetadata:\n  name: x\ndata:\n  user: " + A[:16] + '\n  pw: "' + A[:12] + '"\n',
        A[:12],
    ),
    ("defined_networking_token", "dnkey-" + A[:26] + "-" + A + A[:12], A[:26]),
    ("frameio_token", "fio-u-" + A + A[:24], A),
    ("intra42_secret", "s-s4t2" + "ud-" + HEX * 4, HEX),
    ("mapbox_token", "sk." + "eyJ" + A + A[:20] + "." + A[:22], A),
    ("octopus_key", "API-" + "ABCDEF0123456789ABCDEF0123", "ABCDEF0123"),
    ("scalingo_token", "tk-us-" + A + A[:8], A),
    ("settlemint_token", "sm_pat_" + A[:16], A[:16]),
    ("teams_webhook", "https://x.webhook.office.com/webhookb2/" + A + "@" + A + "/IncomingWebhook/" + A[:32], A),
    ("gitlab_session", "_gitlab_session=" + HEX * 2, HEX),
    ("cloudflare_key", "v1.0-" + HEX + HEX[:8] + "-" + HEX * 9, HEX),
    ("bedrock_key", "bedrock-api-" + "key-YmVkcm9jay5hbWF6b25hd3MuY29t" + A, A),
    ("secret", "X-Api-Key: " + A[:16], A[:16]),
    ("secret", '"client_secret": "' + A[:16] + '"', A[:16]),
    ("secret", "https://x/cb?access_token=" + A[:16] + "&state=1", A[:16]),
    ("secret", "tool --api-key " + A[:16], A[:16]),
    ("secret", "https://s3/x?X-Amz-Signature=" + HEX * 4 + "&y=1", HEX),
]

HARMLESS = [
    '"Resource": "arn:aws:lambda:*:*:function:my-func",',
    "arn:aws:logs:*:*:log-group:/aws/lambda/x:*",
    "cpe:2.3:a:acme:shop:*:*:*:*:*:wordpress:*:*",
    "home = pwd->pw_dir, pw->pw_name, $token->accessTokenIdentifier, token->expirationTimestampUtc",
    '<label for="password">Password:</label><label for="password">Password*</label>',
    '<a href="/reset-password">Reset?</a>',
    '<span class="token">my_func</span>',
    '<option value="token">access_token</option>',
    '<button name="token">new_token</button>',
    "<td>Password</td><td>Email:</td>",
    '{"name": "reset_password", "content": "any text"}',
    "Invalid credentials error: AADSTS50126",
    "Unable to load credentials file: config2.yaml",
    "Last login: 2026-11-30T11:19:41Z",
    "Last login: 11:19:41Z",
    "error recovery code: E1234",
    "recovery code: 0x8004",
    "Recovery codes: generated 10 codes",
    "Hash passwords to argon2id. We chose argon2id for its memory",
    "Migrate passwords to pbkdf2_sha256",
    "Sent a new password to jane42@example.com",
    "services:\n  app:\n    secrets:\n      - db_password_v2\n      - tls_cert_v1\n",
    "passwords:\n  - name: db\n  - name: mail\n",
    "Copy password to clip2board",
    "password:\n  - too_short\n  - no_digit\n",
    "cache_key=" + HEX * 2,
    'publicKey: "' + HEX * 2 + '"',
    "sha256_" + HEX * 3,
    "image@sha256:" + HEX * 4 + ":latest",
    *(f"{name}_{HEX * 3}" for name in ("session", "run", "task", "thread", "agent", "worker", "msg", "req", "user")),
    "the password is required, is base64-encoded and is sha256-hashed",
    "PASS - test_foo1_bar2baz",
    "Password is too short (8 characters)",
    "<td>Password</td><td>Email</td>",
    '"required": ["password", "email"]',
    "net user ann /add",
    "password \u2014 see section 4.2b",
    "row 4 | aVeryLongNameOfSomethingElseThatIsNoToken",
    "Unexpected token '(items[0].name_1)', expected a name",
    "curl -u bob https://x.example",
    "",
    "exit code 1",
    "Usage(input_tokens=1_000_000, output_tokens=1_000_000)",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "123e4567-e89b-12d3-a456-426614174000",
    "/usr/lib/python3.11/site-packages/requests/sessions.py:587",
    "cat: /etc/passwd: Permission denied",
    "/etc/passwd:12:root:x:0:0",
    "SyntaxError: Unexpected token: < in JSON at position 0",
    "error: invalid token: unexpected end of input",
    "KeyError: 'password'",
    "KeyError: 'api_key'",
    "Error: password: field required",
    'FATAL: password authentication failed for user "app"',
    "the api key is missing",
    "password=None token=null secret=${SECRET} api_key=$API_KEY",
    "password: <your password>",
    "password = os.environ['PW']",
    "token = get_token(user)",
    "def login(password: str, token: str | None = None) -> bool:",
    "PWD=/root/project OLDPWD=/tmp",
    "max_tokens=4096 tokens: 12345 token_type=bearer",
    "Bearer authentication required",
    "basic authentication is disabled",
    "Basic usage: run the tool",
    "basic \u212aelvin8s \u017follows",
    "https://example.com/a/b?page=2#top",
    "git@github.com:owner/repo.git",
    "ssh user@host:22",
    "http://localhost:8080/@scope/package",
    "mailto: someone@example.com",
    "sk-learn-contrib-package-name-0-24-1 and task-runner-for-projects",
    "Asia/Tokyo AKIA eyJ ghp_ sk- SG. AIza",
    "the monkey=banana keyboard: qwerty",
    "-----BEGIN CERTIFICATE-----",
    'if "-----BEGIN PRIVATE KEY-----" in text: pass',
    "3 passed, 1 failed in 0.12s",
    "docker run -p 8080:80 nginx",
    "curl -u https://example.com",
    "Cookie: not set",
    "python --token-file x --password-stdin",
    "find / -type d -name mysql -print",
    "bash: line 1: pwd: -p: invalid option",
    "author: 12 authors, authority=none, auth: required",
    "kind: Deployment\nmetadata:\n  name: web",
    "ModuleNotFoundError: No module named 'secrets_manager'",
]


@for_each("kind, text, gone", *SECRETS)
def test_each_secret_is_masked_and_named(kind: str, text: str, gone: str) -> None:
    masked = redact(text)
    assert gone not in masked
    assert f"[redacted:{kind}]" in masked
    assert redact(masked) == masked
    assert may_hold_secret([orjson.dumps(text)]) == [0]


PLANTED = list(planted_secrets(Random(3), 8))


@for_each("kind", *sorted({each.kind for each in PLANTED}))
def test_planted_secrets_are_masked(kind: str) -> None:
    for planted in PLANTED:
        if planted.kind == kind:
            masked = redact(planted.text)
            assert not planted.is_left_in(masked), planted
            assert redact(masked) == masked
            assert suspects([planted.text]) == [0]
            assert may_hold_secret([orjson.dumps(planted.text)]) == [0]


def test_a_key_behind_a_letter_of_another_script_is_masked() -> None:
    forms = [pattern for rows in VENDOR_FORMS.values() for *_, pattern in rows if pattern.startswith(r"\b")]
    made = [key for each in forms if (key := matching(each, Random(1))) and not re.search(r"\s", key)]
    keys = [key for key in made if key not in redact(f"a {key} b")]
    assert len(keys) > 0.9 * len(made) > 40
    keys += ["AKIAQ3EGRJ7PLMXW2ZTB", "sk_live_" + A[:24], f"xoxb-123456789012-123456789012-{A[:24]}", f"hf_{A[:34]}"]
    assert [key for key in keys for text in (f"密钥{key} 末", f"ключ{key} да") if key in redact(text)] == []


def test_every_kind_has_an_example() -> None:
    rng = Random(1)
    vendors = [form for rows in VENDOR_FORMS.values() for form in rows]
    examples = [matching(pattern, rng) for _, _, pattern in vendors]
    known = {kind for kind, *_ in SECRETS} | {kind for (kind, *_), text in zip(vendors, examples, strict=True) if text}
    masked = "".join(redact(each.text) for each in PLANTED)
    assert known | set(re.findall(r"\[redacted:(\w+)\]", masked)) == KINDS
    assert len(KINDS) >= 20


@for_each("text", *HARMLESS)
def test_harmless_text_is_unchanged(text: str) -> None:
    assert redact(text) == text


@for_each("kind, text, gone", *SECRETS)
def test_secrets_inside_a_long_text_are_found(kind: str, text: str, gone: str) -> None:
    masked = redact("line of output, nothing in it\n" * 200 + text + "\n" + "more of it\n" * 200)
    assert gone not in masked


@given(
    st.text(alphabet=string.printable, max_size=200)
    | st.lists(st.sampled_from([text for _, text, _ in SECRETS] + HARMLESS), max_size=6).map("\n".join)
)
def test_any_mixture_is_idempotent(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


NAMES = st.lists(st.sampled_from([text for _, text, _ in SECRETS if len(text) <= 256] + ["eve", ":", "password"]))


@given(NAMES.map("".join), NAMES.map("".join))
@example("acmecorp_" + HEX * 3, "acmecorp_" + "0" + HEX * 3)
@example("eve:" + SECRETS[0][1], "eve:password=hunter22")
def test_names_and_principals_stay_distinct_when_their_secrets_are_masked(name: str, other: str) -> None:
    masked = redact_name(name)
    assert redact(masked) == masked and (name == other or masked != redact_name(other))
    principal = name.partition(":")[0]
    kept = ":" in name and len(principal) <= 64 and redact(principal) == principal
    assert (masked.partition(":")[0] == principal) == kept


@for_each("name", SECRETS[0][1], "job-" + SECRETS[0][1], "eve:" + SECRETS[0][1])
def test_a_part_of_a_session_is_found_by_the_session_s_masked_name(name: str) -> None:
    assert stored_name(f"{name}.0123456789ab") == f"{stored_name(name)}.0123456789ab" != f"{name}.0123456789ab"
    assert stored_name(name + ".0123456789ab.ba9876543210").startswith(stored_name(name))


# Private keys of several lines, printed and cut off by a tool.
MANIFEST = (
    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\ndata:\n  user: YWRtaW4xMjM0\n  pass: aHVudGVyMmh1bnRlcjI=\n"
)
SORTED = (
    "apiVersion: v1\ndata:\n  user: YWRtaW4xMjM0\nkind: Secret\nmetadata:\n  name: a\nstringData:\n  b: hunter2hunter\n"
)
KEY_FILE = "-----BEGIN RSA PRIVATE " + "KEY-----\n" + f"{A}{A}\n" * 3 + "abc=\n-----END RSA PRIVATE " + "KEY-----\n"
blocks = st.sampled_from([MANIFEST, SORTED, KEY_FILE, "kind: Secret\n", "data:\n", *[text for _, text, _ in SECRETS]])
cut = st.builds(lambda text, start, end: text[start : start + end], blocks, st.integers(0, 80), st.integers(0, 400))


@given(st.lists(st.tuples(blocks | cut, st.sampled_from(["\n", "\n---\n", " ", "\n\n  "])), max_size=5))
@example([(MANIFEST, "\n"), (MANIFEST[14:], "\n")])
@example([("mysql -u root -phun", " "), ("ysql -u root -phun", "\n")])
def test_what_is_cut_off_or_repeated_is_masked_once(parts: list[tuple[str, str]]) -> None:
    once = redact("".join(text + end for text, end in parts))
    assert redact(once) == once


def test_values_of_a_manifest_are_masked_in_any_order() -> None:
    for text in (MANIFEST, SORTED, MANIFEST + "---\n" + SORTED):
        masked = redact(text)
        assert not any(value in masked for value in ("YWRtaW4xMjM0", "aHVudGVyMmh1bnRlcjI", "hunter2hunter"))
        assert "name: a" in masked


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_a_value_stays_json(value: Any) -> None:
    orjson.dumps(redact_value(value), option=orjson.OPT_NON_STR_KEYS)


# Names of secrets in odd cases (a long s, a Kelvin sign, an i without a dot and a capital one with it), separators
# before their values, and values.
said = st.lists(
    st.sampled_from(
        [text for _, text, _ in SECRETS]
        + HARMLESS
        + [
            "password", "Passwords", "PASSPHRASE", "pas\u017fcode", "pwd", "to\u212aen", "\u017fecret", "api key",
            "API_KEY",
        ]
        + [
            "x-amz-signature", "accountKey", "pr\u0131vate_key", "S\u0130GNING-KEY", "secret_access_key",
            "Authorization", "Cookie", "bearer", "BASIC", "curl", "mysql",
        ]
        + list("\\\"' :=>-\n\t\x0b\x1c\x85\u2003@/")
        + [": ", "--", "-----", " -u", " -p", "\\\\", '\\"']
        + [
            "hunter22",
            A[:16],
            "dXNlcjpwYXNz",
            "dXNlcjpwYXN\u017f",
            "dXNlcjpwYXNzYQ==",
            "sid=" + A[:12],
            "the",
            "é😀",
            "x" * 600,
        ]
    ),
    max_size=8,
).map("".join)  # fmt: skip


@given(said)
@example("x" * 600 + "api key\u2003= hunter22secret9")
@example("x" * 600 + "key\u2003= hunter22")
@example("pwdnew=hunter22")
@example("apikeyvalue=hunter22secret9")
@example("_authold=hunter22secret9")
def test_no_gate_keeps_a_rule_from_what_it_would_mask(text: str) -> None:
    masked = text = uncovered(text)
    known: dict[str, str] = {}
    forms = [rule for *_, rules in redaction._FORMS for rule in rules]
    for rule in (*forms, *(rule for _, rule in redaction._BY_SHAPE), *redaction._NAMED):
        masked = rule.pattern.sub(redaction._noting(rule, known), masked)
    masked = masked_again(masked, known)
    assert redact(text) == masked
    assert masked == text or suspects(["plain", text]) == [1]


@given(said, said)
@example("", 'name="password"\r\n\r\ncorrecthorse\r\n--x')
def test_no_secret_passes_unsuspected(name: str, text: str) -> None:
    for value in (
        text,
        {name: text},
        {name: 123456},
        [{"x": {name: [text]}}],
        {"json": orjson.dumps({name: text}).decode()},
    ):
        json = orjson.dumps(value)
        if redact_value(value) != value:
            assert may_hold_secret([json]) == [0]


def test_an_ordinary_mention_of_a_secret_costs_no_second_look() -> None:
    for text in (
        "KeyError: 'x'",
        "PRIMARY KEY (id)",
        "sorted(x, key=len)",
        "Basic Authentication",
        "12 passed",
        "keyboard",
        "a token was expected",
        "the secretary",
    ):
        assert not may_hold_secret([orjson.dumps(text)])


def test_a_value_under_a_secret_name_is_masked_at_any_depth() -> None:
    value = {"config": [{"db": {"password": "x y z", "pin": 5}, "apiKey": A[:16], "PWD": "/root", "token": "the"}]}
    assert redact_value(value) == {
        "config": [
            {
                "db": {"password": "[redacted:password]", "pin": 5},
                "apiKey": "[redacted:secret]",
                "PWD": "/root",
                "token": "the",
            }
        ]
    }
    assert redact_value({"password": 123456}) == {"password": "[redacted:password]"}


@for_each("value",
    {"password": {"current": {"value": "hunter22"}}}, {"password": [[{"value": "hunter22"}]]},
    {"name": "password", "default": "hunter22"}, {"Key": "DB_PASSWORD", "Value": "hunter22"},
    {"name": "password", "value": {"string": "hunter22"}}, {"p\u0430ssw\u043erd": "hunter22"},
)  # fmt: skip
def test_a_value_far_from_its_name_is_masked(value: Any) -> None:
    assert "hunter22" not in str(redact_value(value))
    assert may_hold_secret([orjson.dumps(value)]) == [0]


@for_each("value",
    {"password": [{"message": "This password is too common.", "code": "password_too_common"}]},
    {"password": {"allOf": [{"$ref": "#/components/schemas/Password"}]}},
    {"name": "reset_password", "content": "def reset(): ..."}, {"label": "Weak passwords", "value": 17},
    {"name": "api_key", "value": {"$ref": "keys/mail2024x"}},
)  # fmt: skip
def test_a_structure_that_describes_a_secret_is_unchanged(value: Any) -> None:
    assert redact_value(value) == value


@for_each(
    "text", "\uff21\uff22\uff23\u5546\u4e8b password: hunter22 \uff21", "id | password\n1 | hunter22\n\na | or b2c3d4"
)
def test_what_stands_beside_a_secret_stays_as_it_was(text: str) -> None:
    assert redact(text) == text.replace("hunter22", "[redacted:password]")


@for_each("text", "../" * 26 + "!", "kind: data:" + " a: xaaaaaaax" * 16 + " Secret")
def test_a_short_text_under_a_secret_name_takes_no_time(text: str) -> None:
    assert costs_less_than(0.1, lambda: redact_value({"password": text, "note": text}))


@for_each("begun", "passwd | x\nprintf -a ", "password=x1y2z3 -p |\npassword")
def test_backslashes_take_no_time(begun: str) -> None:
    assert costs_less_than(0.1, lambda: redact(begun + "\\" * 8_000))


def test_the_argument_is_not_changed() -> None:
    value = {"password": "hunter22", "list": ["ghp_" + A[:36]]}
    redact_value(value)
    assert value["list"] == ["ghp_" + A[:36]]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_strange_values_do_not_break_the_agent() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    redact_value(cycle)
    assert redact_value(Unprintable()) == "<unprintable Unprintable>"
    assert redact_value({1: (2, {3})}) == {"1": [2, [3]]}
    assert redact_value(10**30) == str(10**30)
    assert redact_value(b"password=hunter22") == "password=[redacted:password]"
