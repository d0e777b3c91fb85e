from __future__ import annotations

import gc
import hashlib
import threading
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from benchmarks.random_adapters import manifest_for, random_call_model, random_weights
from fleetlore.agent.fleet import Fleet
from fleetlore.agent.history import KEPT_CALLS
from fleetlore.calls.context import CallContext, text_of
from fleetlore.calls.document import Document, Kind, Threshold
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel
from fleetlore.errors import AdapterRefused
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.model import KEPT_SESSIONS, PrefixCache, RiskModel, packed, unpacked
from fleetlore.risk.network import MAX_STEPS, read_adapter
from fleetlore.risk.outlook import Outlook, blended
from fleetlore.testing.clock import FakeClock
from fleetlore.wire.adapter_manifest import Blend, FailureSignature, GoalPrototypes, Probe, ProceduralManifest
from fleetlore.wire.trajectory import Step

STEPS = [
    Step(sequence=1, role="tool", tool="shell", arguments='{"cmd": "ls"}'),
    Step(
        sequence=2, role="tool", tool="shell", arguments='{"cmd": "rm"}', error_type="1", error_message="denied\nmore"
    ),
]
CANDIDATES: list[tuple[str, Any]] = [("shell", {"cmd": "sudo rm"}), ("unknown", {}), ("shell", '{"cmd": "rm"}')]


OTHERS = [Step(sequence=3, role="tool", tool="browser", arguments=f'{{"url": "{n}"}}') for n in range(4)]


def adapter(seed: int, **changes: Any) -> tuple[bytes, ProceduralManifest]:
    weights = random_weights(seed)
    return weights, manifest_for(weights, "acme", **changes)


GOING_ON = RiskModel()
GOING_ON.swap(*adapter(7))


def test_the_bare_base_abstains() -> None:
    assert RiskModel().failure_probabilities(STEPS, "clean up", CANDIDATES) == [None, None, None]
    assert RiskModel().version is None


def test_it_scores_the_tools_it_has_learned_and_no_other() -> None:
    risk_model = RiskModel()
    risk_model.swap(*adapter(1))
    first, unknown, last = risk_model.failure_probabilities(STEPS, "clean up", CANDIDATES)
    assert unknown is None
    assert first is not None and last is not None
    assert 0 < first < 1 and first != last


def test_a_score_does_not_depend_on_its_neighbours() -> None:
    risk_model = RiskModel()
    risk_model.swap(*adapter(1))
    together = risk_model.failure_probabilities(STEPS, "clean up", CANDIDATES)
    for candidate, expected in zip(CANDIDATES, together, strict=True):
        assert risk_model.failure_probabilities(STEPS, "clean up", [candidate])[0] == pytest.approx(expected, abs=1e-5)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_kept_of_sessions_changes_no_score(data: st.DataObject) -> None:
    """Sessions go on in turns, branch, slide out of the window and are forgotten: each score is as if asked alone."""
    risk_model = GOING_ON
    for _ in range(data.draw(st.integers(1, 6))):
        steps = data.draw(st.lists(st.sampled_from(STEPS + OTHERS), max_size=20))
        goal = data.draw(st.sampled_from(["clean up", "deploy"]))
        fresh = RiskModel()
        assert risk_model._current is not None
        fresh.apply(replace(risk_model._current, sessions=PrefixCache()))
        expected = fresh.failure_probabilities(steps, goal, CANDIDATES)
        for upto in range(max(0, len(steps) - 3), len(steps) + 1):
            found = risk_model.failure_probabilities(steps[:upto], goal, CANDIDATES)
        assert found == pytest.approx(expected, abs=1e-5)


def test_few_sessions_are_kept() -> None:
    risk_model = RiskModel()
    risk_model.swap(*adapter(1))
    for number in range(KEPT_SESSIONS + 9):
        risk_model.failure_probabilities(STEPS, f"goal {number}", CANDIDATES)
    assert risk_model._current is not None and len(risk_model._current.sessions._kept) == KEPT_SESSIONS


def test_a_swap_forgets_what_the_version_before_has_read() -> None:
    """The same session under three versions in turn: as fresh policies of each say."""
    risk_model = RiskModel()
    for seed in (1, 2, 1):
        alone = RiskModel()
        alone.swap(*adapter(seed))
        risk_model.swap(*adapter(seed))
        for steps in (STEPS[:1], STEPS):
            assert risk_model.failure_probabilities(steps, "g", CANDIDATES) == pytest.approx(
                alone.failure_probabilities(steps, "g", CANDIDATES), abs=1e-5
            )


def test_a_session_longer_than_the_network_reads_is_scored_by_its_end() -> None:
    risk_model = RiskModel()
    risk_model.swap(*adapter(1))
    expected = risk_model.failure_probabilities(STEPS * 50, "g", CANDIDATES)
    assert risk_model.failure_probabilities(STEPS * 100, "g", CANDIDATES) == pytest.approx(expected, abs=1e-5)


def test_no_candidates_no_scores() -> None:
    risk_model = RiskModel()
    risk_model.swap(*adapter(1))
    assert risk_model.failure_probabilities(STEPS, "g", []) == []


def test_swapping_changes_the_version_and_the_scores() -> None:
    risk_model = RiskModel()
    risk_model.swap(*adapter(1))
    before = risk_model.failure_probabilities(STEPS, "g", CANDIDATES)
    weights, manifest = adapter(2)
    risk_model.swap(weights, manifest)
    assert risk_model.version == manifest.version
    assert risk_model.failure_probabilities(STEPS, "g", CANDIDATES) != before


def familiar_with(*goals: str) -> GoalPrototypes:
    return GoalPrototypes(tuple(packed(vector) for vector in shared_encoder().encode(goals)), 0.8)


def test_it_abstains_on_goals_of_another_kind() -> None:
    risk_model = RiskModel()
    risk_model.swap(*adapter(1, familiar=familiar_with("clean up the build folder", "refund the order")))
    assert risk_model.failure_probabilities(STEPS, "refund the order", CANDIDATES)[0] is not None
    assert risk_model.failure_probabilities(STEPS, "translate the poem into Finnish", CANDIDATES) == [None, None, None]
    assert risk_model.risk(STEPS, "translate the poem into Finnish", "shell", {"cmd": "rm"}) is None


def test_it_says_what_is_in_vain_of_tools_that_the_version_has_shown_it_of() -> None:
    risk_model = RiskModel()
    risk_model.swap(*adapter(1))
    assert [None if seen is None else seen.ineffective for seen in risk_model.outlook(STEPS, "g", CANDIDATES)] == [
        None
    ] * 3
    risk_model.swap(*adapter(1, vain_tools=("shell",)))
    seen = risk_model.outlook(STEPS, "g", CANDIDATES)
    assert [None if each is None else each.fails for each in seen] == risk_model.failure_probabilities(
        STEPS, "g", CANDIDATES
    )
    assert all(each is None or (each.ineffective is not None and 0 <= each.ineffective <= 1) for each in seen)
    assert seen[0] is not None


def likely_to_fail() -> tuple[RiskModel, dict[str, str]]:
    """A policy and arguments of a call that it holds for risky."""
    risk_model = RiskModel()
    for seed in range(20):
        risk_model.swap(*adapter(seed))
        for arguments in ({"cmd": f"rm {n}"} for n in range(5)):
            if (risk_model.failure_probabilities(STEPS, "clean up", [("shell", arguments)])[0] or 0) > 0.6:
                return risk_model, arguments
    raise AssertionError("no seed gives a risky call")


def test_a_warning_names_the_nearest_failure_of_the_same_tool_and_its_hint() -> None:
    risk_model, arguments = likely_to_fail()
    (found,) = risk_model._read(risk_model._current, STEPS, "clean up", [("shell", arguments)])
    assert found is not None and risk_model.manifest is not None
    signature = found[1]
    other = np.roll(signature, 7)
    known = (
        FailureSignature("same", "shell", packed(signature)),
        FailureSignature("far", "shell", packed(other)),
        FailureSignature("elsewhere", "browser", packed(signature)),
    )
    assert risk_model._current is not None
    risk_model._current = replace(
        risk_model._current,
        manifest=structs.replace(risk_model.manifest, signatures=known),
        signatures=np.stack([signature, other, signature]),
    )
    risk = risk_model.risk(STEPS, "clean up", "shell", arguments, hint={"same": "ask first"}.get)
    assert risk is not None and (risk.pattern, risk.hint) == ("same", "ask first")
    assert risk.similarity == pytest.approx(1, abs=1e-3)
    assert risk.probability == risk_model.failure_probabilities(STEPS, "clean up", [("shell", arguments)])[0]


def test_a_warning_without_a_like_failure_names_none() -> None:
    risk_model, arguments = likely_to_fail()
    risk = risk_model.risk(STEPS, "clean up", "shell", arguments)
    assert risk is not None and risk.pattern is None and risk.hint is None
    assert risk_model.risk(STEPS, "clean up", "unknown", arguments) is None


def test_vectors_survive_their_text_form() -> None:
    vector = shared_encoder().encode(["refund the order"])[0]
    assert unpacked((packed(vector),), 256)[0] == pytest.approx(vector, abs=1e-3)
    assert unpacked((), 64).shape == (0, 64)


@pytest.mark.parametrize("text", ["%", "AAAA", packed(np.full(64, np.nan, dtype=np.float32))])
def test_an_odd_signature_is_refused(text: str) -> None:
    with pytest.raises(AdapterRefused, match="structure"):
        RiskModel().swap(*adapter(1, signatures=(FailureSignature("p", "shell", text),)))


def nan_weights() -> bytes:
    tensors = read_adapter(random_weights(1), 8)
    next(iter(tensors.values()))[0, 0] = float("nan")
    return bytes(safetensors.torch.save(tensors))


def with_base_key() -> bytes:
    tensors = read_adapter(random_weights(1), 8)
    return bytes(safetensors.torch.save(tensors | {"base_model.model.last_norm.weight": torch.ones(128).half()}))


def without_effect() -> bytes:
    tensors = read_adapter(random_weights(1), 8)
    return bytes(safetensors.torch.save({name: torch.zeros_like(tensor) for name, tensor in tensors.items()}))


def truthful(weights: bytes, **changes: Any) -> tuple[bytes, ProceduralManifest]:
    _, manifest = adapter(1)
    return weights, structs.replace(manifest, version=hashlib.sha256(weights).hexdigest(), **changes)


@pytest.mark.parametrize(
    ("weights", "manifest", "reason"),
    [
        (random_weights(2), adapter(1)[1], "tampered"),
        (random_weights(1)[:-100], adapter(1)[1], "tampered"),
        (b"x" * 17_000_000, adapter(1)[1], "oversized"),
        (*adapter(1, base_sha256="0" * 64), "foreign"),
        (*adapter(1, encoder_sha256="0" * 64), "foreign"),
        (*adapter(1, rank=4), "structure"),
        (*adapter(1, rank=0), "structure"),
        (*adapter(1, targets=("q",)), "structure"),
        (*truthful(b"not safetensors"), "structure"),
        (*truthful(random_weights(1)[:-100]), "structure"),
        (*truthful(with_base_key()), "structure"),
        (*truthful(nan_weights()), "not_finite"),
        (*adapter(1, alpha=32), "probe"),
        (*adapter(1, probe=Probe(1, (0.5,))), "probe"),
        (*truthful(random_weights(2)), "probe"),
        (*truthful(without_effect(), probe=Probe(1, adapter(1)[1].probe.expected)), "probe"),
    ],
)
def test_what_is_refused_leaves_the_old_version(weights: bytes, manifest: ProceduralManifest, reason: str) -> None:
    risk_model = RiskModel()
    risk_model.swap(*adapter(9))
    before = risk_model.version, risk_model.failure_probabilities(STEPS, "g", CANDIDATES)
    with pytest.raises(AdapterRefused) as refused:
        risk_model.swap(weights, manifest)
    assert refused.value.reason == reason
    assert (risk_model.version, risk_model.failure_probabilities(STEPS, "g", CANDIDATES)) == before


def test_policies_of_one_process_share_a_version_and_nothing_of_it_is_kept_after_them() -> None:
    one, other = RiskModel(), RiskModel()
    weights, manifest = adapter(31)
    one.swap(weights, manifest)
    own = structs.replace(manifest, tools=("shell",))
    loaded = other.prepare(weights, own)
    assert one._current is not None and loaded.engine is one._current.engine
    assert loaded.manifest is own  # what is not the network's is each policy's own
    kept = weakref.ref(loaded.engine)
    one.swap(*adapter(32))
    del loaded
    gc.collect()
    assert kept() is None


def test_a_shared_version_does_not_let_a_manifest_pass_that_says_otherwise() -> None:
    risk_model = RiskModel()
    weights, manifest = adapter(31)
    risk_model.swap(weights, manifest)
    for odd in (structs.replace(manifest, alpha=32), structs.replace(manifest, probe=Probe(1, (0.5,)))):
        with pytest.raises(AdapterRefused, match="probe"):
            RiskModel().prepare(weights, odd)


def test_an_adapter_without_effect_is_refused_though_its_probe_agrees() -> None:
    weights = without_effect()
    with pytest.raises(AdapterRefused, match="changes nothing"):
        RiskModel().swap(weights, manifest_for(weights, "acme"))


def test_no_call_ever_mixes_two_versions() -> None:
    risk_model = RiskModel()
    loaded = [risk_model.prepare(*adapter(seed)) for seed in (1, 2)]
    expected = set()
    for version in loaded:
        risk_model.apply(version)
        expected.add(tuple(risk_model.failure_probabilities(STEPS, "g", CANDIDATES)))
    done = threading.Event()

    def swap() -> None:
        while not done.wait(0.0005):
            for version in loaded:
                risk_model.apply(version)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen = {tuple(risk_model.failure_probabilities(STEPS, "g", CANDIDATES)) for _ in range(200)}
    finally:
        done.set()
        swapping.join()
    assert seen <= expected


async def test_a_session_asks_the_policy_with_its_own_calls() -> None:
    risk_model, arguments = likely_to_fail()
    fleet = Fleet("agent", broker="nowhere:1", clock=FakeClock(1000.0))
    subscriber: Any = SimpleNamespace(holder=risk_model, version=risk_model.version, apply_pending=lambda: None)
    fleet.adapters.procedural = subscriber
    async with fleet.session(goal="clean up") as session:
        async with session.action("shell", {"cmd": "ls"}):
            pass
        async with session.action("shell", {"cmd": "rm"}) as action:
            action.fail("1", "denied\nmore")
        calls = [("shell", arguments), ("unknown", {})]
        denied = failure_of("shell", {"cmd": "rm"}, "1", "denied\nmore").error_class
        steps = [STEPS[0], structs.replace(STEPS[1], error_type=denied)]
        assert session.outlook(calls) == risk_model.outlook(steps, "clean up", calls)
        assert session.risk(*calls[0]) == risk_model.risk(steps, "clean up", *calls[0])
        assert session.risk(*calls[1]) is None
    fleet.adapters.procedural = None
    async with fleet.session(goal="clean up") as session:
        assert session.outlook(calls) == [None, None]
        assert session.risk(*calls[0]) is None


def test_the_network_is_heard_only_where_it_adds_to_the_call_model() -> None:
    blend = Blend("shell", "after_failure", 0.5, 1.0, 0.1, 3.0)
    risk_model = RiskModel()
    line = [0.7, 0.2, None]
    assert risk_model.outlook(STEPS, "g", CANDIDATES, line) == [Outlook(0.7), Outlook(0.2), None]
    risk_model.swap(*adapter(1, blends=(blend,)))
    alone = risk_model.failure_probabilities(STEPS, "g", CANDIDATES)
    seen = risk_model.outlook(STEPS, "g", CANDIDATES, line)
    # A blend; a tool that the network does not know; one that the call model does not know.
    assert seen == [Outlook(blended(blend, 0.7, alone[0] or 0.0)), Outlook(0.2), Outlook(alone[2] or 0.0)]
    assert risk_model.outlook(STEPS[:1], "g", CANDIDATES[:1], [0.7]) == [Outlook(0.7)]
    assert risk_model.adds_to("shell", "after_failure") and not risk_model.adds_to("shell", "after_success")
    assert not risk_model.adds_to("browser", "after_failure")


def test_a_warning_is_of_the_chance_that_both_give() -> None:
    risk_model, arguments = likely_to_fail()
    risk = risk_model.risk(STEPS, "clean up", "shell", arguments, line=0.9)
    assert risk is not None and risk.probability == 0.9
    assert risk_model.risk(STEPS, "clean up", "shell", arguments, line=0.1) is None


def agent_with(risk_model: RiskModel | None, model: CallModel) -> Fleet:
    fleet = Fleet("agent", broker="nowhere:1", clock=FakeClock(1000.0))
    calls: Any = SimpleNamespace(holder=SimpleNamespace(model=model), version="v", apply_pending=lambda: None)
    fleet.adapters.calls = calls
    if risk_model is not None:
        procedural: Any = SimpleNamespace(holder=risk_model, version=risk_model.version, apply_pending=lambda: None)
        fleet.adapters.procedural = procedural
    return fleet


async def test_an_agent_hears_both_after_a_failure_and_the_call_model_elsewhere() -> None:
    threshold = Threshold("shell", "after_failure", 0.5, 30, 30)
    kinds: dict[str, Any] = {"kind_texts": (Kind("shell", "denied"),), "kind_counts": (9,)}
    document = Document.from_bytes(random_call_model(0))
    model = CallModel(msgspec.structs.replace(document, thresholds=(threshold,), **kinds))
    risk_model = RiskModel()
    sure = Blend("shell", "after_failure", 0.0, 0.0, 9.0, 3.0)  # so that the network makes a difference
    risk_model.swap(*adapter(1, blends=(sure,)))
    asked: list[tuple[str, object]] = [("shell", {"cmd": "rm"})]
    for network in (risk_model, None):
        fleet = agent_with(network, model)
        async with fleet.session(goal="clean up") as session:
            (before,) = session.outlook(asked)
            line = model.outlook(Call.made("shell", '{"cmd":"rm"}'), CallContext("clean up"))
            assert before is not None and line is not None and before.fails == pytest.approx(line.fails)
            async with session.action("shell", {"cmd": "rm"}) as action:
                action.fail("1", "denied")
            (after,) = session.outlook(asked)
            advice = session.advise("shell", {"cmd": "rm"})
            context = CallContext("clean up")
            family = failure_of("shell", '{"cmd":"rm"}', "1", "denied").family
            context.record("shell", text_of('{"cmd":"rm"}'), "denied", family, arguments='{"cmd":"rm"}')
            line = model.outlook(Call.made("shell", '{"cmd":"rm"}'), context)
            assert after is not None and line is not None and line.fails < 0.99
            expected = blended(sure, 0.5, 0.5) if network is not None else line.fails
            assert after.fails == advice.risk == pytest.approx(expected)


def test_a_session_keeps_as_many_calls_as_a_policy_reads() -> None:
    assert KEPT_CALLS >= MAX_STEPS - 1
