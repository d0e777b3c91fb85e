"""Turn judged sessions into training examples: vectors of goal, actions and outcomes, with their labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.risk.network import MAX_STEPS, TEXT_DIMENSIONS
from fleetlore.risk.session_texts import session_texts
from fleetlore.wire.adapter_manifest import Place
from fleetlore.wire.trajectory import Judgment, Step
from models.data.ineffective import ineffective_labels

UNLABELLED = -1
HELD_OUT_ONE_IN = 5
NOWHERE = Place(-1, -1, -1)
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Example:
    """One session, or a window of a long one.

    Attributes:
        key: hash of tenant, session and window. It decides what is held out and what a buffer keeps, whatever the order
            of arrival.
        vectors: float16 (1 + 2n, 256): goal, action 1, outcome 1, …
        failed: int8 (n): 1 the step failed, 0 it worked, -1 no label (transient, or labelled in the window before).
        contrast: per step, what went wrong with which tool (or that the tool worked).
        tools: per step.
        session_failed: the verdict.
        domain: kind of work: the first word of the task's name.
        patterns: per step, id of the failure's class; empty where it worked.
        place: record offset on `judgments`.
        ineffective: int8 (n): as in `models.data.ineffective`.
    """

    key: str
    agent: str
    vectors: npt.NDArray[np.float16]
    failed: npt.NDArray[np.int8]
    contrast: tuple[str, ...]
    tools: tuple[str, ...]
    session_failed: bool
    domain: str = ""
    patterns: tuple[str, ...] = ()
    place: Place = NOWHERE
    ineffective: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))

    @property
    def session(self) -> str:
        """The part of the key that all windows of a session share."""
        return self.key[:32]

    @property
    def start(self) -> int:
        """Number of its first step in the session."""
        return int(self.key[32:], 16)

    @property
    def held_out(self) -> bool:
        return int(self.key[:8], 16) % HELD_OUT_ONE_IN == 0

    @property
    def stratum(self) -> tuple[str, bool]:
        """Tool and outcome it stands for: the first failed step's tool, else the last one's."""
        failures = np.flatnonzero(self.failed == 1)
        return self.tools[int(failures[0]) if len(failures) else -1], bool(len(failures))


def examples_of(judgment: Judgment, encoder: StaticEncoder, place: Place = NOWHERE) -> list[Example]:
    """The session's examples: none without a tool call, several if it has more steps than the network reads.

    Windows overlap by half, so each step has its past; each step is labelled in one window only. All windows of a
    session are held out together.
    """
    trajectory = judgment.trajectory
    steps = trajectory.calls
    if not steps:
        return []
    vectors = encoder.encode(session_texts(trajectory.goal, steps)).astype(np.float16)
    key = session_key(trajectory.tenant, trajectory.id)
    word = _WORD.search(trajectory.task)
    examples: list[Example] = []
    ineffective = np.array(ineffective_labels(steps), dtype=np.int8)
    labelled_until = 0
    for start in range(0, max(1, len(steps) - MAX_STEPS // 2), MAX_STEPS // 2):
        window = steps[start : start + MAX_STEPS]
        failed = np.array([_label(step) for step in window], dtype=np.int8)
        labels_here = ineffective[start : start + MAX_STEPS].copy()
        for labels in (failed, labels_here):
            labels[: labelled_until - start] = UNLABELLED
        labelled_until = start + len(window)
        rows = [0, *range(1 + 2 * start, 1 + 2 * (start + len(window)))]
        examples.append(
            Example(
                key=f"{key}{start:04x}",
                agent=trajectory.agent,
                vectors=vectors[rows],
                failed=failed,
                contrast=tuple(step.family or f"ok {step.tool}" for step in window),
                tools=tuple(step.tool for step in window),
                session_failed=judgment.verdict.label == "failure",
                domain=word.group().lower() if word else "",
                patterns=tuple(step.pattern or "" for step in window),
                place=place._replace(window=len(examples)),
                ineffective=labels_here,
            )
        )
    return examples


def session_key(tenant: str, session: str) -> str:
    """The part of the key that all windows of a session share."""
    return blake2b(f"{tenant}\x1f{session}".encode(), digest_size=16).hexdigest()


def _label(step: Step) -> int:
    # A transient error is no label: learned, it would warn of calls that work a second later.
    return UNLABELLED if step.failed and step.transient else int(step.failed)


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples as tensors, padded to the right: b sessions, s steps, 1 + 2s tokens.

    Attributes:
        failed, contrast, ineffective: (b, s), -1 without a label; session_failed: (b,); length: steps of each.
        weight: (b,), of each step of a session.
    """

    vectors: Tensor
    failed: Tensor
    contrast: Tensor
    session_failed: Tensor
    length: Tensor
    weight: Tensor
    ineffective: Tensor


def collate(examples: Sequence[Example], weights: Sequence[float] | None = None) -> Batch:
    """Stack examples; contrast classes are numbered in the order of their names, weights are 1 by default."""
    longest = max(len(example.failed) for example in examples)
    classes = {name: index for index, name in enumerate(sorted({name for e in examples for name in e.contrast}))}
    vectors = np.zeros((len(examples), 1 + 2 * longest, TEXT_DIMENSIONS), dtype=np.float32)
    failed = np.full((len(examples), longest), UNLABELLED, dtype=np.int64)
    contrast = np.full((len(examples), longest), UNLABELLED, dtype=np.int64)
    ineffective = np.full((len(examples), longest), UNLABELLED, dtype=np.int64)
    for row, example in enumerate(examples):
        vectors[row, : len(example.vectors)] = example.vectors
        failed[row, : len(example.failed)] = example.failed
        ineffective[row, : len(example.ineffective)] = example.ineffective
        contrast[row, : len(example.failed)] = [classes[name] for name in example.contrast]
    contrast[failed == UNLABELLED] = UNLABELLED
    return Batch(
        vectors=torch.from_numpy(vectors),
        failed=torch.from_numpy(failed),
        contrast=torch.from_numpy(contrast),
        session_failed=torch.tensor([float(example.session_failed) for example in examples]),
        length=torch.tensor([len(example.failed) for example in examples]),
        weight=torch.ones(len(examples)) if weights is None else torch.tensor(list(weights), dtype=torch.float32),
        ineffective=torch.from_numpy(ineffective),
    )
