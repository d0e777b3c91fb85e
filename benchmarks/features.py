"""Say what each feature takes of a worker's stages: `python -m benchmarks.features`.

Logged runs go through all stages in memory, under a timer that looks at the stack (`benchmarks.sampling`). What a
feature calls is its own: the template that a recovery asks for counts for recoveries. Printed are shares, multiples of
`orjson.loads` over the same bytes, and rows an event of each collection. One pass a process: a second would find its
texts in the caches.
"""

from __future__ import annotations

import asyncio
import sys
import time
from types import CodeType

from benchmarks.pipeline import BATCH_RECORDS, decode_once
from benchmarks.sampling import Sampler, module_of
from benchmarks.traffic import traffic
from benchmarks.volumes import Flow

EVENTS = 60_000
# By where the code lies: the outermost that a stack has counts, and the innermost of the rest where it has none.
FEATURES = {
    "models/distil/recovery": "what got past a failure",
    "models/memory/identities": "end users' data in what is told",
    "fleetlore/redact/": "secrets",
    "fleetlore/fingerprint/loops": "circles",
    "fleetlore/fingerprint/": "patterns: class, template, ids",
    "models/memory/pattern_state": "patterns and health: counts, rows",
    "models/memory/item_state": "items: evidence, rows",
    "models/judge/": "verdict and state of a session",
    "streams/stages/s1_sessions/parse": "decode, validate",
    "streams/stage/base": "JSON from stage to stage",
    "fleetlore/wire/trajectory": "JSON from stage to stage",
    "sinks/producer": "JSON from stage to stage",
}
STAGES = {
    "models/distil/": "names that were looked up, ways that solved a task",
    "streams/stages/s1_sessions/": "sessions, the rest",
    "streams/stages/s3_judgments": "judgments, the rest",
    "streams/stage/": "states: cache, what waits",
    "streams/stages/": "states: cache, what waits",
}


def feature(stack: tuple[CodeType, ...]) -> str:
    """The feature of a stack, innermost frame first."""
    modules = [module_of(code) for code in stack]
    for named, found in ((FEATURES, reversed(modules)), (STAGES, modules)):
        for module in found:
            for path, name in named.items():
                if module.startswith(path):
                    return name
    return "other"


async def main(events: int) -> None:
    sent = traffic(events)
    print(sent.describe())
    flow = Flow()
    with Sampler(depth=40) as sampler:
        before = time.process_time()
        for start in range(0, len(sent.records), BATCH_RECORDS):
            await flow.work(sent.records[start : start + BATCH_RECORDS])
        await flow.work([])
        spent = time.process_time() - before
    loads = decode_once(sent.records)
    print(f"{spent / sent.events * 1e6:.1f} µs of CPU an event, {spent / loads:.1f} × orjson.loads")
    for name, share in sampler.shares(feature).items():
        print(f"| {name} | {share:.1%} | {share * spent / loads:.1f} × |")
    for collection, rows in flow.store.upserts.items():
        print(f"{collection}: {rows / sent.events:.3f} rows an event")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS))
