"""A language model that chooses among logged calls: likelihoods, endpoints, placebo and the figures."""

from __future__ import annotations

import json
from collections.abc import Sequence

import httpx
import pytest

from benchmarks.language_model.command import measure, prompt
from benchmarks.language_model.endpoint import Endpoint
from benchmarks.language_model.local import Local
from benchmarks.language_model.states import State, with_placebos
from fleetlore.errors import ModelUnavailable

STATE = State(
    "t",
    "count",
    "sql",
    ("bad", "good"),
    (True, False),
    (False, True),
    (0.9, 0.1),
    "bad fails",
    "Before bad:",
    "elsewhere",
)


class Obedient:
    """Avoids a call that its prompt says fails."""

    def scores(self, prompt: str, candidates: Sequence[str]) -> list[float]:
        return [-1.0 if f"{each} fails" in prompt else -2.0 - place for place, each in enumerate(candidates)][::-1]


def test_a_model_that_reads_advice_is_told_from_one_that_does_not() -> None:
    report = measure([STATE, STATE._replace(advice="", placebo="", quoted="")], Obedient())["advised"]
    assert report["states"] == 1
    assert report["fails"]["uniform"]["mean"] == 0.5
    assert report["fails"]["least risk"]["mean"] == 0.0
    assert report["solves"]["least risk"]["mean"] == 1.0
    assert report["fails"]["advice"]["mean"] == 0.0
    assert report["fails_minus_none"]["placebo"]["mean"] == 0.0
    assert "advice" not in prompt(STATE, "none") and STATE.advice in prompt(STATE, "advice")


def test_a_placebo_is_the_advice_of_the_next_task_that_has_some_at_equal_length() -> None:
    told = {"a": "abcdefg", "b": "", "c": "xyz"}
    states = with_placebos([STATE._replace(task=task, advice=advice, placebo="") for task, advice in told.items()])
    assert [each.placebo for each in states] == ["xyzxyzx", "", "abc"]
    (alone,) = with_placebos([STATE._replace(placebo="")])
    assert alone.placebo == ""


def test_a_local_model_reads_the_prompt_once_and_scores_as_reading_it_whole() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config)

    class Letters:
        def __call__(self, text: str, **_: object) -> object:
            return transformers.BatchEncoding({"input_ids": torch.tensor([[ord(each) for each in text]])})

    found = Local(model, Letters()).scores("go: ", ["select", "drop it", "select"])
    whole = torch.tensor([[ord(each) for each in "go: drop it"]])
    with torch.inference_mode():
        logits = model(whole).logits.log_softmax(-1)
    by_hand = [float(logits[0, place - 1, whole[0, place]]) for place in range(4, 11)]
    assert found[1] == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-4)
    assert found[0] == pytest.approx(found[2], abs=1e-5)


def served(answer: object) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=answer)))


def test_an_echo_is_scored_by_the_tokens_of_the_call_alone() -> None:
    def echo(request: httpx.Request) -> httpx.Response:
        text = json.loads(request.content)["prompt"]
        values = [None, *(-9.0 for _ in text[1:4]), *(-1.0 if each == "a" else -3.0 for each in text[4:])]
        return httpx.Response(
            200, json={"choices": [{"logprobs": {"text_offset": [*range(len(text))], "token_logprobs": values}}]}
        )

    client = httpx.Client(transport=httpx.MockTransport(echo))
    assert Endpoint("http://x/v1", "m", echo=True, client=client).scores("ask:", ["aa", "ab"]) == [-1.0, -2.0]


def test_a_chat_model_chooses_a_letter_and_anything_else_is_explained() -> None:
    def chat(said: str) -> Endpoint:
        answer = {"choices": [{"message": {"content": said}}]}
        return Endpoint("http://x/v1", "m", echo=False, client=served(answer))

    assert chat("B.").scores("ask", ["x", "y"]) == [0.0, 1.0]
    with pytest.raises(ModelUnavailable, match="none of the letters"):
        chat("Z").scores("ask", ["x", "y"])
    with pytest.raises(ModelUnavailable, match="no log-probabilities"):
        Endpoint("http://x/v1", "m", echo=True, client=served({})).scores("ask", ["x"])
