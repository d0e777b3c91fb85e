from __future__ import annotations

import numpy as np

from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.model import unpacked
from models.adapter.prototypes import goal_prototypes
from models.data.dataset import Example

LEARNED = [
    f"{first} in {name}; {then} of {name}; and {more} more"
    for first, then in (
        ("create the table", "rebuild the index"),
        ("restart the service", "read the log"),
        ("open a pull request", "merge the branch"),
    )
    for name in ("orders", "billing", "search")
    for more in (4, 26)
]


def similarity(goal: str) -> tuple[float, float]:
    """To the nearest centre of what was learned, and the least that is familiar."""
    encoder, zeros = shared_encoder(), np.zeros(1, dtype=np.int8)
    vectors = encoder.encode(LEARNED).astype(np.float16)
    familiar = goal_prototypes([Example("0", "a", row[None], zeros, ("",), ("t",), False) for row in vectors])
    prototypes = unpacked(familiar.centres, 256)
    return float((prototypes @ encoder.encode([goal])[0]).max()), familiar.least


def test_a_new_task_of_the_same_kinds_is_familiar_and_another_kind_is_not() -> None:
    same, least = similarity("rebuild the index in orders; restart the service of search; and 9 more")
    assert same >= least
    other, least = similarity("translate the poem into Finnish")
    assert other < least
