"""Templates of error texts: what is masked, and what is kept."""

from hypothesis import given

from fleetlore.fingerprint.normal_form import MAX_TEMPLATE, template
from tests.error_texts import any_text
from tests.rows import for_each


@for_each(
    "one, other",
    ("cannot open /home/a/x.txt", "cannot open /srv/b/y.csv"),
    ("took 12 of 30 seconds", "took 7 of 9 seconds"),
    ("at 2026-01-01T10:00:00Z", "at 2025-12-31 23:59:59.123+02:00"),
    ("request 123e4567-e89b-12d3-a456-426614174000 failed", "request 00000000-0000-4000-8000-000000000000 failed"),
    ("no route to 10.0.0.1", "no route to 192.168.1.77:8080"),
    ("commit 9fceb02d0ae5 is unknown", "commit 1a2b3c4d5e6f is unknown"),
    ("no such file upload_9fceb02d0ae5", "no such file upload_1a2b3c4d5e6f"),
    ("too   many\tblanks", "too many blanks"),
    ("cat: notes.txt: No such file or directory", "cat: README: No such file or directory"),
    ("mkdir: cannot create directory ‘logs’: File exists", "mkdir: cannot create directory ‘/srv/a b’: File exists"),
    ("[Errno 2] No such file or directory: 'config'", "[Errno 2] No such file or directory: 'my file (1).txt'"),
    ("error: pathspec 'develop' did not match", "error: pathspec 'feature/x' did not match"),
    ('pods "web-7d9f8b6c5-x2xkq" not found', 'pods "api-0" not found'),
    ("Expected [1, 2] but got []", "Expected 'ame' but got None"),
    ("right syntax to use near 'FORM x' at line 1", "right syntax to use near ') AND y = '' at line 2"),
    ("/bin/bash: line 3: jq: command not found", "bash: line 47: jq: command not found"),
    ("HTTP/1.1 503 Service Unavailable", "HTTP 503 (request id 7f3a1c2e)"),
    ("no distribution for torch==2.1.0", "no distribution for torch"),
    ("job failed. Please try again later.", "job failed. See https://example.com/help"),
)
def test_what_varies_is_masked(one: str, other: str) -> None:
    assert template(one) == template(other)


@for_each(
    "one, other",
    ("failed with status=404", "failed with status=502"),
    ("killed by signal 9", "killed by signal 15"),
    ("error 1045", "error 1146"),
    ('relation "users" does not exist', 'relation "orders" does not exist'),
    ("no table cars_facade", "no table cars_decade"),
    ("no module named `yaml`", "no module named `toml`"),
    ("No such container: web", "No such image: web"),
    ("ORA-00942: no", "ORA-00001: no"),
    ("Unexpected token in utf-8", "Unexpected token in utf-16"),
    ("No matching distribution found for numpyy", "No matching distribution found for torchvison"),
    (
        "main.c:3:10: fatal error: png.h: No such file or directory",
        "x.c:9:1: fatal error: zlib.h: No such file or directory",
    ),
    ("(using password: YES)", "(using password: NO)"),
)
def test_what_says_which_failure_it_is_is_kept(one: str, other: str) -> None:
    assert template(one) != template(other)


@for_each(
    "line, masked",
    ("`npm ci` needs a package-lock.json", "`npm ci` needs a <*>"),
    ("it can only install with an existing package-lock.json.", "it can only install with an existing <*>"),
    ("no file: /srv/a.txt", "no file"),
    ("ssh: connect to host 10.0.0.7 port 22: Refused", "ssh: connect to host <*> port <*>: refused"),
    ("took 12 of 30 seconds for /a/b, then stopped", "took <*> of <*> for <*>, then stopped"),
    ("took 12 seconds for /a/b", "took"),
    ("12", "<*>"),
    ("", ""),
    ("gave up after 30 s", "gave up"),
)
def test_a_sentence_keeps_the_mask_that_is_its_object(line: str, masked: str) -> None:
    assert template(line) == masked


@given(any_text)
def test_a_template_is_bounded_and_masking_it_again_changes_little(message: str) -> None:
    once = template(message)
    assert len(once) <= 2 * MAX_TEMPLATE  # casefold makes some characters longer
    assert "\n" not in once
    again = template(once)
    assert template(again) == again or len(again) <= len(once)
