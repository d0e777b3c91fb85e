"""A made shop of support sessions: what ends badly, and by what, is known."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson

# Tool, arguments, result.
Call = tuple[str, dict[str, Any], Any]

RULES: Call = ("get_rules", {"topic": "refund"}, {"topic": "refund", "rules": "no fee for gifts"})


def order(number: int) -> Call:
    return ("get_order", {"order_id": f"ORD-{number}"}, {"order_id": f"ORD-{number}", "total": 20})


def refund(number: int, reason: str = "gift", amount: int = 20, *, confirm: bool = True, **result: Any) -> Call:
    arguments = {"order_id": f"ORD-{number}", "reason": reason, "amount": amount, "confirm": confirm}
    said = {"order_id": f"ORD-{number}", "status": "refunded" if confirm else "preview", "fee": 0, "amount": amount}
    return ("process_refund", arguments, said | result)


def session(number: int, well: bool, *calls: Call, goal: str = "Refund my order, please.") -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": goal}]
    for place, (tool, arguments, result) in enumerate(calls):
        function = {"name": tool, "arguments": orjson.dumps(arguments).decode()}
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"id": f"c{place}", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": f"c{place}", "content": orjson.dumps(result).decode()})
    messages.append({"role": "assistant", "content": "Done."})
    return {
        "id": f"shop:{number}",
        "agent": f"agent-{number % 3}",
        "task": f"shop/{number}",
        "goal": goal,
        "messages": messages,
        "reward": float(well),
    }


def wrong(number: int, **fields: Any) -> dict[str, Any]:
    missing = [
        {"entity_type": "orders", "record_key": f"ORD-{number}", "field": k, "value": v} for k, v in fields.items()
    ]
    return {"id": f"shop:{number}", "missing_assertions": missing}


def write(folder: Path, sessions: list[dict[str, Any]], failed: list[dict[str, Any]], domain: str = "shop") -> Path:
    for name, lines in (("messages", sessions), ("wrong", failed)):
        with gzip.open(folder / f"{domain}.{name}.jsonl.gz", "wb") as file:
            file.write(b"\n".join(map(orjson.dumps, lines)))
    return folder


def shop(folder: Path, count: int = 40) -> Path:
    """Who looks the rules up first ends well, and every fourth does not."""
    sessions, failed = [], []
    for number in range(count):
        well = number % 4 > 0
        sessions.append(session(number, well, order(number), *([RULES] if well else []), refund(number)))
        failed += [] if well else [wrong(number, fee=5)]
    return write(folder, sessions, failed)
