"""Run the whole fuzz suite: `python -m tests.fuzz.run [NAME...]`.

First the seeded run over all boundaries, with a process for each core. Then atheris looks at each boundary for a while,
where it is installed. A fault is printed with its seed and the smallest inputs that show it. The environment says more:

- `FUZZ_SEED`: of the seeded run; another one each time by default.
- `FUZZ_RECORDS`, `FUZZ_HTTP`, …: inputs of one boundary, in place of the full number.
- `FUZZ_GUIDED_SECONDS`: how long atheris looks at each boundary; 0: not at all.
"""

import faulthandler
import logging
import os
import secrets
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.util import find_spec
from multiprocessing import get_context
from typing import NamedTuple

from tests.fuzz.boundaries import BOUNDARIES
from tests.fuzz.boundary import answers, batch_of, smallest

# The characters of a failing input that are shown.
_SHOWN_CHARACTERS = 2_000
_GUIDED_SECONDS = "10"


class _Result(NamedTuple):
    name: str
    answers: Counter[str]
    cpu_seconds: float
    fault: str = ""


def _prepare() -> None:
    """Log nothing, end with the parent alone, and print where the interpreter itself ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.disable()
    faulthandler.enable()


def _check(name: str, seed: str, number: int, count: int) -> _Result:
    boundary, began = BOUNDARIES[name], time.process_time()
    inputs = batch_of(boundary, f"{seed}/{name}/{number}", count)
    try:
        return _Result(name, answers(boundary, inputs), time.process_time() - began)
    except Exception as error:
        fault = [f"{name}: batch {number} of seed {seed} fails:", traceback.format_exc().rstrip()]
        fault += [f"input: {each!r}"[:_SHOWN_CHARACTERS] for each in smallest(boundary, inputs, error)]
        return _Result(name, Counter(), time.process_time() - began, "\n".join(fault))


def _seeded(names: list[str], seed: str) -> bool:
    """Check all batches of these boundaries and print the table. Return whether no batch failed."""
    found = {name: Counter[str]() for name in names}
    seconds, faults = Counter[str](), 0
    planned = []
    for name in names:
        full = int(os.environ.get(f"FUZZ_{name.upper()}", BOUNDARIES[name].full))
        for start in range(0, full, BOUNDARIES[name].batch):
            planned.append((start / full, name, start, min(BOUNDARIES[name].batch, full - start)))
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), initializer=_prepare) as pool:
        # All boundaries side by side: a run that is stopped has looked at each of them.
        batches = [pool.submit(_check, name, seed, start, count) for _, name, start, count in sorted(planned)]
        try:
            for batch in as_completed(batches):
                result = batch.result()
                found[result.name] += result.answers
                seconds[result.name] += result.cpu_seconds
                if result.fault:
                    faults += 1
                    print(f"{result.fault}\n", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            print("Stopped: the table has what was checked by then.\n")
    print("| boundary | inputs | taken | refused, by reason | CPU seconds |\n| --- | --- | --- | --- | --- |")
    for name, answered in found.items():
        refused = ", ".join(f"{reason} {count:,}" for reason, count in answered.most_common() if reason != "taken")
        row = name, f"{answered.total():,}", f"{answered['taken']:,}", refused, f"{seconds[name]:.0f}"
        print(f"| {' | '.join(row)} |")
    done = sum(batch.done() and not batch.cancelled() for batch in batches)
    print(f"\n{faults} of {done} batches failed; {len(batches)} were planned.", flush=True)
    return not faults


def _guided(names: list[str]) -> bool:
    seconds = int(os.environ.get("FUZZ_GUIDED_SECONDS", _GUIDED_SECONDS))
    if not seconds:
        return True
    if find_spec("atheris") is None:
        print("atheris is not installed: it has no wheel for this Python or machine. The seeded run stands alone.")
        return True
    command = [sys.executable, "-m", "tests.fuzz.guided"]
    ended = [subprocess.run([*command, name, f"-max_total_time={seconds}"], check=False).returncode for name in names]
    print(f"atheris: {sum(map(bool, ended))} of {len(names)} boundaries failed.")
    return not any(ended)


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names, seed = sys.argv[1:] or list(BOUNDARIES), os.environ.get("FUZZ_SEED") or secrets.token_hex(4)
    print(f"Seed {seed}; the same run again: FUZZ_SEED={seed} python -m tests.fuzz.run {' '.join(names)}\n", flush=True)
    return 0 if _seeded(names, seed) & _guided(names) else 1


if __name__ == "__main__":
    sys.exit(main())
