"""Say whether a call could do harm: one table of words, the safety rules, and addresses.

A word of such a call waits for three principals. A call is judged as it was made, since a mask may hide the danger, and
by verb and object together: to pay another is to pay.
"""

from __future__ import annotations

import re
from functools import lru_cache

from fleetlore.fingerprint.fingerprint import parsed
from fleetlore.watch.safety import dangers
from fleetlore.words import parts_of

__all__ = ["is_harmful"]

_WORD = re.compile(r"[A-Za-z][\w-]*")
# Words of the tool's name, and of the arguments.
_HARM = {
    "grant": (
        "grant revoke authorize authorise permit policy admin role owner",
        "grant revoke sudo su doas privileged chmod chown setfacl usermod useradd adduser passwd visudo "
        "authorized_keys id_rsa clusterrolebinding secret",
    ),
    "unguard": (
        "disable bypass override",
        "setenforce ufw iptables",
    ),
    "delete": (
        "delete drop destroy purge remove wipe erase truncate",
        "delete drop truncate rm rmdir shred",
    ),
    "stop": ("kill stop", "kill pkill killall shutdown reboot cron crontab systemctl launchctl"),
    "pay": ("pay payment transfer refund charge buy purchase", ""),
    "leak": ("send upload", "ssh scp sftp rsync nc ncat netcat telnet"),
    "fetch code": (
        "install download",
        "install npx uvx curl wget iwr irm iex clone docker podman kubectl helm aws gcloud az apt yum dnf apk brew "
        "hookspath index-url registry",
    ),
    "run": ("invoke exec eval sudo", "eval base64 powershell pwsh"),
}
_IN_NAMES, _IN_ARGUMENTS = (frozenset(" ".join(words).split()) for words in zip(*_HARM.values(), strict=True))
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
