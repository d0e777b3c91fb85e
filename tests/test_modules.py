"""Check that every module says first what it does, and raises no exception twice."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("fleetlore", "models", "sinks", "streams")
NO_VERBS = {"a", "an", "the", "this", "that", "is", "are", "does", "what", "which", "who", "how", "why", "where"}
NO_VERBS |= {"when", "one", "several", "many", "our"}


@cache
def trees() -> dict[Path, ast.Module]:
    """The modules that are not empty, by path from the root."""
    paths = [path for folder in (*PACKAGES, "benchmarks", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 100
    return {path.relative_to(ROOT): ast.parse(path.read_text()) for path in paths if path.stat().st_size}


def faults_of_docstring(tree: ast.Module) -> Iterator[str]:
    """The reasons why the docstring of a module does not begin with a verb such as `Count`."""
    docstring = ast.get_docstring(tree)
    if not docstring:
        yield "no docstring"
        return
    word = docstring.split()[0].rstrip(",")
    if not word.isalpha() or not word[0].isupper():  # `Topics:` and `fleetlore up` are no verbs
        yield f"{word!r} is no verb"
    if word.lower() in NO_VERBS or word.endswith("ing"):
        yield f"{word!r} is no verb"
    if word.endswith("s") and not word.endswith("ss"):
        yield f"{word!r} describes: write Count, not Counts"


def test_a_module_says_first_what_it_does() -> None:
    assert [f"{path}: {fault}" for path, tree in trees().items() for fault in faults_of_docstring(tree)] == []


def raised_constants(tree: ast.Module) -> list[str]:
    """Names at the level of the module or of a class that hold an exception's instance, and are raised.

    An exception that is raised twice keeps each frame that it went through, with the objects of the frame.
    """
    made: set[str] = set()
    for holder in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]:
        for each in holder.body:
            if isinstance(each, ast.Assign | ast.AnnAssign) and isinstance(each.value, ast.Call):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                made |= {target.id for target in targets if isinstance(target, ast.Name)}
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name | ast.Attribute):
            name = node.exc.id if isinstance(node.exc, ast.Name) else node.exc.attr
            # In capitals it is a constant of another module: a class is spelled otherwise.
            if name in made or (name.isupper() and len(name) > 1):
                names.append(name)
    return names


def test_no_constant_is_raised() -> None:
    found = {str(path): raised_constants(tree) for path, tree in trees().items() if path.parts[0] in PACKAGES}
    assert {path: names for path, names in found.items() if names} == {}
