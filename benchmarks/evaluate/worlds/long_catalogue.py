"""Add three domains for long tasks to those of `benchmarks/demo/catalogue.toml`.

They are apart because a world draws its rules over its whole catalogue: one more entry there would give every seed
other rules, and the base that ships was trained in those worlds.
"""

from __future__ import annotations

from benchmarks.demo.catalogue import CATALOGUE, Catalogue, Fault, Job, Precondition, Remedy

MORE_PRECONDITIONS: dict[str, Precondition] = {
    "assignee": Precondition(
        Fault("409", "409 ticket {number} cannot change state: it has no assignee (request {hex})"),
        (
            Remedy("ticket_assign|desk.assign", {"group": "on-call"}, "assigned to on-call"),
            Remedy("ticket_assign|desk.assign", {"group": "triage"}, "assigned to triage"),
            Remedy("ticket_watch|desk.watch", {"mode": "all"}, "watching, {n} updates"),
        ),
        held=1,
        lasts=2,
    ),
    "desk-session": Precondition(
        Fault("440", "440 Login Time-out: the desk session {hex} ended at {clock}"),
        (
            Remedy("desk_login|desk.login", {"realm": "staff"}, "logged in to realm staff"),
            Remedy("desk_login|desk.login", {"realm": "guest"}, "logged in to realm guest"),
            Remedy("desk_refresh|desk.refresh", {"scope": "views"}, "{n} views refreshed"),
        ),
    ),
    "bucket-policy": Precondition(
        Fault("AccessDenied", "AccessDenied: no identity-based policy allows the action on {service}-{number}"),
        (
            Remedy("role_assume|storage.assume_role", {"role": "writer"}, "role writer until {clock}"),
            Remedy(
                "role_assume|storage.assume_role",
                {"role": "owner"},
                "role owner until {clock}",
                Fault("AccessDenied", "AccessDenied: agent-{n} is not authorized to assume role owner"),
            ),
            Remedy("bucket_acl|storage.set_acl", {"acl": "private"}, "acl is private"),
        ),
        held=0,
        lasts=3,
    ),
    "multipart": Precondition(
        Fault("NoSuchUpload", "NoSuchUpload: upload {hex} does not exist or was aborted"),
        (
            Remedy("upload_begin|storage.begin_upload", {"part_mb": 64}, "upload {hex} begun"),
            Remedy("upload_begin|storage.begin_upload", {"part_mb": 1}, "upload {hex} begun"),
            Remedy("upload_list|storage.list_uploads", {"state": "open"}, "{n} open uploads"),
        ),
        lasts=1,
    ),
    "calendar-lock": Precondition(
        Fault("423", "423 Locked: calendar {component} is being edited elsewhere since {clock}"),
        (
            Remedy("calendar_unlock|calendar.unlock", {"force": False}, "lock of {component} released"),
            Remedy(
                "calendar_unlock|calendar.unlock",
                {"force": True},
                "lock of {component} released",
                Fault("403", "403 Forbidden: a lock can be forced by its owner alone (request {hex})"),
            ),
            Remedy("calendar_sync|calendar.sync", {"range": "month"}, "{n} entries synchronized"),
        ),
        held=1,
        lasts=2,
    ),
    "timezone": Precondition(
        Fault("ValueError", "ValueError: offset-naive start for calendar {component}: no time zone is set"),
        (
            Remedy("calendar_set|calendar.configure", {"timezone": "UTC"}, "time zone is UTC"),
            Remedy("calendar_set|calendar.configure", {"timezone": "local"}, "time zone is local"),
            Remedy("calendar_sync|calendar.sync", {"range": "day"}, "{n} entries synchronized"),
        ),
    ),
}

MORE_DOMAINS: dict[str, tuple[Job, ...]] = {
    "tickets": (
        Job(
            "open a ticket for {service}",
            "ticket_open|desk.open",
            {"title": "{service} fails with code {number}", "component": "{component}"},
            "severity",
            ("s2", "high", 2),
            Fault("422", "422 field 'severity': {value} is not one of the project's levels (request {hex})"),
            "ticket {number} opened",
            ("desk-session",),
            networked=True,
        ),
        Job(
            "close ticket {number}",
            "ticket_close|desk.close",
            {"ticket": "{number}"},
            "resolution",
            ("fixed", "done", "wontfix"),
            Fault("400", "400 resolution '{value}' is not part of workflow wf-{n}"),
            "ticket {number} closed",
            ("assignee", "desk-session"),
            networked=True,
        ),
        Job(
            "add the log of {host} to ticket {number}",
            "ticket_attach|desk.attach",
            {"ticket": "{number}", "file": "/var/log/{host}.log"},
            "as_type",
            ("text", "gzip", "link"),
            Fault("415", "415 Unsupported Media Type: attachments of type '{value}' (request {hex})"),
            "attachment {hex}, {n} kB",
            ("assignee",),
            networked=True,
        ),
    ),
    "storage": (
        Job(
            "copy the backup of {service} to the bucket",
            "object_put|storage.put",
            {"bucket": "{service}-{number}", "key": "backup/{number}.tar"},
            "tier",
            ("standard", "cold", "archive"),
            Fault("InvalidStorageClass", "InvalidStorageClass: '{value}' is not offered in this region"),
            "etag {hex}",
            ("bucket-policy",),
            networked=True,
        ),
        Job(
            "upload the image of {host}",
            "object_upload|storage.upload",
            {"bucket": "{service}-{number}", "file": "/images/{host}.img"},
            "checksum",
            ("md5", "crc32c", "sha256"),
            Fault("BadDigest", "BadDigest: a {value} checksum is not accepted for part {n}"),
            "uploaded in {ms} ms, etag {hex}",
            ("multipart", "bucket-policy"),
            networked=True,
        ),
        Job(
            "share the report of {component}",
            "link_create|storage.share",
            {"bucket": "{service}-{number}", "key": "reports/{component}.pdf"},
            "hours",
            (1, 24, 168),
            Fault("400", "400 AuthorizationQueryParametersError: {value} hours are outside of the allowed range"),
            "link {hex} active",
            ("bucket-policy",),
            networked=True,
        ),
    ),
    "calendar": (
        Job(
            "book the review of {component}",
            "event_create|calendar.create",
            {"calendar": "{component}", "title": "review {number}"},
            "length",
            (30, "PT30M", "0:30"),
            Fault("TypeError", "TypeError: length {value} cannot be read as a duration (line {line})"),
            "event ev_{hex} booked",
            ("timezone", "calendar-lock"),
        ),
        Job(
            "move the maintenance of {host}",
            "event_move|calendar.move",
            {"event": "maintenance-{number}", "host": "{host}"},
            "notify",
            ("none", "owners", "all"),
            Fault("428", "428 Precondition Required: moves with notify={value} need the organizer"),
            "moved, {n} invitations",
            ("calendar-lock",),
        ),
        Job(
            "invite {queue} on-call to event {number}",
            "event_invite|calendar.invite",
            {"event": "ev-{number}", "group": "{queue}"},
            "role",
            ("required", "optional", "chair"),
            Fault("409", "409 Conflict: role '{value}' is taken in event ev-{number}"),
            "{n} invited",
            ("timezone",),
        ),
    ),
}

LONG_CATALOGUE = Catalogue(
    CATALOGUE.domains | MORE_DOMAINS,
    CATALOGUE.preconditions | MORE_PRECONDITIONS,
    CATALOGUE.entities,
    CATALOGUE.flaky,
)
