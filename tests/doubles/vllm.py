"""The classes of vLLM (0.32) that a resolver meets, for machines without it: it is built for one accelerator each."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str = ""

    def __post_init__(self) -> None:
        if self.lora_int_id < 1 or not self.lora_path:
            raise ValueError


class LoRAResolver(ABC):
    @abstractmethod
    async def resolve_lora(self, base_model_name: str, lora_name: str) -> LoRARequest | None: ...


@dataclass
class Registry:
    resolvers: dict[str, LoRAResolver] = field(default_factory=dict)

    def register_resolver(self, resolver_name: str, resolver: LoRAResolver) -> None:
        self.resolvers[resolver_name] = resolver

    def get_resolver(self, resolver_name: str) -> LoRAResolver:
        return self.resolvers[resolver_name]


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the classes where vLLM has them, unless it is installed."""
    if find_spec("vllm") is None:
        parts: dict[str, dict[str, Any]] = {
            "vllm": {},
            "vllm.lora": {},
            "vllm.lora.request": {"LoRARequest": LoRARequest},
            "vllm.lora.resolver": {"LoRAResolver": LoRAResolver, "LoRAResolverRegistry": Registry()},
        }
        for name, members in parts.items():
            module = ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
