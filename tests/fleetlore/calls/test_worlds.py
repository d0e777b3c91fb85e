from fleetlore.calls.call import is_closed, shows_names, world_of
from tests.rows import for_each

STATEMENT = '{"query":"SELECT name FROM sqlite_master"}'


@for_each("name", ["mcp__shop__query", "mcp__shop__run_sql", "mcp__db.example.com__sql", "mcp__a__b__sql"])
def test_an_mcp_tool_is_of_the_open_world_until_the_operator_lists_it(name: str) -> None:
    assert not is_closed(name, STATEMENT)
    assert world_of(name) == "open"
    for listed in ([name], ["mcp__*"]):
        assert is_closed(name, STATEMENT, listed) and shows_names(name, STATEMENT, listed)
        assert world_of(name, listed) == "closed"
    assert not shows_names(name, '{"query":"SELECT name FROM customers"}', [name])
    assert not is_closed(name, STATEMENT, [name.replace("mcp__", "mcp__other_")])


def test_a_statement_of_another_tool_asks_a_database() -> None:
    assert is_closed("run_sql", STATEMENT) and world_of("run_sql") == "SQL"
