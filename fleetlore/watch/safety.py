"""Say whether a call could do harm, and warn, without blocking, of a call that would destroy or leak something.

Rules look at one argument at a time, as shell, SQL or Python. They are not learned, so no agent can silence one. The
call is judged as it was made, since a mask may hide the danger, and by verb and object together: to pay another is to
pay.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple, get_args

from fleetlore.advice.gate import Tip
from fleetlore.fingerprint.fingerprint import arguments_text, parsed
from fleetlore.redact.redact import redact
from fleetlore.watch.shell_parser import MAX_TEXT, Command, commands
from fleetlore.words import parts_of

__all__ = ["cautions", "dangers", "is_harmful"]

_HOME = r"(?:~|\$HOME|\$\{HOME\})"
_SYSTEM = r"/(?:bin|boot|dev|etc|home|lib|lib64|opt|proc|root|run|sbin|srv|sys|usr|var|Users|System|Library|Windows)"
_ROOT = re.compile(rf"(?:/|{_HOME}|{_SYSTEM})?(?:/\.?)*/?(?:\*|\.\*)?\Z")
_HERE = re.compile(r"\.{1,2}/?\Z|(?:\./)?\*\Z|(?:\./)?\.\*\Z")
_VARIABLE_ROOT = re.compile(r"\$(?!HOME\b|\{HOME\})(?:\w+|\{\w+\})/?\*?\Z")
_DEVICE = re.compile(r"(?:of=)?/dev/(?:sd|hd|vd|xvd|nvme|disk|mmcblk)\w*")
_OPEN = re.compile(r"0?[0-7]?[0-7]?[0-7][2367]\Z|[augo]*[ao][augo]*[+=][rx]*w[rwx]*\Z")
_SECRET_FILE = re.compile(
    r"(?:\A|/)(?:\.env(?:\.(?:local|prod|production|dev|development|staging))?|\.netrc|\.pgpass|\.npmrc|\.pypirc|"
    r"\.git-credentials|"
    r"id_(?:rsa|dsa|ecdsa|ed25519)|credentials(?:\.json)?|shadow|\.htpasswd|[\w.-]+\.(?:pem|p12|pfx|key)|kubeconfig|"
    r"secrets?\.\w+)\Z"
)
_SECRET_NAME = re.compile(
    r"\$\{?\w*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL)\w*\}?", re.I
)
_SHOWS = frozenset("cat less more head tail nl tac bat xxd od strings base64 grep awk sed cut".split())  # noqa: SIM905
_FETCHES = frozenset({"curl", "wget", "fetch", "aria2c"})
_INTERPRETERS = frozenset(
    ["sh", "bash", "zsh", "dash", "ksh", "python", "python3", "perl", "ruby", "node", "php", "source", "."]
)
_CONTROLS_ALL = "terraform tofu pulumi kubectl oc docker podman aws redis-cli dropdb".split()  # noqa: SIM905
_DOWN = frozenset({"shutdown", "reboot", "halt", "poweroff"})
_SQL_CLIENTS = frozenset({"mysql", "mariadb", "psql", "sqlite3", "sqlcmd", "clickhouse-client", "duckdb"})
_FORK_BOMB = re.compile(r"(?<!\w)(\w{1,64}|:)\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1")

_Severity = Literal["critical", "high", "medium", "low"]


class Rule(NamedTuple):
    """A kind of dangerous call: its severity, the principle it breaks, and the safe way."""

    name: str
    severity: _Severity
    principle: str
    instead: str


_KEEP = "Destroy nothing that cannot be restored."
_SECRET = "Secrets stay where they are kept."
_SHARED = "What others share is not rewritten under them."
_READ = "Run nothing that was not read."
_LEAST = "Grant no more than is needed."
_RUNNING = "What runs for others keeps running."

_COUNT = "Add the WHERE that is meant, and count what it matches with a SELECT first."

RULES = {
    rule.name: rule
    for rule in (
        Rule("rm-root", "critical", _KEEP,
             "Name the folder to be removed, below a folder of your own, and list it first."),
        Rule("rm-here", "high", _KEEP, "Name what is to be removed instead of everything here, and list it first."),
        Rule("rm-variable", "medium", _KEEP,
             "An empty variable makes this the root: use ${NAME:?} so that it stops then."),
        Rule("disk-overwrite", "critical", _KEEP,
             "Write to a file, never to a device, unless a person named the device."),
        Rule("fork-bomb", "critical", _RUNNING, "Do not start processes without end."),
        Rule("git-force-push", "high", _SHARED,
             "Push to a branch of your own, or use --force-with-lease after a fetch."),
        Rule("git-discard", "medium", _KEEP, "Commit or stash first: what was not committed cannot be got back."),
        Rule("chmod-open", "medium", _LEAST,
             "Give the one user or group the one right that is missing, such as chmod u+x."),
        Rule("chown-root", "high", _LEAST, "Change the owner of your own folder only; the system's files need theirs."),
        Rule("pipe-to-shell", "high", _READ, "Download to a file, read it, then run it."),
        Rule("machine-down", "high", _RUNNING, "Restart the one service that needs it, and leave the machine up."),
        Rule("kill-all", "high", _RUNNING, "End the one process by its id."),
        Rule("firewall-off", "medium", _LEAST, "Open the one port that is needed."),
        Rule("cron-wipe", "medium", _KEEP, "Edit the one entry; crontab -r removes them all."),
        Rule("infrastructure-destroy", "high", _KEEP,
             "Look at what would be removed (plan, list, dry run) and have a person agree."),
        Rule("print-secret", "high", _SECRET, "Test that the secret is there without showing it; pass it by its name."),
        Rule("print-environment", "medium", _SECRET, "Print the one variable that you need; the others hold secrets."),
        Rule("secret-in-call", "medium", _SECRET,
             "Pass the secret by the name of a variable or file, not in the text of the call."),
        Rule("sql-drop", "high", _KEEP, "Rename it, or copy its rows, before it is dropped; have a person agree."),
        Rule("sql-truncate", "high", _KEEP, "Copy the rows first; TRUNCATE cannot be rolled back everywhere."),
        Rule("sql-delete-all", "high", _KEEP, _COUNT),
        Rule("sql-update-all", "high", _KEEP, _COUNT),
        Rule("sql-drop-column", "medium", _KEEP, "Copy the column first; its values are gone with it."),
        Rule("sql-grant-all", "medium", _LEAST, "Grant the one right on the one table that is needed."),
    )
}  # fmt: skip

_MAX_STATEMENTS = 256
_SQL_NOISE = re.compile(r"'(?:[^'\\]|\\.|'')*+'|--[^\n]*|#[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/", re.DOTALL)
_ALWAYS = r"\s+(?:1(?:\s*=\s*1)?|TRUE)\s*"
_SQL = {
    name: re.compile(rf"\s*{pattern}", re.I | re.S)
    for name, pattern in (
        ("sql-drop", r"DROP\s+(?:TABLE|DATABASE|SCHEMA)\b"),
        ("sql-truncate", r"TRUNCATE\s+(?:TABLE\s+)?[\w`\"\[.]"),
        ("sql-delete-all", rf"DELETE\s+FROM\s+[\w`\".\[\]]+\s*(?:WHERE{_ALWAYS})?\Z"),
        ("sql-update-all", rf"UPDATE\s+[\w`\".\[\]]+\s+SET\b(?!.*\bWHERE\b(?!{_ALWAYS}\Z))"),
        ("sql-drop-column", r"ALTER\s+TABLE\b.*\bDROP\s+COLUMN\b"),
        ("sql-grant-all", r"GRANT\s+ALL\b"),
    )
}


def _sql_dangers(text: str) -> set[str]:
    statements = _SQL_NOISE.sub("''", text).split(";", _MAX_STATEMENTS)
    return {name for statement in statements for name, pattern in _SQL.items() if pattern.match(statement)}


def _shell_dangers(command: Command) -> set[str]:
    found = {name for name, check in _SHELL.get(command.program, ()) if check(command)}
    if any(_DEVICE.match(file) for file in command.into) or command.program.startswith("mkfs"):
        found.add("disk-overwrite")
    if command.reads in _FETCHES and command.program in _INTERPRETERS | {"eval"} and not _has_script(command):
        found.add("pipe-to-shell")
    if command.program in _SHOWS and any(_SECRET_FILE.search(word) for word in command.operands()):
        found.add("print-secret")
    if command.program in _SQL_CLIENTS:
        for word in command.words[1:]:
            found |= _sql_dangers(word)
    return found


def _has_script(command: Command) -> bool:
    """`python script.py` reads what is piped to it as data."""
    if command.program not in _INTERPRETERS or "-s" in command.flags():
        return False
    substitutes = any("$(" in word or "`" in word for word in command.words)
    return not substitutes and any(word != "-" for word in command.operands())


def _recursive(command: Command) -> bool:
    return bool({"-r", "-R", "--recursive"} & command.flags())


def _any(pattern: re.Pattern[str]) -> Callable[[Command], bool]:
    return lambda command: any(pattern.match(word) for word in command.operands())


def _removes(pattern: re.Pattern[str]) -> Callable[[Command], bool]:
    return lambda command: _recursive(command) and any(word and pattern.match(word) for word in command.operands())


def _is_root(word: str) -> bool:
    return bool(word) and _ROOT.match(word) is not None and not _HERE.match(word)


# A test limits the files.
_FIND_TESTS = ("-name", "-iname", "-path", "-mtime", "-size", "-newer", "-regex", "-empty")


def _find_deletes(command: Command) -> bool:
    words = set(command.words)
    deletes = "-delete" in words or {"-exec", "rm"} <= words
    return deletes and words.isdisjoint(_FIND_TESTS) and any(map(_is_root, command.words[1:2]))


def _git_forces(command: Command) -> bool:
    verb, *rest = command.operands() or [""]
    forced = bool({"-f", "--force", "--mirror"} & command.flags()) or any(word.startswith("+") for word in rest)
    return verb == "push" and forced


def _git_discards(command: Command) -> bool:
    (verb, *rest), flags = command.operands() or [""], command.flags()
    match verb:
        case "reset":
            return "--hard" in flags
        case "clean":
            return bool({"-f", "--force"} & flags) and not {"-n", "--dry-run"} & flags
        case "checkout" | "restore":
            return "." in rest and "--staged" not in flags
    return verb == "stash" and rest[:1] in (["drop"], ["clear"])


def _destroys(command: Command) -> bool:
    words, flags, first = command.words[1:], command.flags(), command.operands()[:2]
    match command.program:
        case "terraform" | "tofu" | "pulumi":
            return "destroy" in words or "-destroy" in words
        case "kubectl" | "oc":
            whole = {"ns", "namespace", "namespaces", "pv", "pvc"} & set(words)
            return "delete" in first and ("--all" in flags or bool(whole))
        case "docker" | "podman":
            if words[:2] == ("system", "prune"):
                return bool({"-a", "--all", "--volumes"} & flags)
            gone = words[:2] in (("volume", "prune"), ("volume", "rm"))
            return gone or ("down" in words and bool({"-v", "--volumes"} & flags))
        case "aws":
            emptied = words[:2] == ("s3", "rm") and "--recursive" in flags
            return emptied or (words[:2] == ("s3", "rb") and "--force" in flags)
        case "redis-cli":
            return any(word.lower() in ("flushall", "flushdb") for word in words)
    return command.program == "dropdb"


_SHELL: dict[str, tuple[tuple[str, Callable[[Command], bool]], ...]] = {
    "rm": (
        ("rm-root", lambda command: _recursive(command) and any(map(_is_root, command.operands()))),
        ("rm-here", _removes(_HERE)),
        ("rm-variable", _removes(_VARIABLE_ROOT)),
    ),
    "find": (("rm-root", _find_deletes),),
    **dict.fromkeys(("dd", "wipefs", "shred"), (("disk-overwrite", _any(_DEVICE)),)),
    "git": (("git-force-push", _git_forces), ("git-discard", _git_discards)),
    "chmod": (("chmod-open", _any(_OPEN)),),
    "chown": (("chown-root", lambda command: _recursive(command) and any(map(_is_root, command.operands()[1:]))),),
    "kill": (("kill-all", lambda command: command.words[-1] in ("-1", "1") and len(command.words) > 2),),
    "iptables": (("firewall-off", lambda command: "-F" in command.flags() or "--flush" in command.flags()),),
    "ufw": (("firewall-off", lambda command: "disable" in command.words),),
    "setenforce": (("firewall-off", lambda command: "0" in command.words),),
    "crontab": (("cron-wipe", lambda command: "-r" in command.flags()),),
    "printenv": (
        ("print-environment", lambda command: not command.operands()),
        ("print-secret", lambda command: any(_SECRET_NAME.match(f"${word}") for word in command.operands())),
    ),
    **dict.fromkeys(
        ("echo", "printf"),
        (("print-secret", lambda command: not command.into and any(map(_SECRET_NAME.search, command.words[1:]))),),
    ),
    "init": (("machine-down", lambda command: command.words[1:2] in (("0",), ("6",))),),
    "systemctl": (("machine-down", lambda command: bool(_DOWN & set(command.words[1:]))),),
    **dict.fromkeys(_DOWN, (("machine-down", lambda command: True),)),
    **dict.fromkeys(_CONTROLS_ALL, (("infrastructure-destroy", _destroys),)),
}

Kind = Literal["shell", "sql", "python"]

_SEVEREST_FIRST = get_args(_Severity)

# Every danger contains one of these, and most calls none. Parsing costs a hundred times more.
_TRIGGERS = (
    "of=", "mkfs", "/dev/", "wipefs", "shred", "git ", "chmod", "chown", "curl", "wget", "fetch", "aria2c",
    "shutdown", "reboot", "halt", "poweroff", "init ", "kill", "systemctl", "iptables", "ufw", "setenforce",
    "crontab", "terraform", "tofu", "pulumi", "kubectl", "oc delete", "docker", "podman", "aws ", "redis-cli",
    "dropdb", "env", "-delete", "netrc", "pgpass", "npmrc", "pypirc", "credential", "id_rsa", "id_dsa", "id_ecdsa",
    "id_ed25519", "shadow", "htpasswd", ".pem", ".p12", ".pfx", ".key", "kubeconfig", "secret", "token", "passw",
    "api_key", "apikey", "access_key", "accesskey", "private_key", "privatekey", "bearer", "://", "drop", "truncate",
    "delete", "update", "alter", "grant", "rmtree", "(){", "() {",
)  # fmt: skip
_MAX_WORDS = 1024
_MAX_SEARCHED = 2048
_MAX_CALLS = 64
_REMOVES = re.compile(r"\brm\b")
# Without one of these words no rule is broken.
_FIRST_LOOK: dict[str, tuple[str, ...]] = {
    "sql": ("drop", "truncate", "delete", "update", "grant"),
    "python": ("os.system", "os.popen", "subprocess.", "getoutput", ".execute", "rmtree", "os.environ"),
}
_SHELL_NAME = re.compile(r"bash|shell|terminal|command|cmd|exec|script|console", re.I)
_SQL_NAME = re.compile(r"sql|query|statement|database|\bdb\b", re.I)
_PYTHON_NAME = re.compile(r"python|code|ipython|jupyter|notebook|source", re.I)
_SHELL_IN_PYTHON = re.compile(
    r"(?:os\.system|os\.popen|subprocess\.\w+|getoutput)\(\s*(?:f?(?P<quote>'''|\"\"\"|'|\")(?P<text>.*?)(?P=quote)|"
    r"\[(?P<list>[^\]]*)\])",
    re.S,
)
_SQL_IN_PYTHON = re.compile(r"\.execute\w*\(\s*f?(?P<quote>'''|\"\"\"|'|\")(?P<text>.*?)(?P=quote)", re.S)
_RMTREE = re.compile(r"rmtree\(\s*['\"](?P<path>[^'\"]*)['\"]")
_PRINTS_ENVIRONMENT = re.compile(r"print\(\s*(?:dict\()?os\.environ\s*\)")


def cautions(tool: str, arguments: object) -> tuple[Tip, ...]:
    found = []
    for rule in map(RULES.__getitem__, dangers(tool, arguments)):
        text = f"{rule.instead} {rule.principle} This call is dangerous ({rule.severity}, {rule.name})."
        id = f"safety:{rule.name}"
        found.append(Tip(id, "safety", (text,), key=id, tried=False, text=text))
    return tuple(found)


def dangers(tool: str, arguments: object) -> list[str]:
    """Return the broken rules, the severest first, ties by name."""
    found: set[str] = set()
    if isinstance(arguments, dict):
        for name, value in arguments.items():
            kind = _kind(str(name)) or _kind(tool)
            if isinstance(value, list) and kind == "shell" and all(isinstance(word, str) for word in value):
                value = " ".join(
                    f"'{word[:MAX_TEXT]}'" if re.search(r"[\s;&|<>()]", word[:MAX_TEXT]) else word[:MAX_TEXT]
                    for word in value[:_MAX_WORDS]
                )
            if kind is not None and isinstance(value, str):
                found |= _dangers_in(kind, value[:MAX_TEXT])
    elif (kind := _kind(tool)) is not None and arguments is not None:
        found |= _dangers_in(kind, arguments_text(arguments)[:MAX_TEXT])
    return sorted(found, key=lambda name: (_SEVEREST_FIRST.index(RULES[name].severity), name)) if found else []


@lru_cache(maxsize=1024)
def _kind(name: str) -> Kind | None:
    if _SQL_NAME.search(name):
        return "sql"
    if _PYTHON_NAME.search(name):
        return "python"
    return "shell" if _SHELL_NAME.search(name) else None


@lru_cache(maxsize=2048)
def _dangers_in(kind: Kind, text: str) -> frozenset[str]:
    folded = text.lower()
    if kind != "shell" and not any(map(folded.__contains__, _FIRST_LOOK[kind])):
        return frozenset()
    if not any(map(folded.__contains__, _TRIGGERS)) and not ("rm" in folded and _REMOVES.search(folded)):
        return frozenset()
    return frozenset({"sql": _sql_dangers, "shell": _of_shell, "python": _of_python}[kind](text))


def _of_shell(text: str) -> set[str]:
    found = {name for command in commands(text) for name in _shell_dangers(command)}
    if _FORK_BOMB.search(text):
        found.add("fork-bomb")
    if redact(text[:_MAX_SEARCHED]) != text[:_MAX_SEARCHED]:
        found.add("secret-in-call")
    if re.search(r"^\s*env\s*(?:$|[|;&\n])", text, re.M):
        found.add("print-environment")
    return found


def _of_python(text: str) -> set[str]:
    found: set[str] = set()
    for match in islice(_SHELL_IN_PYTHON.finditer(text), _MAX_CALLS):
        words = match["text"] if match["text"] is not None else re.sub(r"['\",]+", " ", match["list"]) + " "
        found |= _of_shell(words)
    for match in islice(_SQL_IN_PYTHON.finditer(text), _MAX_CALLS):
        found |= _sql_dangers(match["text"])
    for match in islice(_RMTREE.finditer(text), _MAX_CALLS):
        found |= _of_shell(f"rm -r {match['path'] or '.'}")
    if _PRINTS_ENVIRONMENT.search(text):
        found.add("print-environment")
    return found


_WORD = re.compile(r"[A-Za-z][\w-]*")
# Verbs in the names of harmful tools.
_IN_NAMES = frozenset(
    """
    grant revoke authorize authorise permit policy admin role owner disable bypass override delete drop destroy purge
    remove wipe erase truncate kill stop pay payment transfer refund charge buy purchase send upload install download
    invoke exec eval sudo
    """.split()  # noqa: SIM905
)
_IN_ARGUMENTS = frozenset(
    """
    grant revoke sudo su doas privileged chmod chown setfacl usermod useradd adduser passwd visudo authorized_keys
    id_rsa clusterrolebinding secret setenforce ufw iptables delete drop truncate rm rmdir shred kill pkill killall
    shutdown reboot cron crontab systemctl launchctl ssh scp sftp rsync nc ncat netcat telnet install npx uvx curl wget
    iwr irm iex clone docker podman kubectl helm aws gcloud az apt yum dnf apk brew hookspath index-url registry eval
    base64 powershell pwsh
    """.split()  # noqa: SIM905
)
# Matches `no-auth-checks` and `skip_tls_verify`.
_UNGUARDED = re.compile(
    r"(?:.*[_-])?(?:(?:no|non|skip|disabled?|without|ignore|bypass|allow)[_-]?(?:auth|verif|check(?!out)|ssl|tls|secur"
    r"|safe|sandbox|polic|permission|validat|encrypt|signature|guard).*|insecure|unsafe|unrestricted|superuser)"
)
_CODE = re.compile(r"://|\$\(|<\(|os\.system|subprocess|fromhex")


@lru_cache(maxsize=8192)
def is_harmful(tool: str, arguments: str) -> bool:
    """Whether a call grants, deletes, stops, pays, leaks, installs, fetches or runs something, names an address, skips
    a protection, or breaks a safety rule.
    """
    words = _WORD.findall(arguments.casefold())
    return (
        not _IN_NAMES.isdisjoint(parts_of(tool))
        or not _IN_ARGUMENTS.isdisjoint(words)
        or any(word.startswith("apt-") or _UNGUARDED.fullmatch(word) for word in words)
        or _CODE.search(arguments) is not None
        or bool(dangers(tool, parsed(arguments)))
    )
