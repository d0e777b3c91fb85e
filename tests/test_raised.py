"""Check that no exception is raised twice: it keeps each frame that it went through, with the objects of the frame."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    path for folder in ("fleetlore", "models", "sinks", "streams") for path in sorted((ROOT / folder).rglob("*.py"))
]


def raised_constants(tree: ast.Module) -> list[str]:
    """Names at the level of the module or of a class that hold an exception's instance, and are raised."""
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_constant_is_raised(path: Path) -> None:
    assert raised_constants(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    "code",
    [
        "END = ValueError('end')\ndef f():\n    raise END",
        "end = ValueError('end')\ndef f():\n    raise end from None",
        "class A:\n    end = ValueError('end')\n    def f(self):\n        raise self.end",
        "from x import AFTER_END\nraise AFTER_END",
    ],
)
def test_a_raised_constant_is_found(code: str) -> None:
    assert raised_constants(ast.parse(code))
