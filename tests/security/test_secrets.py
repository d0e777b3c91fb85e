"""Secrets of rules of others are masked in the notations of others, wherever a stage reads; the rest stays whole."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import orjson

from benchmarks.secrets import Planted
from benchmarks.security import corpora
from fleetlore.redact.redact import may_hold_secret, redact
from fleetlore.redact.values import redact_value
from fleetlore.wire.decode import MESSAGE, OUTCOME, Data, Incoming
from streams.stages.s1_sessions.parse import clean
from tests.rows import for_each

TOKEN = "ghp_" + "a1B2" * 9


@for_each(
    "corpus, least",
    (corpora.vendors, 0.98),
    (corpora.forms_of_others, 0.98),
    (corpora.named, 0.97),
    (corpora.said, 0.92),
)
def test_secrets_are_masked(corpus: Callable[[Random, int], Iterator[Planted]], least: float) -> None:
    planted = list(corpus(Random(5), 10))
    missed = [each for each in planted if each.is_left_in(redact(each.text))]
    assert len(missed) <= (1 - least) * len(planted), missed[:5]
    # The first look at many events opens those that hold one.
    unseen = [each for each in planted if each not in missed and not may_hold_secret([orjson.dumps(each.text)])]
    assert len(unseen) <= 0.002 * len(planted), unseen[:5]


def test_one_password_with_a_sign_in_it_is_masked_in_the_notations() -> None:
    password = "Tr0ub4dor&3x"
    masked = [redact(notation.format(password)) for notation in corpora.NOTATIONS]
    left = [text for text in masked if "Tr0ub4" in text or "or&3x" in text]
    assert len(left) <= 0.05 * len(masked), left


# Arguments of commands and functions, from the manuals of their tools. `{}`: the password.
ARGUMENTS = Path(__file__).parents[1] / "data" / "password_arguments.jsonl"
NO_SECRETS = (
    "enable password reset for users", "the password policy requires 12 characters", "PIN: see manual",
    "docker run -u 1000 -p 8080:80 x", "ssh -p 2222 h", "mkdir -p a/b/c2024-x", "cp -p a1b2c3d4 b",
    "git log -p abc123def", "nmap -p 1-65535 h", "repo/name:22-alpine@sha256:abcdef", "user/repo:v1.2.3-rc1@main",
    "?code=INVALID_REQUEST_ERR", "PASS test_login1", "a1 LOGIN failed", "page.fill('#name', 'Tr0ub4dor-zebra')",
    "user ann created", "7z x archive.7z", "with password authentication enabled", "type text in Password field",
    "hydra config -p path/to/conf2", "connect('db1.internal', 'orders-2024')", "password column users2024",
    "net use Z: \\\\h\\share /user:ann",
)  # fmt: skip


def test_passwords_among_arguments_are_masked() -> None:
    password = "Tr0ub4dor-zebra"
    for line in ARGUMENTS.read_text().splitlines():
        text = orjson.loads(line).replace("{}", password)
        masked = redact(text)
        assert password not in masked and redact(masked) == masked, line
        assert may_hold_secret([orjson.dumps(text)]) == [0], line
    assert [text for text in NO_SECRETS if redact(text) != text] == []


def test_what_only_looks_random_stays_whole() -> None:
    texts = list(corpora.harmless(Random(6), 200))
    changed = [text for text in texts if redact(text) != text]
    assert len(changed) <= 0.001 * len(texts), changed[:5]


@for_each(
    "value",
    {"name": "DB_PASSWORD", "value": "Xk9hunter22Zq"},
    ["mysql", "--password", "Xk9hunter22Zq"],
    [["X-Api-Key", "Xk9hunter22Zq"]],
    {"password": {"value": "Xk9hunter22Zq"}},
    {"passwords": ["Xk9hunter22Zq"]},
    {"secrets": {"stripe": "Xk9hunter22Zq"}},
    {"columns": ["id", "password"], "rows": [[1, "Xk9hunter22Zq"], [2, "other-hunter22"]]},
    ["mysql", "-p", "Xk9hunter22Zq"],
    ["/usr/bin/sshpass", "-p", "Xk9hunter22Zq", "ssh"],
    {"value": "Xk9hunter22Zq", "name": "password"},
    {"element": "Password field", "ref": "e12", "text": "Xk9hunter22Zq"},
    {"selector": "input[name='password']", "text": "Xk9hunter22Zq"},
    {"locator": "input[name=password]", "value": "Xk9hunter22Zq"},
)
def test_a_name_beside_or_around_a_secret_masks_it(value: Any) -> None:
    assert "hunter22" not in str(redact_value(value))
    assert may_hold_secret([orjson.dumps(value)]) == [0]


def test_every_string_that_a_stage_reads_is_masked_for_clients_that_do_not_mask() -> None:
    names = {"error_type", "adapter", "role", "guard", "place", "error_message", "goal", "task", "content"}
    for kind in (OUTCOME, MESSAGE):
        data = Data(tool=f"run {TOKEN}", advice=[TOKEN], withheld=[TOKEN], **dict.fromkeys(names, f"a {TOKEN}"))
        event = Incoming(
            specversion="1.0",
            type=kind,
            agent=f"agent {TOKEN}",
            session=f"session {TOKEN}",
            sequence=0,
            time=datetime.fromtimestamp(0, UTC),
            data=data,
        )
        clean([event])
        read = names - {"goal", "task", "content"} if kind == OUTCOME else names - {"error_message"}
        for name in (*read, "tool", "advice", "withheld"):
            assert TOKEN not in str(getattr(data, name)), name
        assert TOKEN not in event.agent + event.session
