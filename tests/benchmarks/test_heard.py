"""The census of what advice shows: by source, right where the log can tell, and the same file for the same tree."""

import json
import re
from itertools import product
from pathlib import Path

from typer.testing import CliRunner

from benchmarks.heard import Utterance, app, census, is_right, utterances
from fleetlore.advice.gate import Tip
from fleetlore.advice.sources import SOURCES
from models.backtest import Call, Told
from tests.logs import write_logs
from tests.models.backtest.made import SILENT, call, heard, log
from tests.rows import for_each

FAILED = call("SELECT a FROM items", error="Table 'shop.items' doesn't exist")
WORKED = call("SELECT a FROM things")


PAGE = Path(__file__).parents[2] / "docs" / "results" / "helps.md"


def test_each_source_has_its_row_on_the_page_or_is_named_as_one_that_showed_nothing() -> None:
    section = PAGE.read_text().partition("## What is shown\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    missing = section.partition("Sources that are missing here showed nothing")[2].partition(". ")[0]
    others = ["source", "---", "last error repeated, the rival", "**all: what an agent reads**"]
    assert sorted([*rows, *re.findall(r"`(\w+)`", missing)]) == sorted([*others, *SOURCES])


def showing(source: str, text: str, *names: str) -> Told:
    return SILENT._replace(text=text, shown=(Tip("", source, (), brings=names, text=text),))


def after(source: str, text: str, *names: str) -> Utterance:
    return Utterance(0, "after", Tip("", source, (), brings=names, text=text))


def test_names_are_right_where_the_next_working_call_has_one_that_is_new() -> None:
    of = log(FAILED, call("SELECT 1 FROM item", error="no"), WORKED)
    assert is_right(after("card of the place", "Known here: things, a", "things", "a"), of)
    assert is_right(after("card of the place", "Known here: items", "items"), of) is False
    assert is_right(after("card of the place", "Known here: items", "items"), log(FAILED, FAILED)) is None


@for_each(
    "made, shown, right",
    (call("DESC items;"), "looked up what works: `DESC <name>`", True),
    (call("SELECT 1"), "looked up what works: `DESC <name>`", False),
    (call("(1, 2)", tool="find_user"), "Look it up: `find_user(first_name, zip)`", True),
    (call("autodoc", tool="search_dir"), "Look it up: `search_dir <text>`", True),
    (call("autodoc", tool="find_file"), "Look it up: `search_dir <text>`", False),
)
def test_a_look_up_is_right_where_it_is_made_next(made: Call, shown: str, right: bool) -> None:
    assert is_right(after("looked up", shown), log(FAILED, made)) is right


def test_other_texts_are_right_where_they_hold_all_that_is_new() -> None:
    of = log(FAILED, call("SELECT b FROM things"))
    assert is_right(after("recovery of a class", "use things"), of)
    assert is_right(after("recovery of a class", "use others"), of) is False
    both = log(FAILED, call("SELECT b FROM things, others"))
    assert is_right(after("recovery of a class", "use things"), both) is False
    assert is_right(after("recovery of a class", "use things"), log(FAILED, call("SELECT a"))) is None


def test_a_loop_caution_is_right_where_the_next_call_was_made_before() -> None:
    assert is_right(after("loop", "in circles"), log(FAILED, FAILED))
    assert is_right(after("loop", "in circles"), log(FAILED, WORKED)) is False


def test_counts_by_source_and_the_rivals() -> None:
    warns = (Tip("", "foreseen", (), chance=1.0, text="sql will fail"),)
    warned = SILENT._replace(text="sql will fail", shown=warns, named=FAILED.kind)
    submit = call("submit")
    session = heard(
        log(FAILED, FAILED, WORKED, submit), SILENT, warned, warned, warned, after={0: showing("looked up", "`DESC a`")}
    )
    found = census([session, session])
    assert (found["calls"], found["failed"], found["shown_at_pseudo_calls"]) == (6, 4, 2)
    warnings, rival = found["sources"]["foreseen"], found["sources"]["last error repeated"]
    assert (warnings["shown"], warnings["right"], warnings["right_of"], warnings["kind_right"]) == (4, 0.5, 4, 1.0)
    assert (rival["shown"], rival["right"], rival["kind_right"], rival["failures_shown"]) == (4, 0.5, 1.0, 0.5)
    assert found["sources"]["all"]["failures_shown"] == 1.0
    assert found["sources"]["nothing"]["shown"] == 0
    assert found["logs"]["shop"]["sources"] == found["sources"]
    assert [each.place for each in utterances(session)] == [0, 1, 2, 3]


def test_one_command_counts_and_writes_the_same_file_again(tmp_path: Path) -> None:
    write(tmp_path / "logs")
    found = []
    for number in range(2):
        golden = tmp_path / f"{number}.tsv"
        options = ["--data", str(tmp_path / "logs"), "--golden", str(golden), "--one-name"]
        ran = CliRunner().invoke(app, options)
        assert ran.exit_code == 0, ran.output
        found.append((golden.read_text(), json.loads(ran.stdout)))
    (lines, report), (again, _) = found
    assert lines == again
    assert lines.splitlines() == sorted(lines.splitlines())
    shown = report["sources"]["all"]["shown"] + report["shown_at_pseudo_calls"]
    assert len(lines.splitlines()) == shown > 0
    assert report["failures_shown"].keys() == {"one name", "eight names"}
    assert report["failures_shown"]["one name"].keys() == {"all", "s"}


def write(folder: Path) -> None:
    """In each database queries of `item_<n>` work, and of `items` they do not."""
    sessions = []
    for agent, database, task in product(("ada", "bob", "cyd"), range(4), range(5)):
        error = f"Table 'db{database}.items' doesn't exist"
        wrong, right = ("sql", f"SELECT {task} FROM items", error), ("sql", f"SELECT {task} FROM item_{database}", None)
        goal = {"goal": f"count the things of kind {task} in item_{database}"}
        sessions.append((agent, f"t/{database}/{task}", 1, [wrong, wrong, right], goal))
    write_logs(folder, sessions)
