"""Warn of a call that would destroy or leak something: a rule to read first. The call is never blocked.

Rules look at one argument at a time, as shell, SQL or Python. They are not learned, so nobody can silence one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple, get_args

from fleetlore.advice.gate import Tip
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.redact.redact import redact
from fleetlore.watch.shell_parser import MAX_TEXT, Command, commands

__all__ = ["cautions", "dangers"]

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
_SQL = (
    ("sql-drop", re.compile(r"\s*DROP\s+(?:TABLE|DATABASE|SCHEMA)\b", re.I)),
    ("sql-truncate", re.compile(r"\s*TRUNCATE\s+(?:TABLE\s+)?[\w`\"\[.]", re.I)),
    (
        "sql-delete-all",
        re.compile(r"\s*DELETE\s+FROM\s+[\w`\".\[\]]+\s*(?:WHERE\s+(?:1(?:\s*=\s*1)?|TRUE)\s*)?\Z", re.I),
    ),
    (
        "sql-update-all",
        re.compile(r"\s*UPDATE\s+[\w`\".\[\]]+\s+SET\b(?!.*\bWHERE\b(?!\s+(?:1(?:\s*=\s*1)?|TRUE)\s*\Z))", re.I | re.S),
    ),
    ("sql-drop-column", re.compile(r"\s*ALTER\s+TABLE\b.*\bDROP\s+COLUMN\b", re.I | re.S)),
    ("sql-grant-all", re.compile(r"\s*GRANT\s+ALL\b", re.I)),
)


def _sql_dangers(text: str) -> set[str]:
    statements = _SQL_NOISE.sub("''", text).split(";", _MAX_STATEMENTS)
    return {name for statement in statements for name, pattern in _SQL if pattern.match(statement)}


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
    return (
        command.program in _INTERPRETERS
        and any(word != "-" for word in command.operands())
        and "-s" not in command.flags()
        and ("$(" not in " ".join(command.words) and "`" not in " ".join(command.words))
    )


def _recursive(command: Command) -> bool:
    return bool({"-r", "-R", "--recursive"} & command.flags())


def _any(pattern: re.Pattern[str]) -> Callable[[Command], bool]:
    return lambda command: any(pattern.match(word) for word in command.operands())


def _removes(pattern: re.Pattern[str]) -> Callable[[Command], bool]:
    return lambda command: _recursive(command) and any(word and pattern.match(word) for word in command.operands())


def _is_root(word: str) -> bool:
    return bool(word) and _ROOT.match(word) is not None and not _HERE.match(word)


def _find_deletes(command: Command) -> bool:
    deletes = "-delete" in command.words or ("-exec" in command.words and "rm" in command.words)
    # A test limits the files.
    tested = any(
        word in command.words for word in ("-name", "-iname", "-path", "-mtime", "-size", "-newer", "-regex", "-empty")
    )
    return deletes and not tested and any(_is_root(word) for word in command.words[1:2])


def _git_forces(command: Command) -> bool:
    rest = command.operands()
    if rest[:1] != ["push"]:
        return False
    return bool({"-f", "--force", "--mirror"} & command.flags()) or any(word.startswith("+") for word in rest[1:])


def _git_discards(command: Command) -> bool:
    rest, flags = command.operands(), command.flags()
    verb = rest[0] if rest else ""
    return (
        (verb == "reset" and "--hard" in flags)
        or (verb == "clean" and bool({"-f", "--force"} & flags) and not {"-n", "--dry-run"} & flags)
        or (verb in ("checkout", "restore") and "." in rest[1:] and "--staged" not in flags)
        or (verb == "stash" and rest[1:2] in (["drop"], ["clear"]))
    )


def _destroys(command: Command) -> bool:
    words, flags = command.words[1:], command.flags()
    first = [word for word in command.operands()[:2]]
    match command.program:
        case "terraform" | "tofu" | "pulumi":
            return "destroy" in words or "-destroy" in words
        case "kubectl" | "oc":
            return "delete" in first and (
                "--all" in flags or bool({"ns", "namespace", "namespaces", "pv", "pvc"} & set(words))
            )
        case "docker" | "podman":
            pruned = words[:2] == ("system", "prune") and bool({"-a", "--all", "--volumes"} & flags)
            return (
                pruned
                or words[:2] in (("volume", "prune"), ("volume", "rm"))
                or ("down" in words and bool({"-v", "--volumes"} & flags))
            )
        case "aws":
            emptied = words[:2] == ("s3", "rm") and "--recursive" in flags
            return emptied or (words[:2] == ("s3", "rb") and "--force" in flags)
        case "redis-cli":
            return any(word.lower() in ("flushall", "flushdb") for word in words)
    return command.program == "dropdb"


def _kills_all(command: Command) -> bool:
    return command.program == "kill" and command.words[-1] in ("-1", "1") and len(command.words) > 2


_SHELL: dict[str, tuple[tuple[str, Callable[[Command], bool]], ...]] = {
    "rm": (
        ("rm-root", lambda command: _recursive(command) and any(map(_is_root, command.operands()))),
        ("rm-here", _removes(_HERE)),
        ("rm-variable", _removes(_VARIABLE_ROOT)),
    ),
    "find": (("rm-root", _find_deletes),),
    "dd": (
        (
            "disk-overwrite",
            lambda command: any(_DEVICE.match(word) for word in command.words if word.startswith("of=")),
        ),
    ),
    "wipefs": (("disk-overwrite", _any(_DEVICE)),),
    "shred": (("disk-overwrite", _any(_DEVICE)),),
    "git": (("git-force-push", _git_forces), ("git-discard", _git_discards)),
    "chmod": (("chmod-open", _any(_OPEN)),),
    "chown": (("chown-root", lambda command: _recursive(command) and any(map(_is_root, command.operands()[1:]))),),
    "kill": (("kill-all", _kills_all),),
    "iptables": (("firewall-off", lambda command: "-F" in command.flags() or "--flush" in command.flags()),),
    "ufw": (("firewall-off", lambda command: "disable" in command.words),),
    "setenforce": (("firewall-off", lambda command: "0" in command.words),),
    "crontab": (("cron-wipe", lambda command: "-r" in command.flags()),),
    "printenv": (
        ("print-environment", lambda command: not command.operands()),
        ("print-secret", lambda command: any(_SECRET_NAME.match(f"${word}") for word in command.operands())),
    ),
    "echo": (
        (
            "print-secret",
            lambda command: any(_SECRET_NAME.search(word) for word in command.words[1:]) and not command.into,
        ),
    ),
    "init": (("machine-down", lambda command: command.words[1:2] in (("0",), ("6",))),),
    "systemctl": (("machine-down", lambda command: bool(_DOWN & set(command.words[1:]))),),
    **{program: (("machine-down", lambda command: True),) for program in _DOWN},
    **{
        program: (("infrastructure-destroy", _destroys),)
        for program in "terraform tofu pulumi kubectl oc docker podman aws redis-cli dropdb".split()  # noqa: SIM905
    },
}
_SHELL["printf"] = _SHELL["echo"]


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
    return tuple([_caution(name) for name in dangers(tool, arguments)])


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
    if kind != "shell" and not _has_any(folded, _FIRST_LOOK[kind]):
        return frozenset()
    if not _has_any(folded, _TRIGGERS) and not ("rm" in folded and _REMOVES.search(folded)):
        return frozenset()
    if kind == "sql":
        return frozenset(_sql_dangers(text))
    if kind == "shell":
        return frozenset(_of_shell(text))
    return frozenset(_of_python(text))


def _has_any(text: str, words: tuple[str, ...]) -> bool:
    return any(map(text.__contains__, words))


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


def _caution(name: str) -> Tip:
    rule = RULES[name]
    text = f"{rule.instead} {rule.principle} This call is dangerous ({rule.severity}, {name})."
    id = f"safety:{name}"
    return Tip(id, "safety", (text,), key=id, tried=False, text=text)
