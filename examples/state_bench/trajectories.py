"""Write STATE-Bench's training trajectories as chat messages, which `fleetlore import messages` reads.

    python trajectories.py datasets/train_task_trajectories OUT.jsonl [--rewards]

The trajectories have no reward. With `--rewards` each call is made again in the sandbox of its task, and the check of
the end state is the reward: good to learn from, and not for an official run, which learns from the trajectories alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Message = dict[str, Any]
# One agent ran all of them; as many names as it takes to tell its sessions apart.
AGENTS = 10


def sessions(folder: Path, rewards: bool) -> Iterator[dict[str, Any]]:
    """A session a file `DOMAIN/TASK.json`."""
    for number, path in enumerate(sorted(folder.glob("*/*.json"))):
        conversation: list[Message] = json.loads(path.read_text())["conversation"]
        domain, task = path.parent.name, path.stem
        found = {
            "id": f"{domain}/{task}",
            "agent": f"agent-{number % AGENTS}",
            "task": f"{domain}/{task}",
            "goal": next(each["content"] for each in conversation if each["role"] == "user"),
            "messages": list(messages(conversation)),
        }
        yield found | ({"reward": reward(domain, task, conversation)} if rewards else {})


def messages(conversation: list[Message]) -> Iterator[Message]:
    """Chat messages: the benchmark keeps a turn's calls, with their results, beside what the agent said after them."""
    number = 0
    for said in conversation:
        for call in said.get("tool_calls") or ():
            number += 1
            function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
            yield {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "function": function}]}
            yield {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps(call["result"])}
        yield {"role": said["role"], "content": said["content"]}


def reward(domain: str, task_id: str, conversation: list[Message]) -> float:
    """Whether the end state is what the task asks for, after all calls were made again in its sandbox."""
    from state_bench.domain import get_domain_config
    from state_bench.env_loader import load_task_environment
    from state_bench.paths import domain_tasks_dir
    from state_bench.schemas import StateDiff, TaskDefinition
    from state_bench.scoring import evaluate_state_requirements

    config, task = get_domain_config(domain), TaskDefinition.load(domain_tasks_dir(domain) / f"{task_id}.json")
    data, _ = load_task_environment(config, task)
    sandbox = config.environment_class(data, now=task.now)
    before = sandbox.get_full_snapshot()
    for said in conversation:
        for call in said.get("tool_calls") or ():
            sandbox.tool_handlers[call["name"]](call["arguments"])
    score = evaluate_state_requirements(task, StateDiff.compute(before, sandbox.get_full_snapshot()))
    return float(score is not None and score.score == 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rewards", action="store_true")
    options = parser.parse_args()
    lines = [json.dumps(session) + "\n" for session in sessions(options.folder, options.rewards)]
    options.out.write_text("".join(lines))
    print(f"{len(lines)} sessions in {options.out}")


if __name__ == "__main__":
    main()
