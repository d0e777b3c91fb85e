"""Count which secrets of two scanners of repositories are masked: the forms that gitleaks knows and the texts that it
tries them on, and the texts of trufflehog's own tests.

Nothing of theirs is kept here: `python -m benchmarks.security.scanners --data FOLDER` reads clones of both. A secret
counts as masked when no twelve characters of it in a row are left. What cannot be read is counted, not guessed.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.command import command_app
from benchmarks.secrets import Planted
from benchmarks.security.corpora import PLACES, matching
from benchmarks.security.go_texts import Function, GoSource
from fleetlore.redact.redact import redact

# Of each form, and seed of what is random.
EACH, SEED = 12, 11
_LEAST = 16
# What their patterns match at random has not the structure by which such a secret is one.
_STRUCTURED = frozenset({"private-key", "jwt", "jwt-base64", "kubernetes-secret-yaml"})
# A word that names a secret, in front of one in its line.
NAMING = re.compile(r"secret|token|key|pass|pwd|auth|cred", re.I)
# What trufflehog gives back beside the secret: whose it is, and where.
_NO_SECRET = re.compile(r"[\w.-]+\.[a-z]{2,12}|[^\s@]+@[\w.-]+", re.I)
_HOST = re.compile(r"^(?:[\w:+-]+:)?//(?:[^/@\s]*@)?[^/\s]*")
OPERATOR = r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)"


class Corpus(NamedTuple):
    """What could be read of one corpus.

    Attributes:
        bar: percent to be masked.
        unread: texts whose secret is not known here.
    """

    name: str
    bar: float | None
    texts: list[Planted]
    unread: int


def gitleaks(folder: Path, rng: Random) -> Iterator[Corpus]:
    """The rules' forms in texts that name nothing; and the texts that each rule has to find."""
    config = tomllib.loads((folder / "config" / "gitleaks.toml").read_text())
    rules = {each["id"]: each["regex"] for each in config["rules"] if "regex" in each}
    forms: list[Planted] = []
    unread = 0
    for name, pattern in rules.items():
        if OPERATOR in pattern:
            continue
        for _ in range(EACH):
            made = _made_by(pattern, rng) if name not in _STRUCTURED else None
            if made is None:
                unread += 1
            elif len(made.secret) >= _LEAST:
                forms.append(Planted(name, rng.choice(PLACES).format(made.text), made.secret))
    yield Corpus("gitleaks, forms", 97.5, forms, unread)
    tried: list[Planted] = []
    unread = 0
    for name, text in _positives(folder / "cmd" / "generate" / "config", rng):
        found = None if text is None or name not in rules else _compiled(rules[name]).search(text)
        if found is None or text is None:
            unread += 1
        elif len(secret := _secret_of(found)) >= _LEAST:
            tried.append(Planted(name, text, secret))
    named = [each for each in tried if _is_named(each.text, each.secret)]
    yield Corpus("gitleaks, its own test texts, named", 97.5, named, unread)
    yield Corpus("gitleaks, its own test texts, no name near", None, [e for e in tried if e not in named], 0)


def _positives(folder: Path, rng: Random) -> Iterator[tuple[str, str | None]]:
    """Rule and text of what the rules are tried on."""
    patterns = GoSource((folder / "utils" / "patterns.go").read_text(), {})
    samples = re.findall(r'^\t\t"[^"]+":\s+(?=["`])', text := (folder / "utils" / "generate.go").read_text(), re.M)
    notations = [GoSource(text, {}).value(text.index(each) + len(each))[0] for each in samples]

    def sampled(name: str, secret: str) -> list[str]:
        filled = [("{i}", name), ("{I}", name.upper()), ("{s}", secret)]
        return [_replaced(each, filled) for each in notations]

    functions: dict[str, Function] = {
        "secrets.NewSecret": lambda pattern: matching(_python(pattern), rng),
        "utils.GenerateSampleSecret": lambda name, secret: f'{name}_api_token = "{secret}"',
        "utils.GenerateSampleSecrets": sampled,
        "append": lambda _, *more: list(more),
        "tps": lambda: None,
    }
    for name, form in re.findall(r"func (\w+)\(size string\) string \{\n\treturn fmt.Sprintf\((`.*?`)", patterns.text):
        functions[f"utils.{name}"] = lambda size, form=form: form[1:-1].replace("%s", size)
    for name, form in re.findall(r"func (\w+)\(\) string \{\n\treturn (`.*?`)", patterns.text):
        functions[f"utils.{name}"] = lambda form=form: form[1:-1]
    for path in sorted((folder / "rules").glob("*.go")):
        for body in re.split(r"^func ", path.read_text(), flags=re.M)[1:]:
            rule = re.search(r'RuleID:\s+"([^"]+)"', body)
            source = GoSource(body.replace("append(tps,", "append([]string{},"), functions)
            for match in re.finditer(r"\btps\s*:?=\s*", source.text):
                for each in _flat(source.value(match.end())[0]):
                    yield (rule[1] if rule else ""), each


def _replaced(text: str, filled: Iterable[tuple[str, str]]) -> str:
    for name, value in filled:
        text = text.replace(name, value)
    return text


def _flat(value: Any) -> Iterator[str | None]:
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield value if isinstance(value, str) else None


def trufflehog(folder: Path) -> Iterator[Corpus]:
    """What the tests of the detectors expect to be found, with a word that names it in its line and without."""
    found: list[Planted] = []
    unread = 0
    for path in sorted((folder / "pkg" / "detectors").rglob("*_test.go")):
        if path.name.endswith("_integration_test.go"):
            continue
        source = GoSource(path.read_text(), {})
        for match in re.finditer(r"\binput:\s+", source.text):
            text, end = source.value(match.end())
            after = source.text[end : end + 400].split("input:")[0]
            if (want := re.search(r"\bwant:\s+(?=\[\]string\{)", after)) is None:
                continue
            for each in _flat(source.value(end + want.end())[0]):
                parts = _parts(each, text) if each is not None and isinstance(text, str) else []
                unread += not parts
                found += [Planted(path.parent.name, text, part) for part in parts if len(part) >= _LEAST]
    found = [each for each in dict.fromkeys(found) if not _NO_SECRET.fullmatch(each.secret)]
    named = [each for each in found if _is_named(each.text, each.secret)]
    yield Corpus("trufflehog, its own tests, named", 96.0, named, unread)
    yield Corpus("trufflehog, its own tests, no name near", None, [each for each in found if each not in named], 0)


def _parts(wanted: str, text: str) -> list[str]:
    """The parts of what a test wants that are in its text; none where one is not."""
    if wanted in text:
        login = re.search(r"//[^\s:/@]*:(\S+)@", wanted)
        return [login[1] if login else _HOST.sub("", wanted)]
    parts = [part for part in re.split(r"[:;,|]|\s", wanted) if part]
    return [_HOST.sub("", part) for part in parts] if all(part in text for part in parts) else []


def _is_named(text: str, secret: str) -> bool:
    before = text[: text.index(secret)].rpartition("\n")[2]
    return NAMING.search(before) is not None


def _made_by(pattern: str, rng: Random) -> Planted | None:
    """A secret that the pattern finds, with what it asks to stand beside it."""
    compiled = _compiled(pattern)
    for _ in range(20):
        if found := compiled.search(matching(_python(pattern), rng)):
            secret = _secret_of(found)
            # More than the marks at its ends.
            return Planted("", found[0] if len(found[0]) > len(secret) + 4 else secret, secret)
    return None


def _secret_of(found: re.Match[str]) -> str:
    """What the pattern takes for the secret, without the name that some have before it."""
    return re.sub(
        r"^(?:\w+=|(?:https?://)?[\w-]+(?:\.[\w-]+)+/)", "", next((each for each in found.groups() if each), found[0])
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(_python(pattern))


def _python(pattern: str) -> str:
    r"""The pattern as Python reads it: flags in front alone, and no `\z`."""
    folded = "(?i)" in pattern
    text = pattern.replace("(?i)", "").replace(r"\z", r"\Z").replace("[[:alnum:]]", "[A-Za-z0-9]")
    return f"(?i:{text})" if folded else text


def corpora(data: Path) -> Iterator[Corpus]:
    """Those of the clones in a folder."""
    yield from gitleaks(data / "gitleaks", Random(SEED))
    yield from trufflehog(data / "trufflehog")


def said_of(corpus: Corpus, left: Sequence[Planted]) -> str:
    """How many of its secrets are left, against the bar."""
    share = 100 * len(left) / max(1, len(corpus.texts))
    bar = "" if corpus.bar is None else f", bar {100 - corpus.bar:.1f}%"
    missed = "" if corpus.bar is None or share <= 100 - corpus.bar else ": **missed**"
    return f"{len(left)} ({share:.1f}%{bar}){missed}; {corpus.unread} not read"


def missed(corpus: Corpus, masked: Callable[[str], str] = redact) -> list[Planted]:
    """The secrets of which something is left."""
    return [each for each in corpus.texts if each.is_left_in(masked(each.text))]


def measure(
    data: Annotated[Path, typer.Option("--data", help="Folder with clones `gitleaks` and `trufflehog`.")],
    show: Annotated[int, typer.Option("--show", help="So many of the missed texts of each corpus.")] = 0,
) -> None:
    """Count how many of two scanners' secrets are masked."""
    for corpus in corpora(data):
        left = missed(corpus)
        typer.echo(f"{corpus.name}: {said_of(corpus, left)}")
        typer.echo(
            f"  {', '.join(f'{kind} {number}' for kind, number in Counter(e.kind for e in left).most_common(20))}"
        )
        for each in left[:show]:
            typer.echo(f"  {each.kind}: {each.text[:300]!r} {each.secret!r} -> {redact(each.text)[:300]!r}")


if __name__ == "__main__":
    command_app(measure)()
