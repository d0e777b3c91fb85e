import orjson
from msgspec.structs import replace

from fleetlore.advice.before_call import need_tip
from fleetlore.advice.gate import all_of
from fleetlore.calls.document import Need
from fleetlore.calls.model import CallModel
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.trajectory import Step, Trajectory
from models.calls.evidence import Fleet, NeedRecords
from models.calls.training import train
from streams.offline.memory_pipeline import MemoryPipeline
from tests.build import call, trajectory

ERROR = "Error: non-delivered order cannot be exchanged"
NEED = Need("exchange", "order_id", "status", "pending", "non-delivered order cannot be exchanged", 8, 8, 4)


def of_order(tool: str, number: int, status: str, error: str | None = None) -> Step:
    order = f"#W{1000 + number}"
    result = orjson.dumps({"order_id": order, "items": 2, "status": status}).decode()
    return call(tool, orjson.dumps({"order_id": order}).decode(), result, error)


def session(number: int, status: str, agents: int = 4, fails: bool | None = None) -> Trajectory:
    """An order is looked up and exchanged, which fails unless it was delivered."""
    fails = status != "delivered" if fails is None else fails
    return trajectory(
        of_order("get_order", number, status),
        of_order("exchange", number, "exchange requested", ERROR if fails else None),
        session=f"s{number}",
        agent=f"a{number % agents}",
        goal=f"exchange what I bought, {number}",
        ended=float(number),
    )


def said(sessions: list[Trajectory], quorum: int = 2) -> tuple[Need, ...]:
    fleet = Fleet(quorum)
    records = NeedRecords(fleet)
    for each in sessions:
        kinds = [("non-delivered order cannot be exchanged", ()) if step.failed else None for step in each.calls]
        fleet.agents.add(each.agent)
        records.learn(each, kinds)
    return records.said()


SESSIONS = [session(number, "pending" if number % 3 == 0 else "delivered") for number in range(24)]


def test_calls_that_fail_wherever_a_thing_is_so_need_it_otherwise() -> None:
    assert said(SESSIONS) == (NEED,)
    assert all_of(need_tip(NEED).parts) == "exchange fails with a `order_id` whose status is `pending`."


def test_one_agent_few_sessions_and_what_fails_everywhere_teach_nothing() -> None:
    mine = [session(number, "pending" if number % 3 == 0 else "delivered", agents=1) for number in range(24)]
    other = trajectory(call("look", "{}"), session="other", agent="another")
    assert said([*mine, other]) == ()
    # A fleet of one owner under one name: sessions of different goals count as agents.
    assert said(mine) == () and said([replace(each, goal="the same") for each in mine], 1) == ()
    assert said(mine, 1)
    assert said(SESSIONS[:7]) == ()
    assert said([session(number, "pending" if number % 3 else "delivered", fails=True) for number in range(24)]) == ()


def test_a_field_that_says_something_else_of_each_thing_teaches_nothing() -> None:
    words = ["".join(chr(97 + int(digit)) for digit in str(100 + number)) for number in range(24)]
    assert said([session(number, words[number], fails=number % 2 == 0) for number in range(24)]) == ()


def test_a_call_that_an_earlier_one_rules_out_is_told_from_the_others() -> None:
    sessions = []
    for number in range(24):
        changed = [of_order("change_items", number, "changed")] if number % 3 == 0 else []
        moved = of_order("change_address", number, "pending", "Error: order cannot be changed" if changed else None)
        sessions.append(trajectory(*changed, moved, session=f"s{number}", agent=f"a{number % 4}", ended=float(number)))
    found, of_status = said(sessions)
    assert (of_status.field, of_status.value) == ("status", "changed")
    assert (found.field, found.value, found.failed, found.held) == ("", "change_items", 8, 8)
    assert all_of(need_tip(found).parts) == "change_address fails with a `order_id` that change_items has taken before."


async def test_an_agent_is_told_before_the_call_and_not_again_after_it() -> None:
    model = CallModel.from_bytes(
        train([*SESSIONS, *[session(number, "delivered") for number in range(24, 60)]]).weights
    )
    memory = MemoryPipeline(100.0, learn=False)
    memory.call_model, memory.index = model, LoreIndex()

    async with memory.session("new", "exchange it", "", "s", []) as asking:
        order = {"order_id": "#W77"}
        async with asking.action("get_order", order) as action:
            action.result = {"order_id": "#W77", "status": "pending"}
        told = asking.advise("exchange", order)
        assert [tip.text for tip in told.tips] == [all_of(need_tip(NEED).parts)] and told.sure
        assert told.tips[0].chance is not None and told.tips[0].chance > 0.9
        async with asking.action("exchange", order) as action:
            action.fail("", ERROR)
        assert "needed" not in [tip.source for tip in asking.advise().tips]
        assert "needed" not in [tip.source for tip in asking.advise("exchange", {"order_id": "#W78"}).tips]

    async with memory.session("new", "exchange it", "", "s2", []) as asking:
        async with asking.action("get_order", order) as action:
            action.result = {"order_id": "#W77", "status": "pending"}
        async with asking.action("exchange", order) as action:
            action.fail("", ERROR)
        assert [tip.text for tip in asking.advise().tips] == [all_of(need_tip(NEED).parts)]
