"""Run a line of Python and check its answer; it needs an environment with pandas and numpy only.

Reads `before`, `code` and `check` as JSON from its standard input, and prints JSON: `said`, `error`, `solved`.
"""

import contextlib
import io
import json
import resource
import sys
import warnings

import numpy as np
import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]

MEGABYTE = 2**20
resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE, MEGABYTE))
warnings.simplefilter("ignore")

asked = json.load(sys.stdin)
names = {"pd": pd, "np": np}
exec(asked["before"], names)
printed = io.StringIO()
found = {"said": "", "error": "", "solved": False}
try:
    with contextlib.redirect_stdout(printed):
        exec(asked["code"], names)
        if "answer" not in names:
            raise NameError("name 'answer' is not defined: assign the result to it")
    found["said"] = f"{printed.getvalue()}answer = {names['answer']!r}"
except Exception as error:
    text = str(error).splitlines()[0] if str(error) else ""
    found |= {"said": f"{type(error).__name__}: {text}", "error": type(error).__name__}
else:
    with contextlib.suppress(Exception):
        found["solved"] = bool(eval(asked["check"], names))
print(json.dumps(found))
