"""Ask the language model that the settings name, as a judge and as a teacher (extra `[llm]`)."""

from __future__ import annotations

from fleetlore.config import Settings
from models.llm.client import Answers, Observe
from models.llm.questions import LlmJudge, Teacher

__all__ = ["LanguageModel"]


class LanguageModel:
    """A judge and a teacher that share one file of answers and one budget a day.

    `observe` is also called with `unkept` for an answer that could not be written. Raises as `Client` and `Answers` do.
    """

    def __init__(self, settings: Settings, observe: Observe = lambda result, tokens: None) -> None:
        self._answers = Answers(settings.llm_answers, unkept=lambda: observe("unkept", 0))
        self.judge = LlmJudge(settings, self._answers, observe)
        self.teacher = Teacher(settings, self._answers, observe)

    async def close(self) -> None:
        await self.judge.close()
        await self.teacher.close()
        self._answers.close()
