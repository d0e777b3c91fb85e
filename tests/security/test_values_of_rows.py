"""Values of rows, identities and secrets that one agent read are in nothing that others load or read."""

from tests.rows import for_each
from tests.security.memory_fleet import Made, MemoryFleet, leaks

PLACE = "crm"
ROWS = (
    '[{"id": 4, "user_id": "ida_kern_77", "name": "Ida Kern", "email": "ida_kern@example.org", "login": "ikern9", '
    '"hint": "Sommer_24x", "city": "Bad_Aibling", "diagnosis": "asthma_severe", "plate": "RO_IK77", "pin": "k9", '
    '"note": "merger_lakeside_q2"}]'
)
VALUES = ("ida_kern", "ikern9", "sommer_24", "aibling", "asthma", "ro_ik77", "lakeside")


async def support(sessions: int) -> MemoryFleet:
    fleet = MemoryFleet()
    for number in range(sessions):
        calls = (
            Made("sql", {"query": "SELECT * FROM customers"}, ROWS),
            Made("sql", {"query": "SELECT * FROM customers WHERE user_id = 'ida_kern_77'"}, ROWS),
        )
        await fleet.session("support", *calls, goal=f"find the customer {number}", place=PLACE)
    return fleet


@for_each("sessions", 1, 6)
async def test_values_of_rows_are_in_nothing_that_others_load_or_read(sessions: int) -> None:
    fleet = await support(sessions)
    assert not leaks({"call model": fleet.learn().decode("utf-8", "replace"), "lore": fleet.published()}, *VALUES)
    for goal, table in (("find the customer", "customer_list"), ("look up a diagnosis", "patients")):
        missing = Made("sql", {"query": f"SELECT * FROM {table}"}, error=f"Table 'crm.{table}' doesn't exist")
        assert not leaks(await fleet.read(missing, goal=goal, place=PLACE), *VALUES)


async def test_names_of_the_place_that_two_agents_used_are_known() -> None:
    """Without this the tests above would hold for a model that knows nothing."""
    fleet = MemoryFleet()
    for number in range(6):
        call = Made("sql", {"query": "SELECT order_ref FROM order_lines"}, "order_ref\n4")
        await fleet.session(f"a{number % 2}", call, goal=f"list orders {number}", place=PLACE)
    assert b"order_lines" in fleet.learn()


@for_each("place", "ida.kern@example.org", "postgres://ida:Sommer24x@db/crm")
async def test_the_identity_in_the_name_of_a_place_is_published_nowhere(place: str) -> None:
    fleet = MemoryFleet()
    for number in range(6):
        call = Made("sql", {"query": "SELECT order_ref FROM order_lines"}, "order_ref\n4")
        await fleet.session(f"a{number % 2}", call, goal=f"list orders {number}", place=place)
    document = fleet.learn().decode(errors="replace")
    published = {"call model": document, "items and patterns": fleet.published()}
    assert not leaks(published, "ida.kern", "ida:", "Sommer24x")


@for_each("field", "shipping_address", "billing_street", "city", "passenger", "recipient", "contact")
async def test_the_identity_in_an_argument_is_shown_to_no_other_agent(field: str) -> None:
    value = "Lindenhof 7, Tutzing"
    fleet = MemoryFleet()
    ship, check = Made("ship", {field: value}, "shipped"), Made("track", {"last": True}, "on its way")
    for _ in range(2):
        await fleet.session("sales", ship, check, goal="ship the order", task="ship")
        await fleet.session(
            "sales", Made("track", {"last": True}, error="none"), goal="ship the order", task="ship", ok=False
        )
    assert not leaks(await fleet.read(goal="ship the order", task="ship", tools=["ship"]), "lindenhof", "tutzing")
