"""Ask a language model behind an OpenAI-compatible endpoint, and keep every answer: a rerun costs nothing."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock, get_ident
from typing import Any, NamedTuple

import httpx

from benchmarks.living.llm.server import SERVERS, SLOTS, serving
from benchmarks.living.llm.weights import gguf
from fleetlore.errors import ModelUnavailable

# Role and text.
Message = tuple[str, str]

WORKERS = SERVERS * SLOTS
ANSWER_SECONDS = 600.0


class Answer(NamedTuple):
    """An answer of a model.

    Attributes:
        read, written: tokens of the prompt and of the answer.
    """

    text: str
    read: int
    written: int


class Answers:
    """Answers in a file of SQLite, by a hash of the whole request."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()
        self._file = sqlite3.connect(file, check_same_thread=False)
        self._file.execute("create table if not exists answers (key text primary key, text, read, written)")

    def get(self, key: str) -> Answer | None:
        with self._lock:
            row = self._file.execute("select text, read, written from answers where key = ?", (key,)).fetchone()
        return None if row is None else Answer(*row)

    def put(self, key: str, answer: Answer) -> None:
        with self._lock, self._file:
            self._file.execute("insert or replace into answers values (?, ?, ?, ?)", (key, *answer))


class Model:
    """A model by name. With no `url` it runs here, from the first question on that no answer is kept of.

    Args:
        url: of a llama.cpp server, or of any OpenAI-compatible endpoint to its `/v1`. Without it the model runs here.
            The key of the endpoint is that of the environment, `OPENAI_API_KEY`.

    Attributes:
        asked: questions that no answer was kept of.
    """

    def __init__(self, name: str, answers: Answers, url: str | None = None, client: httpx.Client | None = None) -> None:
        self.name = name
        self.asked = 0
        self._answers = answers
        self._urls = [] if url is None else [url.rstrip("/")]
        self._lock = Lock()
        self._asking: dict[str, Lock] = {}
        self._of_thread: dict[int, str] = {}
        self._running = ExitStack()
        self._client = client or httpx.Client(timeout=ANSWER_SECONDS)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._running.close()

    def ask(self, messages: Sequence[Message], *, grammar: str, temperature: float, seed: int, most: int) -> Answer:
        """Answer with at most so many tokens.

        Args:
            grammar: of the answer, in GBNF; endpoints that are not llama.cpp's know none and are not told.

        Raises:
            ModelUnavailable: no answer is kept, and the model cannot be asked.
        """
        asked = {
            "messages": [{"role": role, "content": text} for role, text in messages],
            "temperature": temperature,
            "seed": seed,
            "max_tokens": most,
        }
        key = hashlib.sha256(json.dumps([self.name, grammar, asked], sort_keys=True).encode()).hexdigest()
        with self._lock:
            alone = self._asking.setdefault(key, Lock())
        with alone:  # two arms may ask the same: they get one answer
            answer = self._answers.get(key)
            if answer is None:
                answer = self._ask(asked, grammar)
                self._answers.put(key, answer)
        return answer

    def _ask(self, asked: dict[str, Any], grammar: str) -> Answer:
        url = self._server_of_thread()
        body = {"model": self.name, **asked}
        if not url.endswith("/v1"):
            url += "/v1"
            body |= {"grammar": grammar, "cache_prompt": True, "top_k": 40, "top_p": 0.95}
        headers = {"authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
        try:
            said = self._client.post(f"{url}/chat/completions", json=body, headers=headers)
            said.raise_for_status()
            found = said.json()
            usage = found["usage"]
            text = found["choices"][0]["message"]["content"] or ""
            return Answer(text, usage["prompt_tokens"], usage["completion_tokens"])
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
            raise ModelUnavailable(f"{url} gives no chat completion: {error!r}") from error

    def _server_of_thread(self) -> str:
        """One for all calls of a thread: it has read the beginning of a session's next prompt."""
        with self._lock:
            self.asked += 1
            if not self._urls:
                self._urls = self._running.enter_context(serving(gguf(self.name)))
            return self._of_thread.setdefault(get_ident(), self._urls[len(self._of_thread) % len(self._urls)])
