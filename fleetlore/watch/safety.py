"""Warn of a call that would destroy or leak something: a corrective rule to read first; the call is never blocked.

Rules (`fleetlore.watch.shell_rules`, `fleetlore.watch.shell_rules`) look at one argument at a time, by what it is:
shell, SQL or Python. Each has a severity and a principle. Nothing is learned of them, so nobody can silence one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Literal, get_args

from fleetlore.advice.gate import Tip
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.redact.redact import redact
from fleetlore.watch.shell_parser import MAX_TEXT, commands
from fleetlore.watch.shell_rules import FORK_BOMB, RULES, Severity, shell_dangers, sql_dangers

__all__ = ["cautions", "dangers"]

Kind = Literal["shell", "sql", "python"]

_SEVEREST_FIRST = get_args(Severity)

# Nothing dangerous goes without one of these, and most calls hold none; taking a command apart costs a hundred times
# more.
_TRIGGERS = (
    "of=", "mkfs", "/dev/", "wipefs", "shred", "git ", "chmod", "chown", "curl", "wget", "fetch", "aria2c",
    "shutdown", "reboot", "halt", "poweroff", "init ", "kill", "systemctl", "iptables", "ufw", "setenforce",
    "crontab", "terraform", "tofu", "pulumi", "kubectl", "oc delete", "docker", "podman", "aws ", "redis-cli",
    "dropdb", "env", "-delete", "netrc", "pgpass", "npmrc", "pypirc", "credential", "id_rsa", "id_dsa", "id_ecdsa",
    "id_ed25519", "shadow", "htpasswd", ".pem", ".p12", ".pfx", ".key", "kubeconfig", "secret", "token", "passw",
    "api_key", "apikey", "access_key", "accesskey", "private_key", "privatekey", "bearer", "://", "drop", "truncate",
    "delete", "update", "alter", "grant", "rmtree", "(){", "() {",
)  # fmt: skip
# Of a list of arguments; and calls of a program that are looked at.
_MAX_WORDS = 1024
# Characters of a command that are searched for a secret: as many as a cache knows again.
_MAX_SEARCHED = 2048
_MAX_CALLS = 64
_REMOVES = re.compile(r"\brm\b")
# Of other languages a few words decide: without one of these no rule for them is broken.
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
    """What to say before this call."""
    return tuple([_caution(name) for name in dangers(tool, arguments)])


def dangers(tool: str, arguments: object) -> list[str]:
    """Names of the rules that a call breaks, the severest first, ties by name."""
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
                found |= _dangers_of(kind, value)
    elif (kind := _kind(tool)) is not None and arguments is not None:
        found |= _dangers_of(kind, arguments if isinstance(arguments, str) else arguments_text(arguments))
    return sorted(found, key=lambda name: (_SEVEREST_FIRST.index(RULES[name].severity), name)) if found else []


@lru_cache(maxsize=1024)
def _kind(name: str) -> Kind | None:
    """What an argument or a tool of this name holds; None where it may be anything, such as the content of a file."""
    if _SQL_NAME.search(name):
        return "sql"
    if _PYTHON_NAME.search(name):
        return "python"
    return "shell" if _SHELL_NAME.search(name) else None


def _dangers_of(kind: Kind, text: str) -> frozenset[str]:
    return _dangers_in(kind, text[:MAX_TEXT])


@lru_cache(maxsize=2048)
def _dangers_in(kind: Kind, text: str) -> frozenset[str]:
    folded = text.lower()
    if kind != "shell" and not _has_any(folded, _FIRST_LOOK[kind]):
        return frozenset()
    if not _has_any(folded, _TRIGGERS) and not ("rm" in folded and _REMOVES.search(folded)):
        return frozenset()
    if kind == "sql":
        return frozenset(sql_dangers(text))
    if kind == "shell":
        return frozenset(_of_shell(text))
    return frozenset(_of_python(text))


def _has_any(text: str, words: tuple[str, ...]) -> bool:
    return any(map(text.__contains__, words))


def _of_shell(text: str) -> set[str]:
    found = {name for command in commands(text) for name in shell_dangers(command)}
    if FORK_BOMB.search(text):
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
        found |= sql_dangers(match["text"])
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
