"""Texts that a sender may choose as an id and that a query language, a file or a terminal reads in another way."""

from hypothesis import strategies as st

# Closes a quoted list of ids and matches every row of another tenant.
INJECTION = "x'] or tenant == 'victim' or id in ['y"

# They hold no control character and no lone surrogate, so each is a valid session id.
ODD_IDS = (
    "user's task",
    'say "x"',
    INJECTION,
    INJECTION.replace("'", '"'),
    "ends in \\",
    "ends in \\\\",
    "\\'",
    '\\"',
    "\\n",
    "\\u0041",
    "' or 1 == 1 or id == '",
    "' OR 1=1 --",
    "{x} {{y}} ${z}",
    "%s%n %",
    "a/b",
    "/",
    "a|0|b",
    "a#1",
    "id in [1]",
    "\u2028\u2029",
    "\ufeff",
    "\u202eabc",
    "e\u0301",
    "\uffff\U0010ffff",
    "İßﬃ",
    "😀" * 256,
    " ",
    "*?[a]",
    "NULL",
    "None",
    "../../etc/passwd",
)

# The edges that only a store meets: control characters, half a surrogate pair, more bytes than an id may have.
ODDER_IDS = (
    "\n",
    "a\r\nb",
    "\t",
    "\x00",
    "a\x00b",
    "\x1b[31m",
    "\x7f",
    "\x85",
    "\ud83d",
    "\ude00\ud83d",
    "x" * 1_100,
    "",
)

odd_ids = st.one_of(
    st.sampled_from(ODD_IDS + ODDER_IDS),
    st.text(max_size=20),
    st.text(alphabet="'\"\\[]()=<>!&|{}%$`,;:/#- \n\r\tnux0", max_size=40),
    st.text(st.characters(categories=("Cs", "Cc", "Zl", "Zp", "Po", "So")), max_size=10),
)
