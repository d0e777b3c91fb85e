"""The texts of other scanners' tests are read from their sources, with the secret that each has to find."""

from __future__ import annotations

from pathlib import Path
from random import Random

from benchmarks.secrets import Planted
from benchmarks.security.go_texts import GoSource
from benchmarks.security.scanners import OPERATOR, gitleaks, missed, said_of, trufflehog

TOKEN = "a1B2c3D4e5F6g7H8i9J0"

CONFIG = r"""
[[rules]]
id = "acme"
regex = '''(?i)[\w.-]{0,50}?(?:acme)(?:[ \t\w.-]{0,20})[\s'"]{0,3}OPERATOR["\s=]{0,5}([a-z0-9]{20})(?:["\s;]|$)'''
[[rules]]
id = "ghp"
regex = '''ghp_[0-9a-zA-Z]{36}'''
"""
RULE = """
func Acme() *config.Rule {
	r := config.Rule{
		RuleID: "acme",
	}
	tps := utils.GenerateSampleSecrets("acme", secrets.NewSecret(utils.AlphaNumeric("20")))
	tps = append(tps,
		// as it is written
		"acme_key = \\"%s" + "\\"",
		fmt.Sprintf(`acme.key: "%%s"`, other()),
	)
	return utils.Validate(r, tps, nil)
}
""".replace('%s"', TOKEN + '"').replace("%%s", "%s")
TEST = """
var (
	keyword = "acme"
	valid   = "TOKEN"
	host    = "x.acme.com"
)
	{
		input: fmt.Sprintf("%s token - '%s'\\n%s at '%s'", keyword, valid, keyword, host),
		want:  []string{valid + ":" + host},
	},
	{
		input: `nothing`,
		want:  nil,
	},
	{
		input: unknown(),
		want:  []string{valid},
	},
""".replace("TOKEN", TOKEN)


def test_an_expression_of_go_is_a_text_or_unknown() -> None:
    source = GoSource('a = "x" + b\nb = `y`\nc = fmt.Sprintf("%s-%d", b, "z")\nd = other(b)\ne = e + "x"\n', {})
    values = [source.value(source.text.index(f"{name} = ") + 4)[0] for name in "abcde"]
    assert values == ["xy", "y", "y-z", None, None]


def test_the_texts_that_a_rule_has_to_find_are_read(tmp_path: Path) -> None:
    rules, utils = tmp_path / "cmd/generate/config/rules", tmp_path / "cmd/generate/config/utils"
    for folder in (rules, utils, tmp_path / "config"):
        folder.mkdir(parents=True)
    (tmp_path / "config/gitleaks.toml").write_text(CONFIG.replace("OPERATOR", OPERATOR))
    (rules / "acme.go").write_text(RULE)
    (utils / "generate.go").write_text('\t\t"ini":   "{i}Token={s}",\n')
    (utils / "patterns.go").write_text(
        "func AlphaNumeric(size string) string {\n\treturn fmt.Sprintf(`[a-z0-9]{%s}`, size)"
    )
    forms, named, unnamed = gitleaks(tmp_path, Random(1))
    assert {each.kind for each in forms.texts} == {"ghp"} and len(forms.texts) == 12
    assert [each.text for each in named.texts if each.secret == TOKEN] == [f'acme_key = "{TOKEN}"']
    assert next(each.text for each in named.texts if each.secret != TOKEN).startswith("acmeToken=")
    assert (named.unread, len(named.texts), unnamed.texts) == (1, 2, [])
    assert missed(forms) == [] and len(missed(named, str)) == 2


def test_what_a_detector_has_to_find_is_read_without_hosts(tmp_path: Path) -> None:
    folder = tmp_path / "pkg/detectors/acme"
    folder.mkdir(parents=True)
    (folder / "acme_test.go").write_text(TEST)
    named, unnamed = trufflehog(tmp_path)
    assert named.texts == [Planted("acme", f"acme token - '{TOKEN}'\nacme at 'x.acme.com'", TOKEN)]
    assert (named.unread, unnamed.texts) == (1, [])
    assert said_of(named, named.texts) == "1 (100.0%, bar 4.0%): **missed**; 1 not read"
