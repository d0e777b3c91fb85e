"""Decide which items are not worth recalling and which calls could do harm, by one stated rule a reason.

Rules of worth look at what an item says alone: they name no tool and no message. What an item shows is masked, and a
mask may hide what is dangerous (`chmod <number>`, the host of a download). So harm is judged where the call is known
whole, and goes with the contribution. It decides how many agents must have done the same before it is told
(`models.memory.candidate`); no list of words decides alone whether a call is safe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache

from fleetlore.fingerprint.fingerprint import failure_of, parsed
from fleetlore.watch.safety import dangers
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Step
from fleetlore.words import PLAIN_WORD, parts_of, words

# What the distiller writes before a quoted error, and `is_junk` reads again.
ERROR = "Error: "

# A number, a name as programs write it (snake_case, a path, a module, an address), or something in quotes or brackets.
_NAME = re.compile(
    r"\d|[^\W\d_][\w-]{0,64}[_/\\.@=][\w-]|[a-z][A-Z]"
    r"|'[^']+'|\"[^\"]+\"|`[^`]+`|\[[^\]]{1,200}\]"
)
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
# How a process ended says that it failed.
_ENDED = re.compile(
    r"\b(?:exit(?:ed)?|return(?:ed)?)(?:[ _]?(?:with|non-?zero|exit|status|code|value)){0,6}[ :=_]+-?\d+\b", re.I
)
# Function words, and words that mean no more than "what was called failed".
_EMPTY = frozenset(
    PLAIN_WORD.findall(
        "the and but for not was were are has have had been this that these those its your you our can could cannot "
        "did does don didn doesn isn wasn with there please try again sorry wrong incorrect correct right fail failed "
        "fails failure error errors unsuccessful success successful successfully exception traceback warning assertion "
        "runtime unknown unexpected other something nothing happen happens happened occurred went understand command "
        "action call tool execution process operation request response answer solution result output input exit exited "
        "code status returned non zero"
    )
)
_STEM = 5
# An exception's class by its name, which a program chose; what is made of the words of a message is in lower case.
_CLASS = re.compile(r"[A-Za-z_.]*[A-Z]\w*")
_COMMAND_WORD = re.compile(r"[A-Za-z][\w-]*")
# What a tool does that changes something outside, or for good.
_DOES = frozenset(
    _COMMAND_WORD.findall(
        "grant revoke authorize authorise permit disable bypass override policy delete drop destroy purge remove wipe "
        "erase kill stop pay payment send transfer refund charge buy purchase install download upload invoke exec "
        "eval sudo admin"
    )
)
# Commands that do so, or that fetch and run what others wrote; `apt-get` is one too.
_RUNS = frozenset(
    _COMMAND_WORD.findall(
        "sudo su doas privileged chmod chown setfacl usermod useradd adduser passwd visudo setenforce ufw iptables rm "
        "rmdir shred kill pkill killall shutdown reboot install npx uvx curl wget iwr irm iex clone ssh scp sftp "
        "rsync nc ncat netcat telnet docker podman kubectl helm aws gcloud az eval base64 powershell pwsh cron "
        "crontab systemctl launchctl apt yum dnf apk brew hookspath index-url registry authorized_keys id_rsa "
        "clusterrolebinding secret drop truncate delete grant revoke"
    )
)
# What does without a protection, as `no-auth-checks` and `skip_tls_verify`.
_UNGUARDED = re.compile(
    r"(?:.*[_-])?(?:(?:no|non|skip|disabled?|without|ignore|bypass|allow)[_-]?(?:auth|verif|check(?!out)|ssl|tls|secur"
    r"|safe|sandbox|polic|permission|validat|encrypt|signature|guard).*|insecure|unsafe|unrestricted|superuser)"
)
_CODE = re.compile(r"://|\$\(|<\(|os\.system|subprocess|fromhex")
# How like a word is to the one that it corrects.
_SPELLED = 0.85
_IDENTIFIER = re.compile(r"(?:[A-Za-z_][\w-]*=)?([A-Za-z_][\w.-]{0,40})")


def is_junk(item: MemoryItem) -> str | None:
    """Why an item is not worth recalling; None if nothing speaks against it.

    Returns:
        `empty`: no content, or a recovery without a call that helps;
        `transient`: it is about a transient error;
        `contradicted`: more sessions contradict than back it;
    """
    if not item.title.strip() or not item.content.strip() or (item.kind == "recovery" and item.remedy is None):
        return "empty"
    if item.against > item.support:
        return "contradicted"
    errors = [line.removeprefix(ERROR) for line in item.content.splitlines() if line.startswith(ERROR)]
    if item.kind == "recovery" and any(failure_of(item.tool, "", None, error).transient for error in errors):
        return "transient"
    return None


def is_verdict(tool: str, error: str, error_type: str | None = None) -> bool:
    """Whether a whole error says only *that* a call failed and not what is wrong.

    "Your answer is wrong" tells the next agent nothing, nor does "exit code 1". An error is informative if its message
    holds a code or number, or something quoted or written as programs write names; or if its class and its message
    together say more than "it failed", or that "it" is the tool.

    Args:
        error: the message.
        error_type: class of the error.
    """
    message = _ENDED.sub(" ", error)
    if _names(message):
        return False
    whole = f"{named_class(error_type)} {message}"
    said = [word for word in _words(whole) if word not in _EMPTY]
    return not said or (len(said) == 1 and said[0][:_STEM] in {word[:_STEM] for word in _words(tool)})


def named_class(error_type: str | None) -> str:
    """The class of an error where a program named it; empty for one that was made of the words of the message."""
    return error_type if error_type and _CLASS.fullmatch(error_type) else ""


@lru_cache(maxsize=8192)
def _names(message: str) -> bool:
    # An apostrophe within a word opens no quotation. A class that stands in the message is read as words.
    text = re.sub(r"\b(?:[A-Z]\w*)?(?:Error|Exception|Warning|Interrupt)\b", " ", _APOSTROPHE.sub("", message))
    return bool(_NAME.search(text))


@lru_cache(maxsize=8192)
def _words(text: str) -> tuple[str, ...]:
    return tuple(words(text, PLAIN_WORD))


def is_dangerous(call: Step, before: Step | None = None) -> bool:
    """Whether a call breaks a safety rule, names an address, or grants, deletes, pays, installs or fetches code, or
    does without a protection.

    Args:
        before: the call that it was made of: what that one does too, or misspells, is left out.
    """
    found = _harms(call.tool, call.arguments)
    if before is not None:
        meant = {*map(str.casefold, _COMMAND_WORD.findall(before.arguments)), *_harms(before.tool, before.arguments)}
        return not all(get_close_matches(each, meant, 1, _SPELLED) for each in found)
    return bool(found)


@lru_cache(maxsize=8192)
def _harms(tool: str, arguments: str) -> frozenset[str]:
    runs = _COMMAND_WORD.findall(arguments.casefold())
    return frozenset(
        [
            *_DOES.intersection(parts_of(tool)),
            *_RUNS.intersection(runs),
            *[word for word in runs if word.startswith("apt-") or _UNGUARDED.fullmatch(word)],
            *_CODE.findall(arguments),
            *dangers(tool, parsed(arguments)),
        ]
    )


def is_plain(was: Sequence[str], now: Sequence[str]) -> bool:
    """Whether a change puts plain names in the place of plain names, and nothing else.

    A name has no white space, path, option, address, code or placeholder in it. One with a dot is plain where it only
    qualifies, or is a sibling of, the name that it stands for (`pi` → `math.pi`); else it could be a host.
    """
    old, new = ([_IDENTIFIER.fullmatch(part) for part in parts] for parts in (was, now))
    if not old or not new or not all(old) or not all(new):
        return False
    before, after = ([match[1] for match in side if match is not None] for side in (old, new))
    return all(name not in ("true", "false") and ("." not in name or _is_of(name, before)) for name in after)


def _is_of(name: str, before: Sequence[str]) -> bool:
    owner, member = name.split(".")[0], name.split(".")[-1]
    return any(each in (owner, member) or each.split(".")[0] == owner for each in before)


def names_all(error: str, now: Sequence[str]) -> bool:
    """Whether the error itself names all that came."""
    values = [part.partition("=")[2] or part for part in now]
    return bool(values) and all(
        value in error and re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", error) for value in values
    )
