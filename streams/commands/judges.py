"""Run `fleetlore judges`: compare each judge with feedback and rewards."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import typer

from fleetlore.cli.options import Asked, Data, Json, Milvus, Tenant, connection
from fleetlore.cli.output import Columns, ask, print_list

if TYPE_CHECKING:
    from fleetlore.config import Settings
    from models.judge.record import JudgeRecord


def register(app: typer.Typer) -> None:
    """Add the command (entry point `judges`)."""
    app.command()(judges)


def judges(milvus: Milvus = None, data: Data = None, tenant: Tenant = "default", json: Json = False) -> None:
    """Show how often each judge agreed with feedback and rewards."""
    rows = tally(ask(_read(connection(None, data, milvus), tenant)))
    nothing = (
        f"No judge of tenant {tenant} has been measured yet: no session that it judged also has feedback or a reward."
    )
    print_list(Asked(tenant=tenant, json=json), "judges", rows, _COLUMNS, nothing=nothing, as_json=dict)


_COLUMNS: Columns = {
    "JUDGE": itemgetter("judge"),
    "TOOLS": lambda row: row["tools"] or "-",
    "SAID": itemgetter("said"),
    ">RIGHT": itemgetter("right"),
    ">WRONG": itemgetter("wrong"),
    ">WRONG, 95 %": lambda row: f"{row['low']:.0%}–{row['high']:.0%}",
    "": lambda row: "[silenced]" if row["silenced"] else "",
}


def tally(records: Iterable[JudgeRecord]) -> list[dict[str, Any]]:
    """A row for each version of a judge, family of tools and label, the records of all partitions together.

    Whether a judge is silenced is decided on each partition by what its own record says.
    """
    from fleetlore.stats.intervals import wilson
    from models.judge.record import JudgeRecord

    merged: dict[tuple[str, str], JudgeRecord] = {}
    silenced: set[tuple[str, str, str]] = set()
    for record in records:
        key = record.version, record.family
        silenced |= {(*key, said) for said in record.silenced if record.source != "reward"}
        merged.setdefault(key, JudgeRecord(record.source, *key)).merge(record)
    rows = []
    for (version, family), record in sorted(merged.items()):
        matrix = record.matrix
        for said, other in (("failure", "success"), ("success", "failure")):
            right, wrong = matrix[said, said], matrix[said, other]
            low, high = wilson(wrong, right + wrong)
            if right + wrong:
                rows.append(
                    {
                        "judge": version,
                        "source": record.source,
                        "tools": family,
                        "said": said,
                        "right": right,
                        "wrong": wrong,
                        "low": low,
                        "high": high,
                        "silenced": (version, family, said) in silenced,
                    }
                )
    return rows


async def _read(settings: Settings, tenant: str) -> list[JudgeRecord]:
    from models.judge.record import JudgeRecord
    from sinks.milvus import MilvusStore
    from streams.stages.s3_judgments import LABEL

    async with MilvusStore.from_settings(settings) as store:
        return [
            JudgeRecord.from_json(row["state"]) async for row in store.rows("judgments", tenant, "state", label=LABEL)
        ]
