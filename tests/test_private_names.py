"""Count what is used of Faust and aiokafka that is not public: each patch release of theirs may break it."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
THEIRS = ("aiokafka", "faust", "mode")
USES = "|".join(rf"{name}\b" for name in THEIRS) + r"|fleetlore\.kafka|streams\.runtime"
IMPORTS = re.compile(rf"^ *(?:import|from) (?:{USES})", re.MULTILINE)
# Each with its reason.
USED = {
    "_client": "`connections`: a stop that hangs is ended by closing them, and only they know topics of all",
    "_proc_fetch_request": "`fleetlore.kafka.batches`: the only place where a fetch's bytes become records",
    "bootstrap_conn": "`_close_first_connection`: the connection of a cancelled start, which no `stop` knows",
}
MOST = 3


def theirs(name: str) -> bool:
    return name.partition(".")[0] in THEIRS


def files() -> Iterator[tuple[Path, ast.Module]]:
    """The files that import Faust or aiokafka, and those that use what `fleetlore.kafka` makes of it."""
    for package in ("fleetlore", "streams"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            if IMPORTS.search(text):
                yield path, ast.parse(text)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_replace"  # of any named tuple


def reached_for(tree: ast.AST) -> Iterator[str]:
    """Private names of other objects than one's own, by a dot or by `getattr`; and locals of other frames."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(value=ast.Attribute(attr="f_locals")):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="f_locals")), args=[ast.Constant(value), *_]):
                yield str(value)
            case ast.Subscript(value=ast.Attribute(attr="f_locals"), slice=ast.Constant(value)):
                yield str(value)
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"), args=[_, name, *_]):
                text = ast.unparse(name).lstrip("rf").strip("'\"")
                if is_private(text):
                    yield text
            case ast.Call(func=ast.Name(id="vars")):
                yield ast.unparse(node)


def own(tree: ast.AST) -> set[str]:
    """Private names that the file itself gives to its objects."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
    return {name for name in found if is_private(name)}


def taken_over(module: ModuleType) -> Iterator[str]:
    """Private names of a base of theirs that a class of ours overrides, calls or gives another value."""
    for cls in vars(module).values():
        if not inspect.isclass(cls) or cls.__module__ != module.__name__:
            continue
        bases = [base for base in cls.__mro__ if theirs(base.__module__)]
        known = {name for base in bases for name in dir(base)}
        for base in bases:
            known |= set(re.findall(r"\bself\.(_[a-z]\w*)", inspect.getsource(base)))
        mine = set(re.findall(r"\b(?:self|cls|super\(\))\.(_[a-z]\w*)", inspect.getsource(cls))) | set(vars(cls))
        yield from (name for name in mine & known if re.match(r"_[a-z]", name) and name != "_abc_impl")


def test_few_private_names_of_faust_and_aiokafka_are_used() -> None:
    found: set[str] = set()
    for path, tree in files():
        # The client module has objects of theirs alone; elsewhere a name that the file gives itself is its own.
        found |= set(reached_for(tree)) - (set() if path.parent.name == "kafka" else own(tree))
        found |= set(taken_over(importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))))
    assert found == USED.keys()
    assert len(found) <= MOST
