"""List all boundaries, by name."""

from tests.fuzz import batches, files, followed, mcp, otlp, records, relay, sockets
from tests.fuzz.boundary import Boundary

BOUNDARIES: dict[str, Boundary] = {
    each.name: each
    for each in (
        records.RECORDS,
        batches.BATCHES,
        followed.FOLLOWED,
        relay.HTTP,
        relay.NATIVE,
        relay.HOOKS,
        sockets.SOCKETS,
        otlp.OTLP,
        mcp.MCP,
        files.LOGS,
        files.LORE,
        files.SETTINGS,
    )
}
