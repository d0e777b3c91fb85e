"""Mask secrets by their position: an argument of a command or function, or a column of a table, CSV or SQL insert."""

import re

from fleetlore.redact.named_values import KEYS, NAME_IN_A_LIST, PASSWORDS, REDACTED, Rule, is_secret, mask_of

__all__ = ["ARGUMENTS", "COLUMN_RULES", "Row"]

# Kind, needles separated by `|`, and pattern.
Row = tuple[str, str, str]

# A command-line word, quoted or not.
_WORD = r"\\*+[\"']?(?P<secret>(?!\[redacted:|[$-])[^\s\"'|;]{3,512})"
# A word with letters and digits, where other words may stand as well.
_MIXED = (
    r"\\*+[\"']?(?P<secret>(?!\[redacted:|[$<{%*-])(?=[^\s\"'|;/@\d]{0,64}+\d)(?=[^\s\"'|;/@A-Za-z]{0,64}+[A-Za-z])"
    r"[^\s\"'|;/@\\]{6,512})"
)
# A value in quotes, and a name of one.
_QUOTED = r"\\*+[\"'](?P<secret>(?!\[redacted:|[$<{%*])[^\s\"'\\]{3,512})"
# The same with a digit, and with a capital letter or a sign.
_STRONG = (
    r"\\*+[\"'](?P<secret>(?!\[redacted:|[$<{%*])(?=[^\"'\d]{0,64}+\d)(?=[^\"'a-z]{0,64}+[a-z])"
    r"(?=[a-z\d_]{0,64}+[^a-z\d_\"'])[^\s\"'\\]{6,512})"
)
_NAME = "(?i:password|passwd|secret|token|api[._-]?key)"
# From a command's name to one of its options.
_UP_TO = r"\b[^\n|;]{0,200}?\s"


def _option(needles: str, commands: str, option: str) -> Row:
    return "password", needles, rf"\b(?:{commands}){_UP_TO}{option}{_WORD}"


# By a character that each match contains.
ARGUMENTS: dict[str, tuple[Row, ...]] = {
    " -": (
        _option("sshpa", "sshpass", r"-p\s?"),
        _option("docker|podman|helm|oras|nerdctl", r"(?:docker|podman|helm|oras|nerdctl)\b[^\n|;]{0,40}?\blogin",
                r"-p[ =]?"),
        _option("redis-cli|valkey-cli", "(?:redis|valkey)-cli", r"-a\s?"),
        _option("ldap", "ldap[a-z]{1,20}+", r"-w\s?"),
        _option("snmp", r"snmp\w{1,20}+", r"-c\s?"),
        _option("openssl", "openssl", r"(?:-k\s+|-pass(?:in|out)?\s+[\"']?pass:|passwd\s+(?:-\w+\s+){0,3})"),
        _option("sqlcmd|mongo|bcp |svn |isql|tsql|p4 -P",
                "sqlcmd|mongo(?:sh|dump|restore|import|export)?|bcp|svn|isql|tsql|p4", r"-[pP]\s{0,2}"),
        _option("az login|-principal|twine|cqlsh|useradd|usermod|evil-winrm|cypher-sh|beel|ncftp|smbmap|crackmap|nxc s"
                "|oc login|cf login|ibmcloud|sendxmpp|veracrypt|certut|psex",
                r"(?:az|oc|cf|ibmcloud)\s+login|twine|cqlsh|user(?:add|mod)|evil-winrm|cypher-shell"
                r"|beeline|ncftp\w{0,20}+|smbmap|crackmapexec|nxc|sendxmpp|veracrypt|certutil|psexec", r"-p\s{1,2}"),
        _option("zip -P|mosquitto", r"(?:un)?zip|mosquitto_\w{1,20}+", r"-P\s{0,2}"),
        _option("7z x|7z a|7z e|7za |unrar| -hp", "7za?|rar|unrar", "-h?p"),
        _option("ssh-keyg", "ssh-keygen", r"-[NP]\s{1,2}"),
        _option("lftp", "lftp", r"-u\s{1,2}[\w.-]{1,64},"),
        _option("smbcli|rpccli|smbget", "smbclient|rpcclient|smbget", r"-U\s?[\"']?[\w.\\-]{1,64}%"),
        _option("htpasswd|ito_passwd", "htpasswd|mosquitto_passwd", r"-\w{0,8}b\w{0,8}\s+\S{1,200}\s+\S{1,64}\s+"),
        _option("gh secret", r"gh\s+secret\s+set", "(?:-b|--body)[ =]"),
        ("password", "http -a|https -a|jar -au",
         rf"(?:\bhttps?\s+-a|\.jar\s+-auth)\s{{1,2}}[\"']?[\w.@-]{{1,64}}:{_WORD}"),
        ("cookie", "curl",
         r"\bcurl\b(?:(?!\bcurl\b)[^\n|;]){0,300}?\s(?:-b|--cookie)[ =][\"']?[\w.-]{1,64}=(?P<secret>"
         r"(?!\[redacted:)[^\s\"';]{8,512})"),
    ),
    "|": (
        ("password", "chpasswd",
         rf"\b(?:echo|printf)\s+[\"']?[\w.-]{{1,64}}:{_WORD}[^\n|]{{0,20}}\|[^\n|]{{0,20}}chpasswd"),
        ("password", "sudo|su -|kinit|password-stdin|cryptset|hrase-fd",
         rf"\b(?:echo|printf)\s+(?:-n\s+|[\"']?%s\S{{0,4}}\s+)?{_WORD}[\"']?\s*\|\s*(?:sudo\s+(?:-\S+\s+){{0,3}}-\w*S"
         r"|su\b|kinit\b|cryptsetup\b|gpg\b[^\n|;]{0,80}-fd\s|\w{1,20}\s+login\b[^\n|;]{0,80}--password-stdin)"),
        ("password", "passwd",
         rf"\b(?:echo|printf)\s+(?:-\w\s+)?{_WORD[:-1]}+)[^\n|]{{0,140}}\|\s{{0,4}}(?:sudo\s+)?(?:smb)?passwd\b"),
    ),
    " ": (
        ("password", "storepas|keypas", rf"(?<![\w-])-(?:store|key|dest|src)(?:store)?pass(?:wd)?\s{{1,2}}{_WORD}"),
        _option("freerdp|rdesktop", "[xw]freerdp|rdesktop", r"(?:/p:|-p\s)"),
        ("password", "/rp |-pw |-passwd |/passw|/pass:|signtoo",
         rf"(?<=\s)(?:-pw|-passwd|/(?:p|pw|pass(?:word)?|rp))(?:[:=]|\s{{1,2}}){_MIXED}"),
        ("password", "net user|setx",
         rf"\b(?:net\s+user\s+[^\s/]\S{{0,64}}|setx\s+\w{{0,40}}{_NAME}\w{{0,20}})\s+(?!/){_WORD}"),
        ("password", "/user:", rf"\bnet\s+use\s+(?:(?:\w:|\\+\S{{1,200}}|/\S{{1,64}})\s+){{1,3}}(?![/\\]){_WORD}"),
        ("password", "sqlpl|impdp|expdp|psex|miex|smbex|secretsdum|mssqlcl",
         r"\b(?:sqlplus|impdp|expdp|\w{1,20}exec(?:\.py)?|secretsdump\S{0,20}+|mssqlclient\S{0,20}+)\s[^\n|;]{0,80}?"
         rf"(?<=\s)[\w.$-]{{1,64}}(?:/[\w.$-]{{1,64}}:|/){_MIXED}(?=[\s@\"'\\]|\Z)"),
        ("password", "db2 ", rf"\bdb2\s(?i:[\"']?connect\s+to\s+\S+\s+user\s+\S{{1,64}}\s+using\s+){_WORD}"),
        ("password", "rabbitmqc|requirep|wpa_passphrase|rclone|input_pw|.logon",
         rf"(?:\brabbitmqctl\s+(?:add_user|change_password)\s+\S{{1,64}}\s+|\brequirepass\s+|\binput_pw\s+"
         rf"|\bwpa_passphrase\s+\S{{1,64}}\s+|\brclone\s+obscure\s+"
         rf"|\.logon\s+[^\s,]{{1,128}},){_WORD}"),
        ("password", "ble secret|ble passwo", rf"\benable\s+(?:secret|password)\s+\d\s+{_WORD}"),
        ("password", "chpasswd",
         r"\bchpasswd\b[^\n|;]{0,40}<<(?:<\s{0,2}|-?\s{0,2}[\"']?\w{1,20}[\"']?\n)[\"']?[\w.-]{1,64}:"
         r"(?P<secret>(?!\[redacted:|[$-])[^\s\"'|;]{3,512})"),
        ("password", "<<<",
         rf"(?:--password-stdin|\bsudo\s[^\n|;]{{0,40}}?-S|\bcryptsetup|\bpasswd)\b[^\n|;]{{0,120}}?<<<\s?{_WORD}"),
        ("password", "entified by '|entified by \"|entified by \\|NTIFIED BY '|NTIFIED BY \"|NTIFIED BY \\",
         r"(?i:\bidentified\s+(?:with\s+\w{1,40}\s+)?(?:by|as)\s+(?:password\s+)?)\\*+[\"'](?P<secret>"
         r"(?!\[redacted:)[^\"'\n]{3,512})"),
        ("password", "SSWORD FO",
         rf"(?i:\bset\s+password\s+for\s+)\S{{1,80}}\s?=\s?(?i:password\()?{_QUOTED}"),
        ("password", "sp_addlog", rf"\bsp_addlogin\s+N?'[^'\n]{{1,128}}',\s?N?{_QUOTED}"),
        ("password", "SSWORD = N'|ssword = N'|SSWORD=N'|ssword=N'", rf"(?i:password)\s?=\s?N{_QUOTED}"),
        ("password", "machine",
         r"\bmachine\s+\S{1,200}\s+login\s+\S{1,64}\s+password\s+(?P<secret>(?!\[redacted:)\S{3,512})"),
        ("password", "PASS ", rf"\bUSER\s+\S{{1,64}}(?:[\r\n]|\\[rn])+(?:quote\s+)?PASS\s+{_WORD}"),
        ("password", " LOGIN ", rf"\b[a-zA-Z]\w{{0,5}}\s+LOGIN\s+\S{{1,64}}\s+{_MIXED}"),
        ("password", "send \"|send \\|send -|endline(",
         r"(?i:password|assword|passphrase)[^\n]{0,40}(?:\n|\\+n)\s{0,8}(?:\w{1,40}\.)?send(?:_user|line)?[\s(]"
         r"(?:--\s)?\\*+[\"'](?P<secret>(?!\[redacted:|\$)[^\"'\\\n]{3,128})"),
        ("password", "=\"passw|='passw|=passw",
         r"<input\b(?=[^<>]{0,400}\btype=\\*+[\"']?password\b)[^<>]{0,400}?\bvalue=\\*+[\"']"
         r"(?P<secret>(?!\[redacted:|[$<{%*])[^\"'<>\\]{3,512})"),
        ("password", "OTP:|OTP=|PIN:|PIN=", r"\b(?:OTP|PIN)\s?[:=]\s{0,4}(?P<secret>\d{4,8})\b"),
        ("password", "redentia|creds:|creds a|ogin:",
         r"(?i:\b(?:login|credentials|creds)(?::|\sare))\s(?!\d{1,4}[:-]\d\d)[\w.@-]{1,64}(?:\s?/\s?|:|\sand\s)"
         + _MIXED),
        ("password", "seed phra|seed_phra|nemon|NEMON|ecovery phra",
         r"(?i:\bseed[ _]?phrase|mnemonic|\brecovery phrase)\b(?:\\*+[\"']|[^\n\w]){1,6}(?:is\s)?[\"'`]?"
         r"(?P<secret>(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})"),
        ("aws_secret_key", "aws_secret", rf"\baws_secret_access_key\s+{_WORD}"),
        ("password", "To-SecureS|to-securest",
         r"(?i:\bconvertto-securestring\s+(?:-string\s+)?)\\*+[\"'](?P<secret>(?!\[redacted:|\$)[^\"'\n]{3,512})"),
    ),
    "(": (
        ("password", "roperty(|.put(|.set(|etItem(|define(|tVariable(",
         rf"\b(?:put|set|setItem|define|\w{{0,20}}(?:Property|Variable))\(\s?\\*+[\"'][\w.-]{{0,40}}{_NAME}\\*+[\"'],"
         rf"\s?{_QUOTED}"),
        ("password", "assword(|assphrase(",
         r"(?i:\b(?:set|with|change|reset|update|encode|hash|use)_?(?:[a-z]{1,20}_?)?pass(?:word|phrase))\(\s?"
         rf"{_QUOTED}\\*+[\"']"),
        ("password", "BasicAut|DigestAu|auth=(|login(|asic_auth(|NetworkCred|PasswordAuth|tials.basic(",
         r"\b(?:(?:HTTP|Set|aiohttp\.)?(?:Basic|Digest)Auth|NetworkCredential|PasswordAuthentication|Credentials\.basic"
         r"|auth\s?=\s?|login|basic_auth)\(\s{0,4}\\*+[\"'][^\"'\n]{1,64}[\"']\s{0,2},\s{0,2}(?:Some\()?"
         r"\\*+[\"'](?P<secret>(?!\[redacted:|[$<{%*])[^\s\"']{3,512})[\"']"),
        ("password", "onnect(|PDO(|etConn",
         r"(?:onnect|\bPDO|onnection)\(\s?(?:[^\s,()]{1,128},\s?){1,2}\\*+[\"'][^\"'\n]{1,64}[\"'],\s?" + _STRONG),
        ("password", "fill(|type(|send_keys(|sendKeys(",
         rf"(?i:password)\\*+[\"'\])]{{1,4}}(?:\.(?:fill|type|send_?[kK]eys)\(|,)\s{{0,2}}{_STRONG}"),
    ),
    "=": (
        ("password", "variable",
         rf"\bvariable\s+\\*+\"\w{{0,40}}{_NAME}\w{{0,20}}\\*+\"\s*\{{[^{{}}]{{0,400}}?\bdefault\s*=\s*{_QUOTED}"),
        ("password", "psk=|PW=", rf"\b(?:(?:wpa[_-])?psk|[A-Z_]{{2,20}}PW)\s?=\s?{_WORD}"),
    ),
    ":": (
        ("password", "WIFI:", r"(?<=WIFI:)[^\n]{0,120}?\bP:(?P<secret>(?!\[redacted:)[^;\n]{3,64})"),
        ("password", "thin:", rf"(?<=thin:)[\w.$-]{{1,64}}/{_MIXED}@"),
        ("password", "ecovery c|ackup c|cratch c|ecovery_c|ackup_c|ecovery-c|ackup-c",
         r"(?i:(?:recovery|backup|scratch)[ _-]code(?:s|(?=\W{1,8}\w{4,12}-\w{4})))"
         r"(?: are)?\\*+[\"']?:(?:[\s\"'\[*-]|\\[nr\"]){0,16}+"
         r"(?P<secret>(?=[A-Za-z-]{0,16}+\d)[A-Za-z\d]{4,12}(?:[ -][A-Za-z\d]{4,12}){0,3}"
         r"(?:(?:[\s\"',*-]|\\[nr\"]){1,8}+(?=[A-Za-z]{0,12}+\d)[A-Za-z\d]{4,12}(?:[ -][A-Za-z\d]{4,12}){0,3}){0,15})"),
    ),
}  # fmt: skip

_PASSWORD = re.compile(rf"(?:\w{{0,40}}[_. -])?{PASSWORDS}", re.I)
_SECRET = re.compile(rf"(?:\w{{0,40}}[_. -])?{KEYS}", re.I)
_MARKS = " \t\r\"'`*[]"
_SEPARATORS = "|\t;,"
_LONGEST_CELL = 512
_HEAD = re.compile(
    rf"^[^\n]{{0,300}}?(?:^|[|\t;,])[ \"'`*\[]{{0,3}}\w{{0,20}}?(?:{PASSWORDS}|{KEYS})[ \"'`*\]]{{0,8}}"
    r"(?=[|\t;,\r\n])[^\n]{0,300}\n(?s:.+)",
    re.I | re.M,
)
_INSERT = re.compile(
    r"\b(?:insert|replace)\s+into\s+[^\s()]{1,128}\s{0,4}\((?P<names>[^()]{1,1000})\)\s{0,4}values\s{0,4}"
    r"(?P<rows>\([^;]{1,4000})",
    re.I,
)
_SQL = re.compile(r"(?P<quoted>\\*'(?:[^'\\]|''|\\[^'])*+\\*'|\"[^\"]*+\")|[(),]|[^(),'\"]+|.", re.S)


_LIST = re.compile(r"pass(?:word|phrase|code)s[\"']?:(?:\r?\n[ \t]{0,40}-[ \t]{1,4}[^\n]{1,512}){2,100}", re.I)
_ITEM = re.compile(r"-[ \t]{1,4}[\"']?(?P<secret>(?!\[redacted:)[^\s\"']{3,512})[\"']?[ \t\r]*$", re.M)


def kind_of_column(name: str) -> str | None:
    name = name.strip(_MARKS)
    if _PASSWORD.fullmatch(name):
        return "password"
    return "secret" if _SECRET.fullmatch(name) else None


def _masked_table(match: re.Match[str]) -> str:
    head, *rows = match[0].split("\n")
    separator = next((each for each in _SEPARATORS if each in head), None)
    if separator is None:
        return match[0]
    kinds = [kind_of_column(cell) for cell in head.split(separator)]
    for place, row in enumerate(rows):
        if row.strip() and not set(row) - set("-=+ "):  # the line of `psql` under the names
            continue
        cells = row.split(separator)
        if len(cells) != len(kinds):
            break
        rows[place] = separator.join(map(_masked_cell, cells, kinds))
    return "\n".join([head, *rows])


def _masked_cell(cell: str, kind: str | None) -> str:
    value = cell.strip(_MARKS)
    if kind is None or len(value) > _LONGEST_CELL or REDACTED in cell or not set(value) - set("-=:"):
        return cell
    return cell.replace(value, mask_of(kind)) if is_secret(value, password=kind == "password") else cell


def _masked_item(match: re.Match[str]) -> str:
    value = match["secret"]
    if NAME_IN_A_LIST.fullmatch(value) or not is_secret(value, password=True, bare=True):
        return match[0]
    return match[0].replace(value, mask_of("password"))


def _masked_insert(match: re.Match[str]) -> str:
    kinds = [kind_of_column(name) for name in match["names"].split(",")]
    if not any(kinds):
        return match[0]
    parts: list[str] = []
    depth = column = 0
    for part in _SQL.finditer(match["rows"]):
        text = part[0]
        depth += (text == "(") - (text == ")")
        if depth == 1 and text in "(,":
            column = column + 1 if text == "," else 0
        kind = kinds[column] if depth and column < len(kinds) else None
        parts.append(text if kind is None or part["quoted"] is None else _masked_literal(text, kind))
    return match[0][: match.start("rows") - match.start()] + "".join(parts)


def _masked_literal(text: str, kind: str) -> str:
    value = text.strip("\\'\"")
    return text.replace(value, mask_of(kind)) if REDACTED not in value and is_secret(value, password=True) else text


_NEEDLES = ("pass", "secret", "token", "key", "pwd", "cred", "auth", "kennwort", "senha", "contrase", "wachtwoo")
COLUMN_RULES = (
    Rule("password", _NEEDLES, _HEAD, _masked_table),
    Rule("password", _NEEDLES, _INSERT, _masked_insert),
    Rule("password", _NEEDLES, _LIST, lambda match: _ITEM.sub(_masked_item, match[0])),
)
