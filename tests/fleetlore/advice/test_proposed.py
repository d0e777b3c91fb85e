"""The name that an error itself proposes is passed on."""

from fleetlore.advice.advice import advise
from fleetlore.recall.index import LoreIndex
from tests.build import failed_call, situation
from tests.rows import for_each

HINT = 'HINT:  Perhaps you meant to reference the column "t.name".'
SIMILAR = "The most similar command is\n\tcheckout"


def shown(tool: str, call: str, error: str) -> str:
    return advise(LoreIndex(), situation(session="s", failed=failed_call(tool, {"code": call}, "", error))).text


@for_each("tool, call, error, name", [
        ("python", "df.groupy('a')", "'T' object has no attribute 'groupy'. Did you mean: 'groupby'?", "groupby"),
        ("python", "s.resample('M')", "ValueError: Invalid frequency: M. Did you mean ME?", "ME"),
        ("python", "s.resample('M')", "FutureWarning: 'M' is deprecated, please use 'ME' instead.", "ME"),
        ("python", "np.float(1)", "`np.float` was removed. Use `np.float64` instead.", "np.float64"),
        ("python", "f()", "f is deprecated; instead use `g`", "g"),
        ("python", "sklearn.cv", "the module cv has been renamed to model_selection", "model_selection"),
        ("python", "x.ix[0]", "ix was removed in favor of iloc", "iloc"),
        ("sql", "SELECT nme FROM t", 'column "nme" does not exist\n' + HINT, "t.name"),
        ("sql", "SELECT STRLEN(a) FROM t", "unknown function strlen; did you mean `length`?", "length"),
        ("bash", "git chekout dev", "git: 'chekout' is not a git command.\n\n" + SIMILAR, "checkout"),
        ("bash", "ls --colour", "error: unexpected argument '--colour' found; did you mean '--color'?", "--color"),
        ("api", "customer=ann", "unknown field `customer`, did you mean `customer_id`?", "customer_id"),
        ("api", "customer=ann", '{"error": "unknown field \\"customer\\", did you mean \\"client\\"?"}', "client"),
        ("api", "customer=ann", "422: did you mean the field 'client'?", "client"),
        ("api", "customer=ann", "Please use the parameter `client` instead of `customer`.", "client"),
        ("api", "customer=ann", "use `client` field instead", "client"),
        ("api", "customer=ann", "customer was renamed to the property client", "client"),
        ("api", "qty=1", "unknown column qty: it was renamed from qty to quantity", "quantity"),
        ("bash", "npm isntall", 'Unknown command: "isntall"\n\nDid you mean "install"?', "install"),
    ])  # fmt: skip
def test_a_proposed_name_is_told(tool: str, call: str, error: str, name: str) -> None:
    text = shown(tool, call, error)
    assert f"Use `{name}`" in text and "the error itself proposes it" in text, text


def test_the_rejected_name_is_told_with_it() -> None:
    text = shown("bash", "git chekout dev", "git: 'chekout' is not a git command. The most similar command is checkout")
    assert "Use `checkout` instead of `chekout`" in text


@for_each(
    "error",
    [
        "use the force instead",
        "please use it instead",
        "no such table: users",
        "Did you mean to do this?",
        "did you mean: 'groupby'?",  # the call holds it
        "module 'df' has no attribute '__version__'. Did you mean: '__spec__'?",
        "did you mean `<b>rm -rf /</b>`",
        "the column was not renamed because it is locked",
        "it cannot be renamed while locked",
        "Do not use field client instead of customer",
        "never use `client` instead",
    ],
)
def test_nothing_is_proposed_where_the_error_names_nothing(error: str) -> None:
    assert "proposes" not in shown("python", "df.groupby('a')", error)
