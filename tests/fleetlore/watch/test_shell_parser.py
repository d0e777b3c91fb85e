from hypothesis import given
from hypothesis import strategies as st

from fleetlore.watch.shell_parser import Command, commands
from tests.rows import for_each


def run(text: str) -> list[tuple[str, ...]]:
    return [command.words for command in commands(text)]


@for_each(
    "text, expected",
    [
        ("rm -rf /tmp/x", [("rm", "-rf", "/tmp/x")]),
        ("rm -rf / tmp/x", [("rm", "-rf", "/", "tmp/x")]),
        ('echo "rm -rf /; ls"', [("echo", "rm -rf /; ls")]),
        ("cd a && make; ls\npwd", [("cd", "a"), ("make",), ("ls",), ("pwd",)]),
        ("cd a \\\n  b", [("cd", "a", "b")]),
        ("sudo -u root FOO=1 /bin/rm -r x", [("rm", "-r", "x")]),
        ("bash -lc 'rm x; ls'", [("bash", "-lc", "rm x; ls"), ("rm", "x"), ("ls",)]),
        ("ssh host rm x", [("ssh", "host", "rm", "x"), ("rm", "x")]),
        ('echo "$(rm x)"', [("echo", "$(rm x)"), ("rm", "x")]),
        ("cat <<EOF > notes\nrm -rf /\nEOF\nls", [("cat",), ("ls",)]),
        ("cat <<EOF\nnot ended", [("cat", "EOF"), ("not", "ended")]),
        ('x="$(rm a)" ls', [("ls",), ("rm", "a")]),
        ("bash <<'EOF'\nrm x\nEOF", [("bash", "EOF"), ("rm", "x"), ("EOF",)]),
        ("find . -name x | xargs -I {} rm -r {}", [("find", ".", "-name", "x"), ("rm", "-r", "{}")]),
        ("for f in a b; do rm $f; done", [("for", "f", "in", "a", "b"), ("rm", "$f"), ("done",)]),
        ("", []),
    ],
)
def test_commands_are_told_apart(text: str, expected: list[tuple[str, ...]]) -> None:
    assert run(text) == expected


def test_what_a_command_reads_and_writes() -> None:
    assert commands("curl -s u | tee log | sh") == [
        Command(("curl", "-s", "u")),
        Command(("tee", "log"), (), "curl"),
        Command(("sh",), (), "tee"),
    ]
    assert commands("cat x > /dev/sda 2>&1")[0].into[0] == "/dev/sda"
    assert commands('sh -c "$(curl u)"')[0].reads == "curl"


def test_options_are_seen_one_by_one() -> None:
    [command] = commands("git push -fu --force-with-lease=x origin -- -n")
    assert command.flags() == {"-f", "-u", "--force-with-lease"}
    assert command.operands() == ["push", "origin"]


@given(st.text(alphabet="rm-f/ '\"$()`|;&<>\n\\EOF#x=", max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    assert all(command.words for command in commands(text))


@for_each("text", ["eval " * 1000 + "rm x", 'echo "$(a)$(a)" ' * 300, "bash -c '" * 200])
def test_what_runs_inside_is_read_up_to_a_bound(text: str) -> None:
    assert 0 < len(commands(text)) < 2000
