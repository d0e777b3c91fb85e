"""Ask a model behind an OpenAI-compatible endpoint for a JSON object, within a budget, never twice.

The format is requested as a JSON schema. An endpoint that refuses it (400 or 422) is asked for a JSON object, and then
for text, so the caller checks each answer. A SQLite file holds answers and tokens used, under the hash of everything an
answer depends on, so restarts and replays ask nothing twice. If the disk is full, an answer is used and requested again
later.
"""

import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any

from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import ConfigError, ModelUnavailable
from fleetlore.fingerprint.fingerprint import object_of

__all__ = ["Answers"]

log = logging.getLogger(__name__)

_BUSY_SECONDS = 5.0
_DAY_SECONDS = 86_400.0

_SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS answered (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, answer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spent (day INTEGER PRIMARY KEY, tokens INTEGER NOT NULL);
"""

# Estimate until the endpoint has counted: no tokenizer makes more tokens of English and JSON.
_CHARACTERS_PER_TOKEN = 2.5
ANSWER_TOKENS = 1_000

Observe = Callable[[str, int], None]  # outcome (see `Client.ask`) and tokens


class Answers:
    """The newest `most` answers by key, and tokens by day (UTC). `unkept` is called for each answer not written.

    Raises ConfigError: the file cannot be opened, or has another format.
    """

    def __init__(self, path: str | Path, *, most: int = 200_000, unkept: Callable[[], None] = lambda: None) -> None:
        self._path, self._most, self._unkept = path, most, unkept
        self._failing = False
        self._unwritten: Counter[int] = Counter()  # tokens by day
        try:
            if str(path) != ":memory:":
                self._path = Path(path).expanduser()
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # Only the owner may read answers about sessions.
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._db.executescript(_SCHEMA)
            except sqlite3.Error:
                self._db.close()
                raise
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"the model's answers cannot be kept in {self._path}: {error}") from None
        self.close = self._db.close

    def get(self, key: str) -> str | None:
        found = self._run("SELECT answer FROM answered WHERE key = ?", key)
        return found[0][0] if found else None

    def put(self, key: str, answer: str) -> str:
        """Keep an answer. Return the kept one: the first of two concurrent ones."""
        if self._run("INSERT OR IGNORE INTO answered (key, answer) VALUES (?, ?)", key, answer) is None:
            self._unkept()
        else:
            self._failing = False
            self._run("DELETE FROM answered WHERE number <= (SELECT max(number) FROM answered) - ?", self._most)
        return self.get(key) or answer

    def spent(self, now: float) -> int:
        day = int(now // _DAY_SECONDS)
        found = self._run("SELECT tokens FROM spent WHERE day = ?", day)
        return (found[0][0] if found else 0) + self._unwritten[day]

    def spend(self, now: float, tokens: int) -> None:
        day = int(now // _DAY_SECONDS)
        adds = "INSERT INTO spent VALUES (?, ?) ON CONFLICT (day) DO UPDATE SET tokens = tokens + excluded.tokens"
        if self._run(adds, day, tokens) is None:
            self._unwritten[day] += tokens

    def _run(self, query: str, *values: object) -> list[Any] | None:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            if not self._failing:
                log.error("the model's answers cannot be kept in %s: %s; going on without", self._path, error)
            self._failing = True
            return None


class Client:
    """One model, asked with one prompt of `models/llm/prompts`. `version`: both, on which an answer depends. Raises
    ConfigError (the settings name no model), ModelUnavailable (without the extra `[llm]`).
    """

    def __init__(
        self, settings: Settings, answers: Answers, prompt: str, schema: dict[str, Any], observe: Observe,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        if not settings.llm_model:
            raise ConfigError("FLEETLORE_LLM_URL is set and FLEETLORE_LLM_MODEL is not")
        try:
            import openai
        except ImportError as error:
            package = "pip install 'fleetlore-server[llm]' from your index"
            raise ModelUnavailable(f"FLEETLORE_LLM_URL is set: {error}; {package}") from None
        self._instructions = files("models.llm").joinpath("prompts", f"{prompt}.md").read_text(encoding="utf-8")
        self._prompt_version = f"{prompt}:{blake2b(self._instructions.encode(), digest_size=4).hexdigest()}"
        self.version = f"{settings.llm_model}/{self._prompt_version}"
        self._openai = openai
        key = settings.llm_key or "none"  # the client needs one; many local servers do not
        limits: dict[str, Any] = {"timeout": settings.llm_timeout_seconds, "max_retries": settings.llm_retries}
        self._client = openai.AsyncOpenAI(base_url=settings.llm_url, api_key=key, **limits)
        self.close = self._client.close
        self._settings, self._answers, self._observe = settings, answers, observe
        self._clock = clock or SystemClock()
        answer = {"type": "json_schema", "json_schema": {"name": prompt, "schema": schema, "strict": True}}
        self._options: dict[str, Any] = {"temperature": 0, "seed": 0, "max_tokens": ANSWER_TOKENS}
        self._options["response_format"] = answer

    def known(self, text: str) -> dict[str, Any] | None:
        return _object(self._answers.get(self._key(text)) or "")

    async def ask(self, text: str) -> dict[str, Any] | None:
        """Return the answer about a text, or None.

        `observe` gets `cached`, `ok`, `malformed` (no JSON object; kept, since it would cost the same again), `budget`
        (the day's tokens are used up), `timeout`, `refused` (4xx: the endpoint will never answer this), or `failed`
        (after all attempts).
        """
        key = self._key(text)
        if (kept := self._answers.get(key)) is not None:
            self._observe("cached", 0)
            return _object(kept)
        tokens = int((len(self._instructions) + len(text)) / _CHARACTERS_PER_TOKEN) + ANSWER_TOKENS
        now = self._clock.now()
        if self._answers.spent(now) + tokens > self._settings.llm_tokens_per_day:
            self._observe("budget", 0)
            return None
        # Reserve them, so that concurrent questions do not overdraw the budget. They stay reserved without an answer,
        # because the endpoint may have counted the attempt.
        self._answers.spend(now, tokens)
        try:
            answer, used = await self._complete(text)
        except (self._openai.OpenAIError, ValueError) as error:  # a body that is no JSON, such as a gateway's page
            log.warning("%s: %s", self._settings.llm_model, error)
            status = getattr(error, "status_code", 500)
            is_late = isinstance(error, self._openai.APITimeoutError)
            self._observe("timeout" if is_late else "failed" if status >= 500 or status == 429 else "refused", 0)
            return None
        self._answers.spend(now, (used or tokens) - tokens)
        self._observe("malformed" if _object(answer) is None else "ok", used or tokens)
        return _object(self._answers.put(key, answer))

    async def _complete(self, text: str) -> tuple[str, int]:
        messages: Any = [{"role": "system", "content": self._instructions}, {"role": "user", "content": text}]
        while True:
            options = dict(self._options)
            asked = self._client.chat.completions.create(model=self._settings.llm_model, messages=messages, **options)
            try:
                return _content(await asked)
            except (self._openai.BadRequestError, self._openai.UnprocessableEntityError) as error:
                if not self._replaced_option(str(error), options):
                    raise

    def _replaced_option(self, error: str, sent: dict[str, Any]) -> bool:
        """Stop using an option that the endpoint does not know: dialects differ."""
        is_of_format = "response_format" in sent and "json" in error
        option = "response_format" if is_of_format else next((each for each in sent if each in error), "")
        if option and self._options.get(option) == sent[option]:  # a concurrent question may have replaced it
            log.warning("%s takes no %s (%s); asking otherwise from now on", self._settings.llm_url, option, error)
            value = self._options.pop(option)
            if option == "max_tokens":
                self._options["max_completion_tokens"] = value
            elif option == "response_format" and value["type"] == "json_schema":
                self._options[option] = {"type": "json_object"}
        return bool(option)

    def _key(self, text: str) -> str:
        whole = "\0".join((self._settings.llm_model, self._prompt_version, text))
        return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _content(response: Any) -> tuple[str, int]:
    """The client accepts any JSON, so check everything."""
    try:
        text, tokens = response.choices[0].message.content, response.usage and response.usage.total_tokens
    except (AttributeError, IndexError, KeyError, TypeError):
        return "", 0
    return (text if isinstance(text, str) else ""), (tokens if isinstance(tokens, int) else 0)


def _object(answer: str) -> dict[str, Any] | None:
    text = answer.strip()
    if text.startswith("```"):
        text = text.strip("`").removeprefix("json").strip()
    return object_of(text)
