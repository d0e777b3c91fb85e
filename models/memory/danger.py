"""Judge a call as the session made it: could it do harm, and does a change bring nothing but a name?

What an item shows is masked, and a mask may hide what is dangerous (`chmod <number>`, the host of a download). So the
verdict is made where the call is known whole, and goes with the contribution. It decides how many agents must have done
the same before it is told (`models.memory.consolidation`); no list of words decides alone whether a call is safe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache

from fleetlore.fingerprint.fingerprint import parsed
from fleetlore.watch.safety import dangers
from fleetlore.wire.trajectory import Step

_TOOL_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_WORD = re.compile(r"[A-Za-z][\w-]*")
# What a tool does that changes something outside, or for good.
_DOES = frozenset(
    _WORD.findall(
        "grant revoke authorize authorise permit disable bypass override policy delete drop destroy purge remove wipe "
        "erase kill stop pay payment send transfer refund charge buy purchase install download upload invoke exec "
        "eval sudo admin"
    )
)
# Commands that do so, or that fetch and run what others wrote; `apt-get` is one too.
_RUNS = frozenset(
    _WORD.findall(
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


def is_dangerous(call: Step, before: Step | None = None) -> bool:
    """Whether a call breaks a safety rule, names an address, or grants, deletes, pays, installs or fetches code, or
    does without a protection.

    Args:
        before: the call that it was made of: what that one does too, or misspells, is left out.
    """
    found = _harms(call.tool, call.arguments)
    if before is not None:
        meant = {*map(str.casefold, _WORD.findall(before.arguments)), *_harms(before.tool, before.arguments)}
        return not all(get_close_matches(each, meant, 1, _SPELLED) for each in found)
    return bool(found)


@lru_cache(maxsize=8192)
def _harms(tool: str, arguments: str) -> frozenset[str]:
    does = [word.casefold() for word in _TOOL_WORD.findall(tool)]
    runs = _WORD.findall(arguments.casefold())
    return frozenset(
        [
            *_DOES.intersection(does),
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
