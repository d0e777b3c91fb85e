"""What the scripted world is made of: jobs, the choices they leave open, hidden preconditions and their remedies.

Plain data. A :class:`~streams.demo.world.World` picks, by its seed, which of it is active: which values of a choice are
refused, which preconditions hold back which job, and which of the plausible remedies really helps. So nothing here says what an
agent ought to do; two worlds of different seeds have different right answers under the same tools.

Texts are ``str.format`` templates. The names they use are the session's entities (``{service}``, ``{branch}``, ...), fresh
numbers of each call (``{n}``, ``{ms}``, ``{port}``, ``{hex}``, ``{line}``, ``{clock}``) and, in a refusal, ``{value}``. A tool's
name may list several wordings, parted by ``|``: a world settles on one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as the environment words it: ``kind`` is the OpenTelemetry ``error.type``, ``text`` its message."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Remedy:
    """A call that may establish a precondition; in a world where it does not, it does nothing, or fails with ``fault``."""

    tool: str
    arguments: dict[str, Any]
    result: str
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Precondition:
    """Something that must hold before a job works.

    ``held``: successful uses it is good for at the start of a session; ``lasts``: uses one remedy buys (None: for good).
    ``about``: the entity it is bound to, so that one installed package does not stand for another.
    """

    fault: Fault
    remedies: tuple[Remedy, ...]
    held: int = 0
    lasts: int | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One kind of subgoal: the tool that serves it, the argument left to the agent, and what may stand in the way."""

    aim: str
    tool: str
    arguments: dict[str, Any]
    choice: str
    values: tuple[Any, ...]
    refusal: Fault
    result: str
    needs: tuple[str, ...]
    networked: bool = False


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything a kind of world is drawn from, by name."""

    domains: Mapping[str, tuple[Job, ...]]
    preconditions: Mapping[str, Precondition]


ENTITIES: dict[str, tuple[str, ...]] = {
    "service": ("ledger", "checkout", "search", "billing", "gateway", "catalog", "invoices", "notifier"),
    "component": ("auth", "orders", "pricing", "stock", "reports", "mailer"),
    "table": ("orders", "payments", "customers", "shipments", "refunds"),
    "module": ("pandas", "httpx", "yaml", "sqlalchemy", "pyarrow", "lxml"),
    "host": ("build-17", "runner-3", "edge-204", "node-58", "ci-9"),
    "stack": ("network", "storage", "monitoring", "staging"),
    "queue": ("order-events", "stock-events", "mail-jobs", "audit-log"),
}

FLAKY: tuple[Fault, ...] = (
    Fault("503", "503 Service Unavailable: upstream connect error (request {hex}, {ms} ms)"),
    Fault("TimeoutError", "timed out after {ms} ms waiting for 10.2.{n}.7:{port}"),
    Fault("ConnectionResetError", "[Errno 104] Connection reset by peer (10.2.{n}.7:{port})"),
    Fault("502", "502 Bad Gateway: no healthy upstream at {clock}, trace {hex}"),
)

PRECONDITIONS: dict[str, Precondition] = {
    "package": Precondition(
        Fault(
            "ModuleNotFoundError",
            "Traceback: File \"/srv/{service}-{number}/jobs/main.py\", line {line}: No module named '{module}'",
        ),
        (
            Remedy(
                "pip_install|packages.pip",
                {"package": "{module}"},
                "Successfully installed {module}-2.{n}.0",
                Fault(
                    "1",
                    "error: externally-managed-environment: /usr/lib/python3 is managed by the system (exit code 1)",
                ),
            ),
            Remedy(
                "uv_add|packages.uv",
                {"package": "{module}"},
                "Installed 1 package in {ms} ms: {module}",
                Fault("2", "error: No `pyproject.toml` found in /srv/{service}-{number} or any parent (exit code 2)"),
            ),
            Remedy(
                "apt_install|packages.apt",
                {"package": "python3-{module}"},
                "Setting up python3-{module} (2.{n}-1)",
                Fault("100", "E: Unable to locate package python3-{module} (exit code 100)"),
            ),
        ),
        about="module",
    ),
    "fixtures": Precondition(
        Fault("1", "ERROR at setup of test_{component}_totals: fixture 'seeded_db' not found (exit code 1)"),
        (
            Remedy("fixtures_load|tests.load_fixtures", {"profile": "full"}, "{n} fixtures loaded"),
            Remedy("fixtures_load|tests.load_fixtures", {"profile": "minimal"}, "{n} fixtures loaded"),
            Remedy("cache_clear|tests.clear_cache", {"scope": "pytest"}, "cache of {n} MB removed"),
        ),
    ),
    "executable": Precondition(
        Fault("PermissionError", "[Errno 13] Permission denied: '/srv/{service}-{number}/bin/rollout.sh'"),
        (
            Remedy(
                "chmod|files.chmod", {"path": "/srv/{service}-{number}/bin/rollout.sh", "mode": "+x"}, "mode is 0755"
            ),
            Remedy(
                "chmod|files.chmod", {"path": "/srv/{service}-{number}/bin/rollout.sh", "mode": "+r"}, "mode is 0644"
            ),
            Remedy(
                "chown|files.chown",
                {"path": "/srv/{service}-{number}/bin/rollout.sh", "owner": "deploy"},
                "owner is deploy",
                Fault(
                    "1",
                    "chown: changing ownership of '/srv/{service}-{number}/bin/rollout.sh': Operation not permitted",
                ),
            ),
        ),
    ),
    "space": Precondition(
        Fault("OSError", "[Errno 28] No space left on device: '/var/tmp/pack-{hex}'"),
        (
            Remedy("files_clean|disk.clean", {"path": "/var/tmp"}, "{ms} MB freed in /var/tmp"),
            Remedy("logs_rotate|disk.rotate_logs", {"keep_days": 7}, "{n} files rotated"),
            Remedy(
                "volume_resize|disk.resize",
                {"volume": "data", "grow_gb": 10},
                "volume data has {ms} GB",
                Fault("422", "422 volume 'data' cannot be resized while attached to {host}"),
            ),
        ),
        held=1,
        lasts=2,
    ),
    "upstream": Precondition(
        Fault("1", "! [rejected] {branch} -> {branch} (fetch first): the remote has {n} commits that you do not have"),
        (
            Remedy("git_pull", {"remote": "origin", "rebase": True}, "Rebased {n} commits onto {hex}"),
            Remedy("git_fetch", {"remote": "origin", "prune": True}, "From origin: {hex}..{hex} {branch}"),
            Remedy(
                "git_pull",
                {"remote": "origin", "rebase": False},
                "Merge made by the 'ort' strategy: {n} files changed",
                Fault("128", "fatal: Need to specify how to reconcile divergent branches (exit code 128)"),
            ),
        ),
    ),
    "identity": Precondition(
        Fault("128", "fatal: unable to auto-detect email address (got 'root@{host}.(none)') (exit code 128)"),
        (
            Remedy("git_config", {"key": "user.email", "scope": "global"}, "user.email is set"),
            Remedy("git_config", {"key": "user.name", "scope": "global"}, "user.name is set"),
            Remedy("git_config", {"key": "user.email", "scope": "local"}, "user.email is set"),
        ),
    ),
    "clean-tree": Precondition(
        Fault("1", "error: Your local changes to src/{component}/views.py would be overwritten by merge. Aborting"),
        (
            Remedy("git_stash", {"include_untracked": True}, "Saved working directory: WIP on {branch}: {hex}"),
            Remedy("git_stash", {"include_untracked": False}, "Saved working directory: WIP on {branch}: {hex}"),
            Remedy("git_clean", {"force": True}, "Removing build/{hex}"),
        ),
    ),
    "handle": Precondition(
        Fault("InvalidCursorName", 'cursor "c_{hex}" does not exist: the session was reset at {clock}'),
        (
            Remedy("db_connect|sql.connect", {"database": "main", "fresh": True}, "connected, cursor c_{hex}"),
            Remedy("db_ping|sql.ping", {"database": "main"}, "pong in {ms} ms"),
            Remedy("db_rollback|sql.rollback", {"database": "main"}, "ROLLBACK"),
        ),
        held=1,
        lasts=2,
    ),
    "migration": Precondition(
        Fault("UndefinedTable", 'relation "{table}_history" does not exist (LINE {line})'),
        (
            Remedy("db_migrate|sql.migrate", {"revision": "head"}, "Running upgrade {hex} -> {hex}"),
            Remedy("db_migrate|sql.migrate", {"revision": "base"}, "Running downgrade {hex} -> base"),
            Remedy("db_analyze|sql.analyze", {"schema": "public"}, "ANALYZE"),
        ),
    ),
    "db-role": Precondition(
        Fault("InsufficientPrivilege", "permission denied for table {table} (SQLSTATE 42501)"),
        (
            Remedy("db_set_role|sql.set_role", {"role": "reporting"}, "SET"),
            Remedy(
                "db_set_role|sql.set_role",
                {"role": "admin"},
                "SET",
                Fault("InsufficientPrivilege", 'permission denied to set role "admin" (SQLSTATE 42501)'),
            ),
            Remedy(
                "db_grant|sql.grant", {"privilege": "SELECT", "schema": "public"}, "WARNING: no privileges were granted"
            ),
        ),
    ),
    "rate-limit": Precondition(
        Fault("429", "429 Too Many Requests: quota 'orders-read' of 60 requests is used up (request {hex})"),
        (
            Remedy("api_wait|http.wait", {"bucket": "orders-read"}, "waited {n} s, quota restored"),
            Remedy("api_wait|http.wait", {"bucket": "default"}, "waited {n} s"),
            Remedy("api_refresh|http.refresh_client", {"pool": "orders"}, "client {hex} ready"),
        ),
        held=1,
        lasts=2,
    ),
    "api-login": Precondition(
        Fault("401", "401 Unauthorized: access was granted until {clock} and has expired (request {hex})"),
        (
            Remedy("api_login|http.login", {"scope": "payments"}, "logged in as agent-{n}, scope payments"),
            Remedy("api_login|http.login", {"scope": "read"}, "logged in as agent-{n}, scope read"),
            Remedy("api_refresh|http.refresh_client", {"pool": "payments"}, "client {hex} ready"),
        ),
    ),
    "domain-verified": Precondition(
        Fault("403", "403 Forbidden: the domain hooks.{service}.example is not verified (request {hex})"),
        (
            Remedy("dns_verify|http.verify_domain", {"record": "TXT"}, "record TXT found after {ms} ms"),
            Remedy("dns_verify|http.verify_domain", {"record": "CNAME"}, "record CNAME found after {ms} ms"),
            Remedy("dns_flush|http.flush_dns", {"zone": "example"}, "{n} records flushed"),
        ),
    ),
    "cloud-login": Precondition(
        Fault("401", "401 no valid credentials for project prj-{number}: not logged in"),
        (
            Remedy("cloud_login|cloud.login", {"profile": "deploy"}, "logged in to prj-{number} as deploy"),
            Remedy("cloud_login|cloud.login", {"profile": "default"}, "logged in to prj-{number} as default"),
            Remedy(
                "cloud_login|cloud.login",
                {"profile": "sso"},
                "logged in to prj-{number} as sso",
                Fault("1", "could not open a browser on {host}: the sso profile needs one (exit code 1)"),
            ),
        ),
    ),
    "registry-login": Precondition(
        Fault("1", "denied: requested access to the resource {service}:{number} is denied (exit code 1)"),
        (
            Remedy("registry_login|images.login", {"server": "registry.example"}, "Login Succeeded"),
            Remedy("registry_login|images.login", {"server": "mirror.example"}, "Login Succeeded"),
            Remedy("image_tag|images.tag", {"tag": "stable"}, "tagged {hex}"),
        ),
    ),
    "fresh-plan": Precondition(
        Fault("1", "Error: Saved plan is stale: the state of {stack} moved from serial {n} to {line}"),
        (
            Remedy("infra_plan|infra.plan", {"refresh": True}, "Plan: {n} to add, 0 to destroy"),
            Remedy("infra_plan|infra.plan", {"refresh": False}, "Plan: {n} to add, 0 to destroy"),
            Remedy(
                "infra_unlock|infra.unlock",
                {"force": True},
                "state unlocked",
                Fault("1", "Error: failed to unlock the state: lock {hex} does not exist"),
            ),
        ),
        held=1,
        lasts=1,
    ),
    "sender": Precondition(
        Fault("553", "553 5.7.1 sender address rejected: not owned by user agent-{n}"),
        (
            Remedy("mail_verify|mail.verify_sender", {"identity": "team"}, "identity team verified"),
            Remedy("mail_verify|mail.verify_sender", {"identity": "personal"}, "identity personal verified"),
            Remedy("mail_login|mail.login", {"method": "plain"}, "235 2.7.0 accepted"),
        ),
    ),
    "schema": Precondition(
        Fault("409", "409 Conflict: subject '{queue}-value' has no schema of version {line} or later"),
        (
            Remedy("schema_register|queue.register_schema", {"compatibility": "backward"}, "schema id {n}"),
            Remedy(
                "schema_register|queue.register_schema",
                {"compatibility": "full"},
                "schema id {n}",
                Fault("422", "422 schema is incompatible with version {n}: reader field 'origin' has no default"),
            ),
            Remedy("queue_refresh|queue.refresh_metadata", {"cluster": "events"}, "{n} brokers"),
        ),
    ),
}

DOMAINS: dict[str, tuple[Job, ...]] = {
    "python": (
        Job(
            "run the import job of {service}",
            "python_run|run_python",
            {"script": "/srv/{service}-{number}/jobs/main.py"},
            "interpreter",
            ("python3", "python3.12", "pypy3"),
            Fault("FileNotFoundError", "[Errno 2] No such file or directory: '/opt/{value}/bin/run'"),
            "{n} rows imported in {ms} ms",
            ("package",),
        ),
        Job(
            "run the tests of {component}",
            "tests_run|tests.run",
            {"target": "tests/{component}"},
            "workers",
            (1, 4, "auto"),
            Fault("4", "ERROR: usage: unrecognized arguments: -n {value} (exit code 4)"),
            "{n} passed in {ms} ms",
            ("fixtures", "package"),
        ),
    ),
    "files": (
        Job(
            "run the rollout script on {host}",
            "shell_run|run_script",
            {"path": "/srv/{service}-{number}/bin/rollout.sh"},
            "shell",
            ("bash", "sh", "zsh"),
            Fault("2", "rollout.sh: line {line}: syntax error near unexpected token `(' in {value} (exit code 2)"),
            "rollout done in {ms} ms",
            ("executable",),
        ),
        Job(
            "pack the logs of {service}",
            "archive_create|files.pack",
            {"source": "/srv/{service}-{number}/logs"},
            "format",
            ("zip", "tar.gz", "7z"),
            Fault("127", "pack: {value}: command not found (exit code 127)"),
            "/backup/{service}-{number}: {ms} MB",
            ("space",),
        ),
        Job(
            "write the settings of {component}",
            "file_write|files.write",
            {"path": "/etc/{service}/{component}.toml", "content": "level = {number}"},
            "mode",
            ("overwrite", "append", "create"),
            Fault("FileExistsError", "[Errno 17] File exists: '/etc/{service}/{component}.toml' (mode '{value}')"),
            "{n} bytes written",
            ("space",),
        ),
    ),
    "git": (
        Job(
            "commit the change for ticket {number}",
            "git_commit",
            {"message": "fix({component}): ticket {number}"},
            "sign",
            (True, False),
            Fault(
                "128", "error: commit.gpgsign={value} is refused here: failed to write commit object (exit code 128)"
            ),
            "[{branch} {hex}] {n} files changed",
            ("identity",),
        ),
        Job(
            "merge the main branch into {branch}",
            "git_merge",
            {"branch": "{branch}", "from": "main"},
            "strategy",
            ("recursive", "squash", "ff-only"),
            Fault("128", "fatal: strategy '{value}' is not possible here, aborting (exit code 128)"),
            "Merge made: {n} files changed",
            ("clean-tree",),
        ),
        Job(
            "push {branch}",
            "git_push",
            {"remote": "origin", "branch": "{branch}"},
            "force",
            (True, False, "with-lease"),
            Fault("1", "remote: error: GH006: Protected branch update failed for refs/heads/{branch} (force: {value})"),
            "{hex}..{hex} {branch} -> {branch}",
            ("upstream",),
            networked=True,
        ),
    ),
    "database": (
        Job(
            "sum up the {table} of customer {number}",
            "db_query|sql.query",
            {"table": "{table}", "customer": "{number}"},
            "column",
            ("total", "amount_cents", "amount"),
            Fault("UndefinedColumn", 'column "{value}" does not exist (LINE {line}: SELECT sum({value}) FROM ...)'),
            "1 row: {ms}",
            ("handle",),
        ),
        Job(
            "record a correction in {table}",
            "db_insert|sql.insert",
            {"table": "{table}_history", "row": "{number}"},
            "amount_as",
            ("text", "integer", "numeric"),
            Fault("DatatypeMismatch", 'column "amount" is of another type, but the expression is of type {value}'),
            "INSERT 0 1",
            ("migration", "handle"),
        ),
        Job(
            "export {table}",
            "db_export|sql.export",
            {"table": "{table}", "target": "/backup/{table}-{number}"},
            "format",
            ("csv", "parquet", "json"),
            Fault("FeatureNotSupported", 'COPY format "{value}" not recognized'),
            "COPY {ms}",
            ("db-role",),
        ),
    ),
    "api": (
        Job(
            "fetch the orders of customer {number}",
            "orders_list|http.list_orders",
            {"customer": "{number}"},
            "page_size",
            (500, 100, 50),
            Fault("422", "422 Unprocessable Entity: page_size {value} is not allowed (request {hex})"),
            "{n} orders",
            ("rate-limit",),
            networked=True,
        ),
        Job(
            "refund order {number}",
            "refund_create|http.create_refund",
            {"order": "{number}", "amount": "{number}"},
            "unit",
            ("minor", "decimal", "string"),
            Fault("400", "400 schema mismatch at $.amount: unit '{value}' does not fit the contract (request {hex})"),
            "refund rf_{hex} created",
            ("api-login",),
            networked=True,
        ),
        Job(
            "register the webhook of {service}",
            "webhook_create|http.create_webhook",
            {"url": "https://hooks.{service}.example/in/{number}"},
            "version",
            ("v1", "v2", "beta"),
            Fault("410", "410 Gone: API version '{value}' is retired (request {hex})"),
            "webhook wh_{hex} active",
            ("domain-verified", "api-login"),
            networked=True,
        ),
    ),
    "cloud": (
        Job(
            "deploy {service} build {number}",
            "cloud_deploy|cloud.deploy",
            {"service": "{service}", "build": "{number}"},
            "strategy",
            ("rolling", "recreate", "canary"),
            Fault("400", "400 strategy '{value}' is not supported by the plan of prj-{number}"),
            "revision {service}-{hex} serves 100 %",
            ("cloud-login",),
            networked=True,
        ),
        Job(
            "publish the image {service}:{number}",
            "image_push|images.push",
            {"image": "{service}:{number}"},
            "platform",
            ("amd64", "arm64", "all"),
            Fault("1", "manifest unknown: no match for platform '{value}' in {service}:{number} (exit code 1)"),
            "digest sha256:{hex}{hex}",
            ("registry-login",),
            networked=True,
        ),
        Job(
            "apply the {stack} stack",
            "infra_apply|infra.apply",
            {"stack": "{stack}", "workspace": "ws-{number}"},
            "parallelism",
            (1, 10, 50),
            Fault("400", "400 parallelism {value} is outside the range of workspace ws-{number}"),
            "Apply complete: {n} added",
            ("fresh-plan", "cloud-login"),
            networked=True,
        ),
    ),
    "messages": (
        Job(
            "mail the report of {component}",
            "mail_send|mail.send",
            {"subject": "report {number}", "to": "{component}@example.org"},
            "attach",
            ("inline", "link", "zip"),
            Fault("552", "552 5.3.4 message size {ms} kB is over the fixed limit (attachment {value})"),
            "250 2.0.0 queued as {hex}",
            ("sender",),
            networked=True,
        ),
        Job(
            "publish the event of order {number}",
            "queue_publish|queue.publish",
            {"topic": "{queue}", "key": "{number}"},
            "encoding",
            ("json", "avro", "protobuf"),
            Fault("SerializationError", "cannot serialize key {number} as {value}: unknown magic byte at {line}"),
            "partition {n}, offset {ms}",
            ("schema",),
            networked=True,
        ),
    ),
}

CATALOGUE = Catalogue(DOMAINS, PRECONDITIONS)
