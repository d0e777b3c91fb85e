"""Let atheris look for inputs that reach new code: `python -m tests.fuzz.guided NAME -max_total_time=60`."""

import logging
import sys
from tempfile import gettempdir

import atheris

with atheris.instrument_imports(include=["fleetlore", "models", "sinks", "streams"]):
    from tests.fuzz.boundaries import BOUNDARIES
from tests.fuzz.boundary import answers, smallest
from tests.fuzz.odd import FromBytes

# Inputs that are checked together: a batch starts a relay or a pipeline.
_TOGETHER = 8


def main() -> None:
    boundary = BOUNDARIES[sys.argv.pop(1)]
    logging.disable()

    def check(given: bytes) -> None:
        random = FromBytes(given)
        inputs = [boundary.make(random) for _ in range(_TOGETHER)]
        try:
            answers(boundary, inputs)
        except Exception as error:
            print(*(f"input: {each!r}" for each in smallest(boundary, inputs, error)), sep="\n")
            raise

    # Failing inputs are printed above. The file that libFuzzer writes of them is not needed.
    quiet = ["-verbosity=0", f"-artifact_prefix={gettempdir()}/fleetlore-fuzz-"]
    atheris.Setup([*sys.argv, "-max_len=4096", "-len_control=0", *quiet], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
