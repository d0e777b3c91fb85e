"""Score calls by an OpenAI-compatible endpoint: by the log-probabilities of an echo, or by the letter it chooses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

import httpx

from fleetlore.errors import ModelUnavailable


class Endpoint:
    """A model behind a URL that ends in `/v1`. `echo`: completions with log-probabilities; else plain choice."""

    def __init__(self, url: str, model: str, *, echo: bool, client: httpx.Client | None = None) -> None:
        self._url, self._model, self._echo = url.rstrip("/"), model, echo
        self._client = client or httpx.Client(timeout=120.0)

    def scores(self, prompt: str, candidates: Sequence[str]) -> list[float]:
        """Of each candidate. Raises ModelUnavailable where the endpoint does not answer as asked."""
        if self._echo:
            return [self._likelihood(prompt, each) for each in candidates]
        chosen = self._letter(prompt, candidates)
        return [float(place == chosen) for place in range(len(candidates))]

    def _likelihood(self, prompt: str, candidate: str) -> float:
        asked = {"prompt": prompt + candidate, "max_tokens": 0, "echo": True, "logprobs": 0, "temperature": 0}
        try:
            found = self._post("completions", asked)["choices"][0]["logprobs"]
            pairs = zip(found["text_offset"], found["token_logprobs"], strict=True)
            of_call = [float(value) for offset, value in pairs if offset >= len(prompt)]
            return sum(of_call) / len(of_call)
        except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
            raise ModelUnavailable(f"{self._url} echoes no log-probabilities: try --choice") from error

    def _letter(self, prompt: str, candidates: Sequence[str]) -> int:
        lines = [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, candidates, strict=False)]
        asked = "\n".join([prompt, "", *lines, "", "Which call is next? Answer with its letter alone."])
        messages = [{"role": "user", "content": asked}]
        try:
            said = self._post("chat/completions", {"messages": messages, "temperature": 0})
            letter = re.search(r"\b[A-Z]\b", said["choices"][0]["message"]["content"])
            place = ascii_uppercase.index(letter.group()) if letter else len(candidates)
        except (KeyError, IndexError, TypeError) as error:
            raise ModelUnavailable(f"{self._url} gives no chat completion") from error
        if place >= len(candidates):
            raise ModelUnavailable(f"{self._model} chose none of the letters")
        return place

    def _post(self, path: str, asked: dict[str, Any]) -> Any:
        try:
            answer = self._client.post(f"{self._url}/{path}", json={"model": self._model, **asked})
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ModelUnavailable(f"{self._url}/{path}: {error}") from error
