"""Small made-up sessions, and the advice that their agents got."""

from fleetlore.fingerprint.fingerprint import failure_of
from models.backtest import Call, CallLog, Heard, Told

SILENT = Told(named=None, way_out="", text="")


def call(text: str, said: str = "done", *, error: str | None = None, tool: str = "sql", before: str = "") -> Call:
    failure = None if error is None else failure_of(tool, text, "", error)
    return Call(tool, text, said if error is None else error, failure, before)


def log(
    *calls: Call,
    session: str = "s",
    agent: str = "a",
    task: str = "t",
    failed: bool | None = True,
    source: str = "shop",
) -> CallLog:
    return CallLog(session, source, agent, task, "count the cars", failed, calls)


def heard(of: CallLog, *before: Told, after: dict[int, Told] | None = None, start: Told = SILENT) -> Heard:
    silent = [SILENT] * (len(of.calls) - len(before))
    failed = {place: SILENT for place, each in enumerate(of.calls) if each.failure is not None}
    return Heard(of, start, (*before, *silent), failed | (after or {}))
