"""A model that is scripted, for a world of two databases that `conftest.py` makes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.living.llm.model import Answer, Answers, Message, Model

Says = Callable[[Sequence[Message]], str]
PLACES = ("garden", "harbour")


class Scripted(Model):
    """Says what a function of the messages returns."""

    def __init__(self, says: Says, file: Path) -> None:
        super().__init__("scripted", Answers(file))
        self._says = says

    def _ask(self, asked: dict[str, Any], grammar: str) -> Answer:
        self.asked += 1
        text = self._says([(each["role"], each["content"]) for each in asked["messages"]])
        return Answer(text, sum(len(each["content"]) for each in asked["messages"]), len(text))


def reads_what_it_is_told(messages: Sequence[Message]) -> str:
    """Knows the table's name where some text after the example holds it, and else guesses the plural."""
    said = "\n".join(text for role, text in messages[8:] if role == "user")
    table = table_asked_for(messages)
    known = any(form in said for form in (f"{table}(", f"{table} (", f"`{table}`"))
    return says_query(messages, table if known else f"{table}s")


def reads_nothing(messages: Sequence[Message]) -> str:
    return says_query(messages, f"{table_asked_for(messages)}s")


def table_asked_for(messages: Sequence[Message]) -> str:
    return "plant" if "garden" in messages[8][1] else "vessel"


def says_query(messages: Sequence[Message], table: str) -> str:
    least = messages[8][1].split("higher than ")[1].split("?")[0]
    return f"submit: SELECT label FROM {table} WHERE height > {least}"
