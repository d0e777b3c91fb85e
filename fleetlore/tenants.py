"""Check the name of a tenant: it becomes a part of the names of its topics."""

from __future__ import annotations

import re

from fleetlore.errors import ConfigError

DEFAULT_TENANT = "default"

# No dot: it separates the parts of a topic's name, so `a.b` could read the topics of a tenant `a`.
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")


def check_tenant(tenant: str) -> str:
    """Return `tenant` unchanged.

    Raises:
        ConfigError: it is not 1–63 of `a-z 0-9 _ -`, beginning with a letter or digit.
    """
    if not _TENANT.match(tenant):
        raise ConfigError(
            f"tenant {tenant!r} must be 1 to 63 of a-z, 0-9, '_' and '-', beginning with a letter or digit"
        )
    return tenant
