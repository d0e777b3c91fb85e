"""The connections of a client that needs none."""

from types import SimpleNamespace

# One server only, so that no client races several of them.
ONE_SERVER = SimpleNamespace(hosts=[("nowhere", 1, 0)], _bootstrap_servers="nowhere:1", _security_protocol="PLAINTEXT")
