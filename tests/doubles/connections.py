"""The connections of a client that needs none."""

from types import SimpleNamespace

# Of one server, so that nobody looks which of several answers first.
ONE_SERVER = SimpleNamespace(hosts=[("nowhere", 1, 0)], _bootstrap_servers="nowhere:1", _security_protocol="PLAINTEXT")
