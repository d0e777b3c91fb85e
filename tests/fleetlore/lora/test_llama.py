"""That llama.cpp loads a converted adapter, answers as peft does, and is switched between versions."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from benchmarks.tiny_model import END, save_tiny_model
from fleetlore.errors import AdapterRefused
from fleetlore.lora.adapter import Lora, base_of, read_lora
from fleetlore.lora.follow import LoraSlot
from fleetlore.lora.llama import GGUF, LlamaServer, as_gguf
from tests.lora import manifest_of
from tests.served import serving
from tests.waiting import until

# PyTorch takes seconds to import.
pytestmark = pytest.mark.long

WORDS = "SELECT label FROM "


class Loaded:
    """llama.cpp's part of the contract: which files it has loaded, at which scale."""

    def __init__(self) -> None:
        self.load()

    def load(self, *paths: Path) -> None:
        self.adapters = [{"id": number, "path": str(path), "scale": 0.0} for number, path in enumerate(paths)]

    async def answer(self, request: Any) -> Response:
        if request.method == "GET":
            return JSONResponse(self.adapters)
        for each in await request.json():
            self.adapters[each["id"]]["scale"] = each["scale"]
        return JSONResponse({"success": True})

    @property
    def running(self) -> list[object]:
        return [each["path"] for each in self.adapters if each["scale"]]


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, Loaded]]:
    loaded = Loaded()
    async with serving(Starlette(routes=[Route("/lora-adapters", loaded.answer, methods=["GET", "POST"])])) as url:
        yield url, loaded


async def test_one_adapter_runs_and_no_other(served: tuple[str, Loaded]) -> None:
    url, loaded = served
    first, second = Path("/a/first.gguf"), Path("/a/second.gguf")
    loaded.load(first, second)
    run = partial(asyncio.to_thread, LlamaServer(url).run)
    for file in (first, second, first):
        assert await run(file) and loaded.running == [str(file)]
    assert await run(None) and loaded.running == []
    assert await run(second) and not await run(Path("/a/third.gguf"))
    assert loaded.running == [], "a version that is not loaded runs on nothing, and not on an old one"


async def test_a_server_is_started_again_for_a_version_that_it_has_not_loaded(served: tuple[str, Loaded]) -> None:
    url, loaded = served
    assert await asyncio.to_thread(LlamaServer(url, loaded.load).run, Path("/a/new.gguf"))
    assert loaded.running == ["/a/new.gguf"]


async def test_a_slot_switches_the_server_and_a_revocation_ends_it(served: tuple[str, Loaded], tmp_path: Path) -> None:
    url, loaded = served
    folder = save_tiny_model(tmp_path / "base")
    lora = trained(folder, 1)
    slot = LoraSlot(tmp_path / "kept", LlamaServer(url))
    manifest = manifest_of(lora, base_of(folder).sha256, architecture="qwen2")
    version = slot.load(lora.weights, manifest)
    loaded.load(version / GGUF)
    slot.apply(manifest, version)
    await until(lambda: loaded.running == [str(version / GGUF)])
    slot.reset()
    await until(lambda: loaded.running == [])
    slot.stop_serving()


def trained(folder: Path, seed: int) -> Lora:
    """An adapter with random weights, as the trainer's are shaped."""
    import torch  # takes seconds
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base: Any = AutoModelForCausalLM.from_pretrained(folder)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["v_proj", "up_proj", "down_proj"], task_type="CAUSAL_LM")
    torch.manual_seed(seed)
    model = get_peft_model(base, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape) * 0.3)
    saved = folder.parent / f"lora-{seed}"
    model.save_pretrained(saved)
    return read_lora(saved, base_of(folder))


@pytest.mark.parametrize(
    ("architecture", "changes"), [("", {}), ("llama", {"targets": ("q_proj",)}), ("qwen2", {"targets": ("lm_head",)})]
)
def test_what_llama_cpp_would_misread_is_refused(architecture: str, changes: dict[str, Any], tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "base")
    lora = trained(folder, 1)
    with pytest.raises(AdapterRefused):
        as_gguf(lora.weights, manifest_of(lora, "b", architecture=architecture, **changes))


def model_as_gguf(folder: Path, file: Path) -> None:
    """The tiny model as llama.cpp loads it, in float32."""
    import gguf
    from safetensors.numpy import load_file
    from transformers import AutoConfig, AutoTokenizer

    config: Any = AutoConfig.from_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    writer = gguf.GGUFWriter(file, "qwen2")
    writer.add_context_length(256)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    words = [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda each: each[1])]
    writer.add_token_list(words)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.CONTROL if word == END else kinds.NORMAL for word in words])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(words.index(END))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    for name, tensor in load_file(folder / "model.safetensors").items():
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), tensor.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_llama_cpp_itself_runs_the_version_that_it_is_switched_to(tmp_path: Path) -> None:
    llama = pytest.importorskip("xllamacpp", reason="llama.cpp comes with the package xllamacpp")
    folder = save_tiny_model(tmp_path / "base")
    model_as_gguf(folder, tmp_path / "base.gguf")
    loras = [trained(folder, seed) for seed in (1, 2)]
    files = []
    for number, lora in enumerate(loras):
        files.append(tmp_path / f"{number}.gguf")
        files[-1].write_bytes(as_gguf(lora.weights, manifest_of(lora, "b", architecture="qwen2")))
    params = llama.CommonParams()
    params.model.path = str(tmp_path / "base.gguf")
    params.n_ctx, params.n_parallel = 256, 1
    params.hostnames, params.port, params.warmup = ["127.0.0.1"], 0, False
    params.lora_adapters = [llama.CommonAdapterLoraInfo(str(file), 0.0) for file in files]
    server = llama.Server(params)
    url = server.listening_address
    switch = LlamaServer(url)
    for file, lora in [(None, None), (files[0], loras[0]), (files[1], loras[1]), (files[0], loras[0]), (None, None)]:
        assert switch.run(file)
        assert answered(url) == pytest.approx(expected(folder, lora), abs=2e-2)


def answered(url: str) -> dict[str, float]:
    """The likeliest next tokens, by llama.cpp: log-probabilities by token id."""
    body = {"prompt": WORDS, "n_predict": 1, "n_probs": 5, "temperature": 0.0, "cache_prompt": False}
    request = Request(f"{url}/completion", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=120) as answer:
        (first, *_) = json.load(answer)["completion_probabilities"]
    return {str(each["id"]): each["logprob"] for each in first["top_logprobs"]}


def expected(folder: Path, lora: Lora | None) -> dict[str, float]:
    """The same by transformers and peft."""
    import torch
    from transformers import AutoTokenizer

    from models.policy.learn import LanguageModel

    model = LanguageModel(folder)
    if lora is not None:
        model.run(lora.weights, manifest_of(lora, model.base.sha256))
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        ids = tokenizer(WORDS, return_tensors="pt").input_ids
        found = model._model(ids).logits[0, -1].log_softmax(-1).topk(5)
    return {str(int(id)): float(score) for id, score in zip(found.indices, found.values, strict=True)}
