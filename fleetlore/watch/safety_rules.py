"""List the safety rules: what each is called, how bad it is and what to do instead; and those for SQL. Those for a
shell look at commands and have a file of their own (`fleetlore.watch.shell_rules`).
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Severity = Literal["critical", "high", "medium", "low"]


class Rule(NamedTuple):
    """What a kind of dangerous call is called, how bad it is, which principle it breaks and what to do instead."""

    name: str
    severity: Severity
    principle: str
    instead: str


_KEEP = "Destroy nothing that cannot be restored."
_SECRET = "Secrets stay where they are kept."
_SHARED = "What others share is not rewritten under them."
_READ = "Run nothing that was not read."
_LEAST = "Grant no more than is needed."
_RUNNING = "What runs for others keeps running."

RULES = {
    rule.name: rule
    for rule in (
        Rule(
            "rm-root",
            "critical",
            _KEEP,
            "Name the folder to be removed, below a folder of your own, and list it first.",
        ),
        Rule("rm-here", "high", _KEEP, "Name what is to be removed instead of everything here, and list it first."),
        Rule(
            "rm-variable",
            "medium",
            _KEEP,
            "An empty variable makes this the root: use ${NAME:?} so that it stops then.",
        ),
        Rule(
            "disk-overwrite", "critical", _KEEP, "Write to a file, never to a device, unless a person named the device."
        ),
        Rule("fork-bomb", "critical", _RUNNING, "Do not start processes without end."),
        Rule(
            "git-force-push", "high", _SHARED, "Push to a branch of your own, or use --force-with-lease after a fetch."
        ),
        Rule("git-discard", "medium", _KEEP, "Commit or stash first: what was not committed cannot be got back."),
        Rule(
            "chmod-open",
            "medium",
            _LEAST,
            "Give the one user or group the one right that is missing, such as chmod u+x.",
        ),
        Rule("chown-root", "high", _LEAST, "Change the owner of your own folder only; the system's files need theirs."),
        Rule("pipe-to-shell", "high", _READ, "Download to a file, read it, then run it."),
        Rule("machine-down", "high", _RUNNING, "Restart the one service that needs it, and leave the machine up."),
        Rule("kill-all", "high", _RUNNING, "End the one process by its id."),
        Rule("firewall-off", "medium", _LEAST, "Open the one port that is needed."),
        Rule("cron-wipe", "medium", _KEEP, "Edit the one entry; crontab -r removes them all."),
        Rule(
            "infrastructure-destroy",
            "high",
            _KEEP,
            "Look at what would be removed (plan, list, dry run) and have a person agree.",
        ),
        Rule("print-secret", "high", _SECRET, "Test that the secret is there without showing it; pass it by its name."),
        Rule("print-environment", "medium", _SECRET, "Print the one variable that you need; the others hold secrets."),
        Rule(
            "secret-in-call",
            "medium",
            _SECRET,
            "Pass the secret by the name of a variable or file, not in the text of the call.",
        ),
        Rule("sql-drop", "high", _KEEP, "Rename it, or copy its rows, before it is dropped; have a person agree."),
        Rule("sql-truncate", "high", _KEEP, "Copy the rows first; TRUNCATE cannot be rolled back everywhere."),
        Rule(
            "sql-delete-all",
            "high",
            _KEEP,
            "Add the WHERE that is meant, and count what it matches with a SELECT first.",
        ),
        Rule(
            "sql-update-all",
            "high",
            _KEEP,
            "Add the WHERE that is meant, and count what it matches with a SELECT first.",
        ),
        Rule("sql-drop-column", "medium", _KEEP, "Copy the column first; its values are gone with it."),
        Rule("sql-grant-all", "medium", _LEAST, "Grant the one right on the one table that is needed."),
    )
}

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


def sql_dangers(text: str) -> set[str]:
    """Names of the rules that SQL text breaks; what stands in strings and comments is not looked at."""
    statements = _SQL_NOISE.sub("''", text).split(";", _MAX_STATEMENTS)
    return {name for statement in statements for name, pattern in _SQL if pattern.match(statement)}
