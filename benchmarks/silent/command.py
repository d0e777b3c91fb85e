"""Run `python -m benchmarks silent`: who says what at held-out tasks, in one table or one JSON document."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from benchmarks.command import command_app
from benchmarks.silent.cases import read_cases
from benchmarks.silent.contrasts import Contrasts
from benchmarks.silent.judged import abstained
from benchmarks.silent.measure import BESIDE, OURS, RECALL, SHUFFLED, TASKS, Spoken, arms, figures, placebo, speak
from benchmarks.silent.rivals import call_text
from fleetlore.cli.options import Json
from fleetlore.cli.output import print_json, print_table


def main(
    data: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="NAME.messages.jsonl.gz, NAME.wrong.jsonl.gz.")
    ],
    seed: Annotated[int, typer.Option(help="By which tasks are held out and rewards shuffled.")] = 0,
    draws: Annotated[int, typer.Option(min=1, help="Of shuffled rewards.")] = 20,
    sheet: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Write what was said at held-out tasks, a line each, to be read."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Count what is named before a failure in which no call failed, and what is said beside the point."""
    began = time.process_time()
    cases = read_cases(data)
    said = speak(cases, seed, arms)
    if sheet is not None:
        sheet.write_text("".join(_sheet(said)))
    found: dict[str, Any] = {
        "seed": seed,
        "sessions": len(cases),
        "failed": sum(not case.well for case in cases),
        "tasks": len({(case.domain, case.logged.task) for case in cases}),
        **figures(cases, said),
        "shuffled": placebo(cases, seed, draws),
        "abstained": abstained(cases, seed),
        "rules": [rule.text() for rule in Contrasts.learned(cases, Random(seed)).rules],
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    found["met"] = _met(found)
    print_json(found) if as_json else _print(found)


def _sheet(said: Mapping[str, Sequence[Spoken]]) -> Iterator[str]:
    """Arm, session's task, the call that a line is said before, and the line, of those who learn from the log."""
    for arm in (OURS, "today"):
        for spoken in said[arm]:
            calls = [call_text(call) for call in spoken.case.calls]
            for line in spoken.lines if spoken.part == TASKS else ():
                before = calls[line.place] if line.place < len(calls) else "(the end)"
                yield f"{arm}\t{spoken.case.logged.task}\t{before}\t{line.text}\n"


def _met(found: dict[str, Any]) -> dict[str, bool]:
    """By bar whether it is met, on held-out tasks of all domains."""
    return {
        "recall": found["recall"][TASKS]["share"] >= RECALL,
        "beside": found["beside"][TASKS]["lines"] <= BESIDE,
        "rivals": all(rival[TASKS]["within_bar"]["ahead"]["low"] > 0 for rival in found["rivals"].values()),
        "rivals as quiet": all(rival[TASKS]["as_quiet"]["ahead"]["low"] > 0 for rival in found["rivals"].values()),
        "shuffled": found["shuffled"][OURS]["share"] <= SHUFFLED,
        "judged": not any(count["rewarded"] for count in found["abstained"].values()),
    }


def _print(found: dict[str, Any]) -> None:
    rows = []
    for held_out, recall in found["recall"].items():
        rows.append((held_out, OURS, *_cells(recall, found["beside"][held_out]), "", "", "", ""))
        for name, rival in found["rivals"].items():
            own = rival[held_out]
            rows.append(
                ("", name, *_cells(own["recall"], own["beside"]), *_ahead(own["within_bar"]), *_ahead(own["as_quiet"]))
            )
    heads = ["held out", "arm", ">named", ">by argument", ">recall", ">beside"]
    print_table([*heads, f">within {BESIDE:.1f}", ">ahead", ">as quiet", ">ahead"], rows)
    shuffled = found["shuffled"]
    for name in (OURS, "usual"):
        share, most = shuffled[name]["share"], shuffled[name]["most"]
        typer.echo(f"{name} of shuffled rewards: recall {share:.3f} over {shuffled['draws']} draws, at most {most:.2f}")
    for domain, count in found["abstained"].items():
        typer.echo(
            f"{domain}: of {count['sessions']} sessions the judges are silent on {count['rewarded']} with the reward, "
            f"on {count['hidden']} without; where no call failed, on {count['hidden_no_error']} of {count['no_error']}"
        )
    for rule in found["rules"]:
        typer.echo(rule)
    typer.echo(", ".join(f"{bar}: {'met' if met else 'missed'}" for bar, met in found["met"].items()))


def _cells(recall: dict[str, Any], beside: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{recall['named']} of {recall['failed']}",
        str(recall["by"]["argument"] + recall["by"]["object"]),
        f"{recall['share'] or 0:.2f} ({recall['low']:.2f}–{recall['high']:.2f})",
        f"{beside['lines'] or 0:.2f}",
    )


def _ahead(held: dict[str, Any]) -> tuple[str, str]:
    """A rival's recall, and how far the contrasts are ahead."""
    ahead = held.get("ahead")
    said = f"{ahead['share']:+.2f} ({ahead['low']:+.2f} to {ahead['high']:+.2f})" if ahead else ""
    return f"{held['recall']['share'] or 0:.2f}", said


app = command_app(main)
