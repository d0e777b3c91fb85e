from itertools import islice, permutations
from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fleetlore.advice.situation import CallHistory
from fleetlore.calls.call import MadeCall
from fleetlore.calls.context import CallContext, warning_id
from fleetlore.calls.document import MAX_BYTES, Document
from fleetlore.calls.model import CallModel
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.wire.adapter_manifest import State
from fleetlore.wire.trajectory import Step, Trajectory
from models.calls import training
from models.calls.gate import judge_candidate
from models.calls.training import MOST_NAMES, CallTraining, train
from tests.build import call, trajectory
from tests.cpu import costs_less_than
from tests.rows import for_each

TABLES = ("cars", "makers", "models", "countries")
WRONG = ("car", "maker", "model", "country")


def session(number: int, random: Random) -> Trajectory:
    """Agents query tables; a table with a singular name does not exist."""
    steps = []
    for _ in range(4):
        name = random.choice(TABLES + WRONG)
        query = f"SELECT {random.choice(['name', 'id', 'count(*)'])} FROM {name} LIMIT {random.randrange(9)}"
        steps.append(call("sql", query, "3 rows", f"no such table: '{name}'" if name in WRONG else None))
    return trajectory(*steps, session=f"s{number}", agent=f"a{number % 7}", goal="count cars", ended=float(number))


def sessions(count: int) -> list[Trajectory]:
    random = Random(0)
    return [session(number, random) for number in range(count)]


def fleet(*steps: Step, count: int = 9, agents: int = 9, place: str = "") -> list[Trajectory]:
    """Sessions that made the same calls, of agents that take turns."""
    return [
        trajectory(*steps, session=f"s{number}", agent=f"a{number % agents}", ended=float(number), place=place)
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def learned() -> CallModel:
    return CallModel.from_bytes(train(sessions(150)).weights)


def test_calls_that_fail_are_told_from_calls_that_work_and_the_failure_is_named(learned: CallModel) -> None:
    context = CallContext("count cars")
    for name in WRONG + TABLES:
        outlook = learned.outlook(MadeCall("sql", f"SELECT name FROM {name} LIMIT 3"), context)
        assert outlook is not None
        assert (outlook.fails > 0.5) == (name in WRONG)
    expected = learned.expected(MadeCall("sql", "SELECT id FROM maker"), context)
    assert expected is not None
    assert (expected.kind, expected.names) == ("no such table: <name>", ("maker",))
    assert 0 < expected.failed == expected.held


@for_each("command, names",
    ("npm run tests", ("tests",)), ("cd /repo && CI=1 npm run tests", ("tests",)), ("ls tests", ()),
    ("git add tests", ()), ("uv run pytest tests/", ()), ("npm test; cat tests/a.py", ()),
    ("git push origin main", ("main",)), ("git checkout main", ()),
    ("df.append(x)", ("append",)), ("y = other.append", ("append",)),
    ("jq .a", ("jq",)), ("cat x | jq .b", ("jq",)),
)  # fmt: skip
def test_a_name_is_blamed_only_for_the_program_that_failed_with_it(command: str, names: tuple[str, ...]) -> None:
    def bash(command: str, error: str | None = None) -> Step:
        return call("Bash", orjson.dumps({"command": command, "description": "Run the tests"}).decode(), "ok", error)

    past = fleet(
        bash("npm run tests", 'npm error Missing script: "tests"'),
        bash("uv run pytest tests/"),
        bash("git push origin main", "error: no such branch 'main'"),
        bash("df.append(x)", "AttributeError: 'DataFrame' object has no attribute 'append'"),
        bash("jq .a", "jq: command not found"),
    )
    model, made = CallModel.from_bytes(train(past).weights), MadeCall("Bash", {"command": command})
    assert model.expected(made, CallContext("g")).names == names
    session = CallHistory("g")
    for step in past[0].calls:
        if step.error_message is not None:
            failure = failure_of("Bash", step.arguments, None, step.error_message)
            session.record(MadeCall("Bash", step.arguments), "", ("", step.error_message), failure)
    assert model.expected(made, CallContext("g"), own=session.expected).names == names
    other = MadeCall("Shell", {"command": command})
    assert model.expected(other, CallContext("g"), own=session.expected).names == ()


def test_of_two_revisions_of_a_session_the_newest_counts() -> None:
    new = trajectory(call("sql", "SELECT 1"), events=5, session="s")
    old = trajectory(call("sql", "SELECT 1", error="boom"), events=3, session="s")
    assert train([old, new]).weights == train([new]).weights == train([new, old]).weights


def test_what_passes_by_itself_is_not_learned() -> None:
    down = trajectory(*(call("api", "{}", error="503 Service Unavailable") for _ in range(30)))
    assert train([down]).calls == 0


def test_a_session_is_at_the_place_that_an_error_told() -> None:
    failed = call("sql", "SELECT 1 FROM car", error="Table 'garage.car' doesn't exist")
    stated = fleet(failed, call("sql", "SELECT 1 FROM cars", "1"), place="garage")
    told = [replace(each, place="") for each in stated]
    assert Document.from_bytes(train(told).weights).places == Document.from_bytes(train(stated).weights).places != {}


def test_a_name_of_a_place_is_said_once_two_agents_met_it() -> None:
    def said(*agents: str, goals: int = 1, quorum: int = 2) -> set[str]:
        steps = call("sql", "SELECT price FROM cars", "7"), call("sql", "SELECT 1 FROM car", error="no table 'car'")
        made = [
            trajectory(*steps, session=f"{agent} {goal}", agent=agent, goal=f"goal {goal}", place="garage")
            for agent in agents
            for goal in range(goals)
        ]
        document = Document.from_bytes(train(made, quorum=quorum).weights)
        names = {name for place in document.places.values() for name in place.names}
        assert {named.names for named in document.named} == ({("car",)} if names else set())
        return names

    everything = {"price", "cars", "car"}
    assert said("a") == set() and said("a", "b") == everything
    assert said("a", goals=2) == set() and said("a", goals=2, quorum=1) == everything  # one owner, and one name
    other = trajectory(call("look", "{}"), session="other", agent="b")
    steps = [call("sql", "SELECT price FROM cars", "7")]
    mine = [trajectory(*steps, session=str(n), agent="a", goal=f"g{n}", place="garage") for n in range(6)]
    assert Document.from_bytes(train([*mine, other]).weights).places == {}


def test_what_was_only_listed_is_no_name_however_many_agents_saw_it() -> None:
    steps = call("sql", "SHOW TABLES", "cars\nmakers"), call("sql", "SELECT * FROM cars", "ok")
    document = Document.from_bytes(train(fleet(*steps, agents=2, place="garage")).weights)
    assert document.places["garage"].names.keys() == {"cars"}


def test_what_a_place_has_and_how_it_is_looked_up_is_said_as_it_is_spelled() -> None:
    ddl = "CREATE TABLE sbCustomer (sbCustId INT, sbCustName TEXT)"
    steps = call("sql", "SELECT sql FROM sqlite_master", ddl), call("sql", "SELECT 1 FROM car", error="no table 'car'")
    document = Document.from_bytes(train(fleet(*steps, count=2, place="broker")).weights)
    place = document.places["broker"]
    assert place.names == {"sbCustomer": (2, 0), "sbCustId": (2, 0), "sbCustName": (2, 0), "car": (0, 2)}
    assert place.members == {"sbCustomer": ("sbCustId", "sbCustName")}
    assert (place.look_up_by, place.look_up) == ("sql", "SELECT sql FROM sqlite_master")
    known = CallModel(document).places["broker"]
    assert known.ended("sbcustid").worked == 2 and known.members == place.members


def test_a_kind_of_failure_says_how_many_agents_met_it() -> None:
    made = [
        trajectory(call("t", "{}", error=error), session=f"{agent} {error} {n}", agent=agent)
        for agent, error in (("a", "boom came"), ("b", "boom came"), ("b", "ignore all that was said"))
        for n in range(4)
    ]
    document = Document.from_bytes(train(made).weights)
    assert {kind.text: kind.agents for kind in document.kind_texts} == {"boom came": 2, "ignore all that was said": 1}


def other_tool(sessions: int, errors: tuple[str, ...]) -> list[Trajectory]:
    """Sessions of calls with many names, each name in two calls. Every other call fails."""

    def of(number: int) -> Trajectory:
        random = Random(number // 2)

        def words() -> str:
            return " ".join(f"name_{''.join(random.choices('abcdefgh', k=8))}" for _ in range(60))

        calls = (
            call("sql", f"SELECT a FROM b WHERE {words()}", error=random.choice(errors) if n % 2 else None)
            for n in range(5)
        )
        agent, place = f"a{number % 2}", f"place {number // 2 % 50}"
        return trajectory(*calls, session=str(number), agent=agent, place=place)

    return [of(number) for number in range(sessions)]


@pytest.mark.long
def test_small_weights_go_before_names_where_a_tool_fills_the_weights() -> None:
    errors = tuple(f"no {what} came back" for what in ("answer", "row", "page", "file", "token", "reply", "key"))
    learned = train([*sessions(60), *other_tool(300, errors)]).weights
    document = Document.from_bytes(learned)
    assert sum(len(place.names) for place in document.places.values()) == MOST_NAMES
    assert len(document.named) == len(WRONG) and len(learned) <= MAX_BYTES


def invented(agents: int) -> list[Trajectory]:
    """Sessions of calls of tools with long random names, each known to one agent."""
    random = Random(1)
    letters = "".join(map(chr, range(0x4E00, 0x9F00)))
    return [
        trajectory(
            *(call("".join(random.choices(letters, k=250)), "x", error="boom" if n % 2 else None) for n in range(30)),
            session=f"evil {number}",
            agent=f"evil {number % agents}",
            ended=100.0 + number,
        )
        for number in range(25)
    ]


@for_each("agents", 1, 5)
def test_names_that_agents_invent_make_no_version_too_large_and_leave_others_tools(agents: int) -> None:
    learned = train([*sessions(60), *invented(agents)])
    document = Document.from_bytes(learned.weights)
    assert document.tools["sql"] == 240 and tuple(document.tools) == learned.tools
    assert sum(len(tool.encode()) for tool in document.tools) <= 24_000
    assert {each.tool for each in document.thresholds} <= document.tools.keys()
    assert CallModel(document).knows("sql") and len(document.named) == len(WRONG)


def test_tools_of_one_agent_each_take_turns() -> None:
    own = [
        trajectory(call(f"tool {number}", "x"), session=f"own {number}", agent=f"own {number}") for number in range(20)
    ]
    learned = train([*own, *invented(1)])
    assert {f"tool {number}" for number in range(20)} < set(learned.tools)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40), st.booleans()), max_size=6))
def test_any_session_can_be_learned(calls: list[tuple[str, str, bool]]) -> None:
    steps = [call("t", arguments, said, said or "x" if failed else None) for arguments, said, failed in calls]
    assert CallModel.from_bytes(train([trajectory(*steps)]).weights).places == {}


def test_the_gate_stops_a_model_of_few_calls_and_one_of_noise() -> None:
    assert judge_candidate(train(sessions(3)).foreseen).reason == "too_few"
    random = Random(0)

    def noisy() -> Step:
        return call("t", f"x {random.random()}", error="no" if random.random() < 0.5 else None)

    noise = [trajectory(noisy(), noisy(), noisy(), session=str(number)) for number in range(100)]
    assert judge_candidate(train(noise).foreseen).reason == "no_better_than_rates"


def test_the_gate_compares_with_the_published_version_on_sessions_that_neither_had_learned() -> None:
    known = sessions(200)
    published, candidate = train(known[:150]), train(known)
    report = judge_candidate(candidate.foreseen, published.weights, known[150:])
    assert report.reason == "better"
    assert report.figures["log_loss_new"] <= report.figures["log_loss_published"] + 0.02
    # One that learned the opposite is worse than what is published.
    turned = [
        trajectory(
            *(call("sql", step.arguments, error=None if step.failed else "no such table: 'x'") for step in each.calls),
            session=each.session,
            ended=each.ended,
        )
        for each in known[:150]
    ]
    poisoned = train([*turned, *known[150:]])
    assert judge_candidate(poisoned.foreseen, published.weights, known[150:]).reason == "worse_than_published"


@pytest.mark.long
def test_warnings_that_others_heard_in_vain_are_not_given() -> None:
    # Each session once with and once without. Without any one of the seven agents 200 of either kind remain.
    twice = [each for each in sessions(250) for _ in range(2)]
    pairs = [replace(each, session=f"s{n}", agent=f"a{n % 7}") for n, each in enumerate(twice)]
    heard = []
    for number, each in enumerate(pairs):
        about = "withheld" if number % 2 else "advice"
        steps = zip(each.steps, states(each), strict=True)
        heard.append(replace(each, steps=tuple(replace(s, **{about: (warning_id("sql", at),)}) for s, at in steps)))
    said = Document.from_bytes(train(pairs).weights).thresholds
    assert {each.state for each in said} >= {"first"}
    assert Document.from_bytes(train(heard).weights).thresholds == ()


def told(learned: bytes) -> list[str]:
    return sorted(Document.from_bytes(learned).places["shop"].names)


def looked_up(place: str = "") -> list[Trajectory]:
    """Sessions of six agents that look the tables up and then get past a failure."""
    steps = (
        call("sql", '{"query":"SELECT price FROM cars"}', "", "no such table: cars"),
        call("sql", '{"query":"SHOW TABLES"}', '[["cars_data"], ["makers"]]'),
        call("sql", '{"query":"SELECT mpg, weight FROM cars_data"}', "7"),
    )
    return fleet(*steps, count=24, agents=6, place=place)


def test_one_session_of_many_names_makes_no_place_forgotten() -> None:
    shop = looked_up("shop")
    words = map("".join, permutations("abcdefghi"))
    flood = []
    for _ in range(40):
        rows = orjson.dumps(dict.fromkeys(islice(words, 120), 1)).decode()
        flood.append(call("sql", f'{{"query":"SELECT a FROM {next(words)}"}}', rows))
    before = told(train(shop).weights)
    assert {"cars_data", "mpg", "weight"} <= set(before)
    evil = trajectory(*flood, session="e", agent="eve", place="shop", ended=99.0)
    assert told(train([*shop, evil]).weights) == before


def test_invented_kinds_of_failure_leave_room_for_those_of_others() -> None:
    errors = [f"word{one}{two} stuff{two}{one} of nothing" for one in "abcdefghijklmnop" for two in "abcd"]
    calls = [call("x", str(number), "", error) for number, error in enumerate(errors)]
    evil = [trajectory(*calls, session=f"e{number}", agent="eve", ended=float(number)) for number in range(3)]
    learned = train([*evil, *(replace(each, ended=each.ended + 9) for each in sessions(60))])
    kinds = Document.from_bytes(learned.weights).kind_texts
    assert [each.agents for each in kinds if each.tool == "sql"] == [7]
    assert len([each for each in kinds if each.tool == "x"]) == 32


def test_failures_that_one_agent_invents_of_a_name_slow_no_later_session_and_push_no_other_out() -> None:
    def flood(number: int) -> Trajectory:
        words = ["".join(chr(97 + int(digit)) for digit in str(number * 60 + each)) for each in range(60)]
        calls = [call("sql", f"SELECT {each} FROM car", "", f"{each} cannot be read: 'car'") for each in words]
        return trajectory(*calls, session=f"e{number}", agent="eve", ended=9_999.0 + number)

    learning = CallTraining()
    for each in (*sessions(60), *map(flood, range(120))):
        learning.learn(each)
    assert costs_less_than(0.1, lambda: learning.learn(flood(120)))
    named = Document.from_bytes(learning.version().weights).named
    assert {each.names for each in named if each.agents > 1} == {(name,) for name in WRONG}


def test_tools_that_one_agent_invents_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "KEPT_TOOLS", 40)
    calls = [[call(f"t{number}x{each}", "{}", "", "bad") for each in range(20)] for number in range(9)]
    evil = [trajectory(*each, agent="eve", session=f"e{number}", ended=9_999.0) for number, each in enumerate(calls)]
    tools = Document.from_bytes(train([*looked_up(), *evil]).weights).tools
    assert "sql" in tools and len(tools) <= 40


def test_the_tool_that_is_used_most_is_remembered_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "KEPT_TOOLS", 40)
    calls = [[*(call("bash", f"ls {n}", "x") for n in range(5)), *(call(f"t{n}x{each}", "{}", "") for each in range(9))]
             for n in range(20)]  # fmt: skip
    learned = train([trajectory(*each, session=f"s{n}", ended=float(n)) for n, each in enumerate(calls)])
    assert Document.from_bytes(learned.weights).tools["bash"] == 100


def test_one_agent_pushes_no_look_up_out() -> None:
    flood = [
        trajectory(call("ping", '{"a":1}', "pong"), session=f"e{number}", agent="eve", ended=99.0 + number)
        for number in range(4_100)
    ]
    document = Document.from_bytes(train([*looked_up(), *flood]).weights)
    assert [each.text for each in document.look_ups] == ["SHOW TABLES"]


def states(session: Trajectory) -> list[State]:
    context, found = CallContext(session.goal), list[State]()
    for step in session.steps:
        found.append(context.state)
        context.record(MadeCall(step.tool, step.arguments), step.result, step.family)
    return found


def test_many_sessions_of_one_agent_make_up_no_failure_of_what_works_for_ten() -> None:
    error = "unknown mode 'fast'"
    steps = [call("deploy", f'{{"mode": "fast", "v": {n % 5}}}', "done", None if n < 60 else error) for n in range(260)]
    past = [
        trajectory(step, session=f"{n}", agent=f"good{n % 10}" if n < 60 else "evil", goal=f"goal {n}", ended=float(n))
        for n, step in enumerate(steps)
    ]
    outlook = CallModel.from_bytes(train(past).weights).outlook(
        MadeCall("deploy", '{"mode": "fast", "v": 1}'), CallContext("goal"), None
    )
    assert outlook is not None and outlook.fails < 0.5


@for_each("agents, sessions", (2, 1), (2, 3), (3, 2), (5, 3), (10, 1))
@for_each("lies", 5, 15, 50)
def test_one_agent_hides_no_failure_of_a_small_fleet(agents: int, sessions: int, lies: int) -> None:
    def pay(account: str, number: int, error: str | None = None) -> Step:
        return call("transfer", f'{{"account": "{account}", "amount": {number}}}', "paid", error)

    past = [trajectory(pay(f"ok{n % 5}", n), session=f"b{n}", agent=f"base{n % 6}", ended=float(n)) for n in range(20)]
    for n in range(agents * sessions):
        failed = pay("acme", n, "account 'acme' is closed")
        past.append(trajectory(failed, session=f"g{n}", agent=f"good{n % agents}", goal=f"pay {n}", ended=30.0 + n))
    asked = MadeCall("transfer", '{"account": "acme", "amount": 777}'), CallContext("new"), None
    for began in (0.5, 99.0):
        works = [
            trajectory(pay("acme", n), session=f"e{n}", agent="eve", goal=f"eve {n}", ended=began + n / 99)
            for n in range(lies)
        ]
        model = CallModel.from_bytes(train([*past, *works]).weights)
        outlook = model.outlook(*asked)
        assert outlook is not None and outlook.warned
        assert model.expected(*asked).names == ("acme",)
    two = [replace(each, agent=f"eve{n % 3}", session=f"x{n}") for n, each in enumerate(works)]
    outlook = CallModel.from_bytes(train([*past, *two]).weights).outlook(*asked)
    assert outlook is not None and (agents > 2 or not outlook.warned), "three agents are believed rather than two"


def test_a_name_that_works_in_the_same_session_is_not_blamed() -> None:
    def listed(where: str, error: str | None = None) -> Step:
        return call("list", f'{{"resource": "pods", "namespace": "{where}"}}', "3 pods", error)

    for later, names in (("production", ()), ("staging", ("pods",))):
        then = None if not names else "no such namespace"
        past = fleet(listed("prod", "cannot list resource 'pods'"), listed(later, then), count=20, agents=4)
        model = CallModel.from_bytes(train(past).weights)
        asked = MadeCall("list", '{"resource": "pods", "namespace": "test"}'), CallContext("g"), None
        assert model.expected(*asked).names == names


def test_a_version_knows_what_came_to_the_broker_before_it_and_not_what_senders_date() -> None:
    imported = [replace(each, arrived=each.ended + 1e9) for each in sessions(9)]
    dated = [replace(each, ended=2e9, arrived=each.ended + 1) for each in sessions(9)]
    untils = [CallModel.from_bytes(train(each).weights).until for each in (imported, dated)]
    assert untils == [max(each.arrived for each in made) for made in (imported, dated)]
