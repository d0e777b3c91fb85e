"""A room of the packages imports only the rooms that are listed before it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

# From the ground up; rooms in one set do not import each other.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(each.split())
    for each in (
        "fleetlore.errors fleetlore.clock fleetlore.files fleetlore.limits fleetlore.loopback fleetlore.words",
        "fleetlore.cluster fleetlore.http_server",
        "fleetlore.config fleetlore.redact",
        "fleetlore.wire",
        "fleetlore.fingerprint fleetlore.kafka",
        "fleetlore.adapters",
        "fleetlore.calls fleetlore.lora",
        "fleetlore.recall fleetlore.transcripts",
        "fleetlore.advice",
        "fleetlore.watch",
        "fleetlore.agent",
        "fleetlore.join",
        "fleetlore.relay",
        "fleetlore fleetlore.cli fleetlore.testing",
        "models.place_names models.memory models.uplift sinks",
        "models.calls models.distil models.judge",
        "models.llm models.policy",
        "models.backtest",
        "streams.stage",
        "streams.stages",
        "streams.runtime",
        "streams.offline streams.training",
        "streams.console",
        "streams.embedded",
        "streams.commands",
    )
)
FLOOR = {room: floor for floor, rooms in enumerate(LAYERS) for room in rooms}
PACKAGES = ("fleetlore", "models", "sinks", "streams")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path) for path in FILES}


def room(module: str) -> str:
    parts = module.split(".")
    return "sinks" if parts[0] == "sinks" else ".".join(parts[:2])  # sinks is one room


def imports(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports, lazily too, but not those of `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text())
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else str(node.module) for name in names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in (*PACKAGES, "benchmarks", "tests"))


def faults(path: Path) -> Iterator[str]:
    own = module_of(path)
    if "." not in own:  # the public names of a package, which no module imports from there
        return
    for name in imports(path):
        if name.split(".")[0] not in PACKAGES:
            yield f"{own} imports {name}, which is not in a wheel"
        elif room(name) != room(own) and room(name) not in FLOOR:
            yield f"{name} has no place in LAYERS"
        elif room(name) != room(own) and FLOOR[room(name)] >= FLOOR[room(own)]:
            yield f"{own} imports {name}, which does not stand below it"
        elif room(name) != room(own) and ".testing" in name:
            yield f"{own} imports {name}, a test double"


def test_a_module_imports_only_what_stands_below_it() -> None:
    assert [fault for path in FILES for fault in faults(path)] == []


# Generators, brokers, attacks, empty caches and hashes of states that tests of the product share with the benchmarks.
KIT = frozenset(
    ["embedded_broker", "cloudevents", "cpu", "tiny_model", "replay", "rollouts", "runs", "secrets", "security"]
)


def test_tests_of_the_product_use_the_kit_of_the_benchmarks_only() -> None:
    own = ("tests/benchmarks/", "tests/docs/")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not str(path.relative_to(ROOT)).startswith(own):
            text = path.read_text()
            used = set(re.findall(r"^\s*(?:from|import) benchmarks\.(\w+)", text, re.MULTILINE))
            used |= set(re.findall(r"^\s*from benchmarks import (\w+)", text, re.MULTILINE))
            assert used <= KIT, f"{path.relative_to(ROOT)}: {', '.join(sorted(used - KIT))}"
