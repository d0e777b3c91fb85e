"""Show where CPU time goes, by a timer that interrupts the process and looks at its stack.

A tracing profiler makes small functions look expensive, and the hot path is made of them; a sample every millisecond of
CPU costs nothing that can be measured. What a C function takes is counted where it was called.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

INTERVAL_SECONDS = 0.001
ROOT = Path(__file__).parents[1]

# The step that the modules of a room, or one module, belong to: the first that a path begins with. The innermost module
# with a step decides; where none has one, the innermost of the project's own, so that nothing new hides behind "other".
STEPS = {
    "fleetlore/wire/events": "decode, validate",
    "streams/stages/s1_sessions/parse": "decode, validate",
    "fleetlore/redact/": "redact",
    "streams/stages/s1_sessions/sanitize": "redact",
    "fleetlore/fingerprint/": "pattern",
    "streams/stages/s1_sessions/": "session",
    "fleetlore/stats/": "observations",
    "models/memory/bottom_k": "observations",
    "models/judge/": "judge",
    "models/distil/": "distil",
    "fleetlore/wire/trajectory": "encode and decode between the stages",
    "streams/stages/s3_judgments": "encode and decode between the stages",
    "sinks/producer": "encode and decode between the stages",
}
OTHER = "other"


class Sampler:
    """Samples the process from `__enter__` to `__exit__`; use it in the main thread.

    Args:
        depth: how many frames of a stack are kept, the innermost.
    """

    def __init__(self, depth: int = 8) -> None:
        self._depth = depth
        self._stacks: Counter[tuple[CodeType, ...]] = Counter()

    def __enter__(self) -> Sampler:
        self._before = signal.signal(signal.SIGPROF, self._take)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)

    def _take(self, _: int, frame: FrameType | None) -> None:
        stack: list[CodeType] = []
        while frame is not None and len(stack) < self._depth:
            stack.append(frame.f_code)
            frame = frame.f_back
        self._stacks[tuple(stack)] += 1

    def steps(self) -> dict[str, float]:
        """Share of the CPU time by step, largest first."""
        return self.shares(_step)

    def functions(self) -> dict[str, float]:
        """Share by the innermost function of the project, largest first."""
        return self.shares(_function)

    def shares(self, name: Callable[[tuple[CodeType, ...]], str]) -> dict[str, float]:
        """Share by what a stack is called, innermost frame first; largest first."""
        counts: Counter[str] = Counter()
        for stack, samples in self._stacks.items():
            counts[name(stack)] += samples
        total = counts.total() or 1
        return {each: samples / total for each, samples in counts.most_common()}


def _step(stack: tuple[CodeType, ...]) -> str:
    own = [module for module in map(module_of, stack) if _is_own(module)]
    return next((step for module in own if (step := _step_of(module))), own[0] if own else OTHER)


@cache
def _step_of(module: str) -> str:
    return next((step for path, step in STEPS.items() if module.startswith(path)), "")


def _function(stack: tuple[CodeType, ...]) -> str:
    return next((f"{module_of(code)} {code.co_qualname}" for code in stack if _is_own(module_of(code))), OTHER)


def _is_own(module: str) -> bool:
    return not module.startswith(("/", "<", "benchmarks/"))


@cache
def module_of(code: CodeType) -> str:
    """Path below the project's root; as it is where it lies elsewhere."""
    return code.co_filename.removeprefix(f"{ROOT}/")
