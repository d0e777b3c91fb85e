from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.random_adapters import random_weights
from fleetlore.retrieval.encoder import Vectors
from fleetlore.risk.inference import NOTHING, InferenceEngine
from fleetlore.risk.network import (
    MAX_TOKENS,
    RiskNetwork,
    load_base,
    merge_lora,
    probe_answers,
    probe_inputs,
    read_adapter,
)

NETWORK = merge_lora(load_base().network, read_adapter(random_weights(5), 8), 2.0)


def reader_of(network: RiskNetwork) -> InferenceEngine:
    return InferenceEngine({name: tensor.numpy() for name, tensor in network.state_dict().items()})


READER = reader_of(NETWORK)


def texts(seed: int, count: int) -> Vectors:
    """Unit rows and, as for empty texts, zero rows."""
    chance = np.random.RandomState(seed)
    rows = chance.standard_normal((count, 256))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[chance.random_sample(count) < 0.1] = 0
    return rows.astype(np.float32)


@given(
    seed=st.integers(0, 2**31),
    count=st.integers(0, 15),
    asked=st.integers(1, 12),
    cut=st.integers(0, 31),
    more=st.integers(0, 31),
)
@settings(max_examples=60, deadline=None)
def test_candidates_after_a_kept_session_read_as_full_passes_do(
    seed: int, count: int, asked: int, cut: int, more: int
) -> None:
    session, candidates = texts(seed, 1 + 2 * count), texts(seed + 1, asked)
    prefix = NOTHING
    for part in (session[: cut + 1], session[cut + 1 :][:more]):
        prefix = READER.read(prefix, part, 0)[0]
    rest = session[len(prefix) :]
    after, chances, ineffective, signatures = READER.read(prefix, np.concatenate([rest, candidates]), asked)
    assert len(after) == len(session)
    for place, candidate in enumerate(candidates):
        with torch.inference_mode():
            full = NETWORK(torch.from_numpy(np.concatenate([session, candidate[None]]))[None])
        assert chances[place] == pytest.approx(torch.sigmoid(full.step[0, -1]).item(), abs=1e-5)
        assert ineffective[place] == pytest.approx(torch.sigmoid(full.session[0, -1]).item(), abs=1e-5)
        assert signatures[place] == pytest.approx(full.signature[0, -1].numpy(), abs=1e-5)


def test_the_probe_is_answered_as_the_network_does() -> None:
    for network in (load_base().network, NETWORK):
        engine = reader_of(network)
        found = np.concatenate([engine.steps(session) for session in probe_inputs(3)])
        assert found == pytest.approx(np.array(probe_answers(network, 3)), abs=1e-5)


def test_chances_of_any_size_are_numbers() -> None:
    """Logits far out: a sigmoid by exp would overflow, and a warning is an error."""
    weights = {name: tensor.numpy().copy() for name, tensor in NETWORK.state_dict().items()}
    for bias, chance in ((500, 1.0), (-500, 0.0)):
        weights["step_head.bias"][:] = bias
        assert InferenceEngine(weights).read(NOTHING, texts(1, 3), 2)[1] == [chance, chance]


def test_what_is_kept_is_never_written_to() -> None:
    session = texts(1, MAX_TOKENS)
    prefix = READER.read(NOTHING, session[:8], 3)[0]
    before = [array.copy() for array in (*prefix.keys, *prefix.values)]
    READER.read(prefix, session[5:9], 0)
    READER.read(prefix, session[5:9], 2)
    for array, copy in zip((*prefix.keys, *prefix.values), before, strict=True):
        assert (array == copy).all()


def test_threads_share_a_reader() -> None:
    sessions = [texts(seed, 31) for seed in range(4)]
    expected = [READER.read(NOTHING, session, 0)[0].keys[1] for session in sessions]
    wrong: list[int] = []

    def read(place: int) -> None:
        for _ in range(50):
            if not np.allclose(READER.read(NOTHING, sessions[place], 0)[0].keys[1], expected[place], atol=1e-5):
                wrong.append(place)

    threads = [threading.Thread(target=read, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


_READING = """
import time
import numpy as np
from fleetlore.risk.network import load_base
from fleetlore.risk.inference import NOTHING, InferenceEngine
reader = InferenceEngine({name: tensor.numpy() for name, tensor in load_base().network.state_dict().items()})
rows = np.ones((41, 256), np.float32) / 16
for turn in range(2):
    time.sleep(0.5)  # threads that BLAS has started wait busily at first
    everybody, asking = time.process_time(), time.thread_time()
    for count in range(1, 34):
        for _ in range(3):
            prefix = reader.read(NOTHING, rows[:count], min(8, count))[0]
            reader.read(prefix, rows[:9], 8)
print((time.process_time() - everybody) / (time.thread_time() - asking))
"""


def test_only_the_thread_that_asks_works() -> None:
    """With any number of BLAS threads: on a busy machine a call would otherwise wait for the others, 10 ms each."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    ran = subprocess.run(
        [sys.executable, "-c", _READING],
        env=environment | {"OPENBLAS_NUM_THREADS": "4"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(ran.stdout) < 1.1
