"""Keeps the Kafka client's log lines out of the agent's log.

While a broker is away, aiokafka logs several errors a second from every connection. That is right for a service whose
business is the broker, and a flood for an agent, which is told once by fleetlore's own log. Whoever sets the level of the
`aiokafka` logger gets all of it.
"""

from __future__ import annotations

import logging


def quiet_client_logs() -> None:
    """Silence aiokafka below CRITICAL, unless its level was set on purpose."""
    client = logging.getLogger("aiokafka")
    if client.level == logging.NOTSET:
        client.setLevel(logging.CRITICAL)
