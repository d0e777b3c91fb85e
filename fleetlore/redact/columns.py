"""Mask columns of tables, CSV and SQL inserts whose names are those of secrets."""

import re

from fleetlore.redact.named_values import KEYS, PASSWORDS, REDACTED, Rule, is_secret, mask_of

__all__ = ["COLUMN_RULES"]

_PASSWORD = re.compile(rf"(?:\w{{0,40}}[_. -])?{PASSWORDS}", re.I)
_SECRET = re.compile(rf"(?:\w{{0,40}}[_. -])?{KEYS}", re.I)
_MARKS = " \t\r\"'`*[]"
_SEPARATORS = "|\t;,"
_LONGEST_CELL = 512
_HEAD = re.compile(
    rf"^[^\n]{{0,300}}?(?:^|[|\t;,])[ \"'`*\[]{{0,3}}\w{{0,20}}?(?:{PASSWORDS}|{KEYS})[ \"'`*\]]{{0,8}}"
    r"(?=[|\t;,\r\n])[^\n]{0,300}\n(?s:.+)",
    re.I | re.M,
)
_INSERT = re.compile(
    r"\b(?:insert|replace)\s+into\s+[^\s()]{1,128}\s{0,4}\((?P<names>[^()]{1,1000})\)\s{0,4}values\s{0,4}"
    r"(?P<rows>\([^;]{1,4000})",
    re.I,
)
_SQL = re.compile(r"(?P<quoted>\\*'(?:[^'\\]|''|\\[^'])*+\\*'|\"[^\"]*+\")|[(),]|[^(),'\"]+|.", re.S)


def kind_of_column(name: str) -> str | None:
    name = name.strip(_MARKS)
    if _PASSWORD.fullmatch(name):
        return "password"
    return "secret" if _SECRET.fullmatch(name) else None


def _masked_table(match: re.Match[str]) -> str:
    head, *rows = match[0].split("\n")
    separator = next((each for each in _SEPARATORS if each in head), None)
    if separator is None:
        return match[0]
    kinds = [kind_of_column(cell) for cell in head.split(separator)]
    for place, row in enumerate(rows):
        cells = row.split(separator)
        if len(cells) != len(kinds):
            break
        rows[place] = separator.join(map(_masked_cell, cells, kinds))
    return "\n".join([head, *rows])


def _masked_cell(cell: str, kind: str | None) -> str:
    value = cell.strip(_MARKS)
    if kind is None or len(value) > _LONGEST_CELL or REDACTED in cell or not set(value) - set("-=:"):
        return cell
    return cell.replace(value, mask_of(kind)) if is_secret(value, password=kind == "password") else cell


def _masked_insert(match: re.Match[str]) -> str:
    kinds = [kind_of_column(name) for name in match["names"].split(",")]
    if not any(kinds):
        return match[0]
    parts: list[str] = []
    depth = column = 0
    for part in _SQL.finditer(match["rows"]):
        text = part[0]
        depth += (text == "(") - (text == ")")
        if depth == 1 and text in "(,":
            column = column + 1 if text == "," else 0
        kind = kinds[column] if depth and column < len(kinds) else None
        parts.append(text if kind is None or part["quoted"] is None else _masked_literal(text, kind))
    return match[0][: match.start("rows") - match.start()] + "".join(parts)


def _masked_literal(text: str, kind: str) -> str:
    value = text.strip("\\'\"")
    return text.replace(value, mask_of(kind)) if REDACTED not in value and is_secret(value, password=True) else text


_NEEDLES = ("pass", "secret", "token", "key", "pwd", "cred", "auth", "kennwort", "senha", "contrase", "wachtwoo")
COLUMN_RULES = (Rule("password", _NEEDLES, _HEAD, _masked_table), Rule("password", _NEEDLES, _INSERT, _masked_insert))
