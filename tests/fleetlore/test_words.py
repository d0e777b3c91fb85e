from fleetlore.words import names_of, parts_of, words


def test_names_are_found_by_their_parts() -> None:
    assert words("Table 'car_1.carsData' doesn't exist") == ["table", "car", "1", "cars", "data", "doesn", "t", "exist"]


def test_names_in_a_text_are_lower_case_and_those_of_a_dotted_one_apart() -> None:
    assert names_of("SELECT Car_Makers.Id, x FROM t1 ON 'Ford'") == {
        "select", "car_makers", "id", "from", "t1", "on", "ford",
    }  # fmt: skip


def test_a_compound_name_has_parts() -> None:
    assert parts_of("HTTPServer_dailyPrice-x2") == ["http", "server", "daily", "price", "x2"]
