from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.fingerprint.literals import masked_arguments, masked_text, masked_tokens, masked_value, names
from tests.rows import for_each


@for_each("text, masked",
    ("SELECT a FROM t WHERE b = 'Ann' LIMIT 20", "SELECT a FROM t WHERE b = '<text>' LIMIT <number>"),
    ("ls -la /home/ann | head -5", "ls -la <path> | head -5"),
    ("python src/app/main.py --port 8080", "python <path> --port <number>"),
    ("x = symbols('x')\nprint(x**2 + 12.5)", "x = symbols('x')\nprint(x**2 + <number>)"),
    ("order #W123 of ann_rossi_9620 on HAT030", "order <id> of <id> on <id>"),
    ("curl https://example.org/a?b=1", "curl <url>"),
    ("since 2024-05-01 10:00", "since <date>"),
    ("utf8mb4 s3 python311 sales_2024_eu orders_202601", "utf8mb4 s3 python311 sales_2024_eu orders_202601"),
    ("user_812 order_2026 run2026 mia_li_3668 HAT136 x9999", "<id> <id> <id> <id> <id> <id>"),
    ("f(a/b, T1.name, int64)", "f(a/b, T1.name, int64)"),
    ('{"user_id":"ann","cabin":"economy"}', '{"user_id":"<user id>","cabin":"economy"}'),
    ('{"address1":"12 Hill Road","first_na', '{"address1":"<address>","<text>'),
)  # fmt: skip
def test_literals_are_masked_and_words_stay(text: str, masked: str) -> None:
    assert masked_text(text) == masked


def test_values_of_a_call_are_named_after_their_keys() -> None:
    call = (
        '{"order_id":"#W1","itemIds":["1654","2654"],"first_name":"Ann","reason":"not needed","cabin":"economy",'
        '"force":true,"retries":3,"limit":50,"query":"SELECT a FROM b WHERE c = \'Ann\'","flights":'
        '[{"date":"2024-05-01"}]}'
    )
    assert masked_arguments(call) == {
        "order_id": "<order id>",
        "itemIds": ["<item id>"],
        "first_name": "<first name>",
        "reason": "<reason>",
        "cabin": "economy",
        "force": True,
        "retries": 3,
        "limit": "<limit>",
        "query": "SELECT a FROM b WHERE c = '<text>'",
        "flights": [{"date": "<date>"}],
    }


def test_what_the_reader_knows_stays() -> None:
    known = names("No order #W12 of 'Ann B' in 2024")
    assert masked_text("get #W12 'Ann B' 2024 #W13", known) == "get #W12 'Ann B' 2024 <id>"
    given = {"order_id": "#W12", "user": "Ann B", "n": 2024}
    assert masked_value("", given, known) == given


@given(st.text(max_size=200))
def test_masking_again_changes_nothing_and_tokens_cover_all_but_white_space(text: str) -> None:
    assert isinstance(masked_arguments(text), object)
    tokens = masked_tokens(text)
    assert all(start < end for start, end, _ in tokens)
    between = [text[end:start] for (_, end, _), (start, _, _) in pairwise(tokens)]
    assert not "".join(between).strip()
