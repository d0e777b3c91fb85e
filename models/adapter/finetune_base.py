"""Train a base on a fleet's own logs, starting from the shipped base.

Logs are few, so what the shipped base knows need not be learned again. One session in five, by the trainer's hold-out
hash, is not learned: the figures are of these.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fleetlore.errors import ConfigError
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.risk.network import Base, base_to_bytes
from fleetlore.wire.trajectory import Judgment, Trajectory, Verdict
from models.adapter.pretrain import BATCH, pretrain
from models.data.dataset import examples_of
from models.promotion.metrics import predict


@dataclass(frozen=True, slots=True)
class OwnBase:
    """The weights, and figures on the held-out sessions.

    Attributes:
        sessions, held_out_sessions: sessions with a known end and a tool call; learned, and held out.
        held_out_steps, held_out_failures: tool calls behind the figures.
        auroc, cross_entropy: of P(this call fails); None if the held-out calls all ended alike.
        shipped_auroc: of the shipped base, on the same calls.
    """

    data: bytes
    sha256: str
    size_bytes: int
    seed: int
    steps: int
    sessions: int
    held_out_sessions: int
    held_out_steps: int
    held_out_failures: int
    auroc: float | None
    shipped_auroc: float | None
    cross_entropy: float | None

    def to_dict(self) -> dict[str, Any]:
        """Everything but the weights."""
        return {name: value for name, value in asdict(self).items() if name != "data"}


def own_base(
    trajectories: Sequence[Trajectory], encoder: StaticEncoder, shipped: Base, *, passes: int, seed: int
) -> OwnBase:
    """Train a base; the same sessions (in any order), passes and seed give the same bytes on one thread.

    Raises:
        ConfigError: fewer sessions than a batch, or their calls all worked or all failed.
    """
    examples = [e for each in trajectories if (j := _judged(each)) is not None for e in examples_of(j, encoder)]
    examples.sort(key=lambda example: example.key)
    learned = [example for example in examples if not example.held_out]
    sessions = {example.session for example in learned}
    if len(sessions) < BATCH:
        raise ConfigError(
            f"{len(sessions)} sessions with tool calls and a known end are left to learn from; a base needs {BATCH}"
        )
    if len({label for example in learned for label in example.failed.tolist() if label >= 0}) < 2:
        raise ConfigError("a base needs tool calls that failed and some that worked")
    steps = max(1, round(passes * len(learned) / BATCH))
    base = pretrain(learned, steps, seed=seed, start=shipped.network)
    held_out = [example for example in examples if example.held_out]
    now, before = predict(base.network, held_out), predict(shipped.network, held_out)
    data = base_to_bytes(base.network)
    return OwnBase(
        data=data,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        seed=seed,
        steps=steps,
        sessions=len(sessions),
        held_out_sessions=len({example.session for example in held_out}),
        held_out_steps=len(now.failed),
        held_out_failures=int(now.failed.sum()),
        auroc=_rounded(now.auroc),
        shipped_auroc=_rounded(before.auroc),
        cross_entropy=_rounded(now.cross_entropy),
    )


def own_card(made: OwnBase, shipped: Base, encoder: StaticEncoder) -> str:
    """The card beside the weights."""
    calls = f"{made.held_out_steps:,} calls of {made.held_out_sessions:,} sessions"
    return f"""# Base of the procedural memory, of own logs

| | |
| --- | --- |
| sha256 | `{made.sha256}` |
| size | {made.size_bytes:,} bytes |
| encoder | `{encoder.name}`, sha256 `{encoder.sha256}` |
| begun from | the base that ships, sha256 `{shipped.sha256}` |
| built by | `fleetlore pretrain`, {made.steps} steps, seed {made.seed} |
| learned from | {made.sessions:,} sessions |

| held out, one session in five by hash | this base | the one that ships |
| --- | --- | --- |
| AUROC of P(this call fails), {calls} | {_shown(made.auroc)} | {_shown(made.shipped_auroc)} |
| cross-entropy | {_shown(made.cross_entropy)} | |

Trainer and agents must have the same base: `FLEETLORE_BASE`. Adapters over another one are refused. Part of what a base
has learned can be read back from its weights: keep it where the logs may be.
"""


def _judged(trajectory: Trajectory) -> Judgment | None:
    """A judgment by the end that the log gives; None without one."""
    if trajectory.ending not in ("success", "failure"):
        return None
    label = trajectory.ending
    return Judgment(
        trajectory=trajectory,
        verdict=Verdict(label=label, probability=float(label == "success"), source="reward", version="log"),
    )


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
