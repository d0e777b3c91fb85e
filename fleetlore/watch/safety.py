"""Warn of a call that would destroy or leak something: a corrective rule to read first; the call is never blocked.

Rules (`fleetlore.watch.shell_rules`, `fleetlore.watch.shell_rules`) look at one argument at a time, by what it is:
shell, SQL or Python. Each is a lesson with a severity, a principle and a confidence, which starts at the severity's and
moves by what comes of the calls it was shown for:

- the call was not made, and the session went on to succeed: the lesson helped;
- it was made and failed, or the session failed: the lesson was right;
- it was made, and the session succeeded: a false alarm, at this place.

So a lesson is credited by outcome and on its own, not because a dangerous call was merely seen again. One that is
mostly a false alarm falls silent; a critical one never does. What came of calls that were made in spite of a warning
counts over the fleet: the stream keeps it by rule (level `safety` of the topic `patterns`), once more than one agent
has made them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Literal

from fleetlore.advice.gate import Tip
from fleetlore.fingerprint.fingerprint import arguments_text, pattern_id
from fleetlore.recall.index import LoreIndex
from fleetlore.redact.redact import redact
from fleetlore.watch.shell_parser import MAX_TEXT, commands
from fleetlore.watch.shell_rules import FORK_BOMB, RULES, Severity, shell_dangers, sql_dangers

__all__ = ["SafetyLessons", "SafetyWatch", "dangers"]

Kind = Literal["shell", "sql", "python"]

_CONFIDENCE: dict[Severity, float] = {"critical": 0.99, "high": 0.95, "medium": 0.8, "low": 0.6}
_PRIOR_OUTCOMES = 8.0  # how many outcomes the severity's confidence counts for
SILENT_BELOW = 0.5
_FEWEST_AGENTS = 2
PREFIX = "safety:"  # of the ids by which outcomes name the rules that were shown

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


@lru_cache(maxsize=256)
def rule_id(name: str) -> str:
    """Id of the row that says what came of a rule's warnings."""
    return pattern_id("safety", name)


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
    return sorted(found, key=lambda name: (-_CONFIDENCE[RULES[name].severity], name)) if found else []


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
    if redact(text) != text:
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


@dataclass(slots=True)
class SafetyLessons:
    """What an agent has learned of each rule over its sessions, and the fleet over its own.

    Attributes:
        index: the fleet's lore, if there is any.
        right, wrong: how often each rule's warning proved right and to be a false alarm in this process, by name.
    """

    index: LoreIndex | None = None

    right: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)

    def confidence(self, name: str) -> float:
        """P(a warning by this rule is right), 0..1: the severity's, moved by outcomes (mean of a Beta distribution)."""
        right, wrong = self._fleet(name)
        # The fleet's include this agent's own, as far as they have come.
        right, wrong = max(right, self.right.get(name, 0)), max(wrong, self.wrong.get(name, 0))
        prior = _CONFIDENCE[RULES[name].severity]
        return (prior * _PRIOR_OUTCOMES + right) / (_PRIOR_OUTCOMES + right + wrong)

    def _fleet(self, name: str) -> tuple[int, int]:
        known = self.index.patterns.get(rule_id(name)) if self.index is not None else None
        # One agent alone, mistaken or hostile, silences no rule for the others.
        if known is None or known.agents < _FEWEST_AGENTS:
            return 0, 0
        return known.failures, max(0, known.calls - known.failures)

    def is_shown(self, name: str) -> bool:
        """Whether the rule still warns."""
        return RULES[name].severity == "critical" or self.confidence(name) >= SILENT_BELOW

    def credit(self, name: str, right: bool) -> None:
        """Take in one outcome of a rule that was shown."""
        counts = self.right if right else self.wrong
        counts[name] = counts.get(name, 0) + 1


class SafetyWatch:
    """One session's part: which rules it was shown, and what it then did."""

    def __init__(self, lessons: SafetyLessons) -> None:
        self._lessons = lessons
        self._shown: dict[
            str, bool | None
        ] = {}  # None: not called since; False: called, and it failed; True: it worked

    def cautions(self, tool: str, arguments: object) -> tuple[Tip, ...]:
        """What to say before this call."""
        told = [name for name in dangers(tool, arguments) if self._lessons.is_shown(name)]
        for name in told:
            self._shown.setdefault(name, None)
        return tuple([_caution(name) for name in told])

    def took_place(self, tool: str, arguments: object, failed: bool) -> None:
        """A call was made after all, or one that nobody asked about."""
        if self._shown:
            for name in dangers(tool, arguments):
                if name in self._shown:
                    self._shown[name] = not failed and self._shown[name] is not False

    def ended(self, succeeded: bool | None) -> None:
        """Credit each rule that was shown. `succeeded`: None where the outcome is not known: it changes nothing."""
        for name, worked in self._shown.items():
            if worked is False:
                self._lessons.credit(name, right=True)
            elif succeeded is not None and (worked or succeeded):
                self._lessons.credit(name, right=not (worked and succeeded))
        self._shown.clear()


def _caution(name: str) -> Tip:
    rule = RULES[name]
    text = f"{rule.instead} {rule.principle} This call is dangerous ({rule.severity}, {name})."
    id = f"{PREFIX}{name}"
    return Tip(id, "safety", (text,), key=id, tried=False, text=text)
