"""Run detect-secrets with its default plug-ins and filters: a JSON file of texts in, for each the secrets that it
finds.

Each text is scanned as a separate file: a single line is scanned eagerly and nearly always reported.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from detect_secrets.core.scan import scan_file
from detect_secrets.settings import default_settings


def findings(texts: Sequence[str]) -> list[list[str]]:
    found = []
    with tempfile.TemporaryDirectory() as folder, default_settings():
        path = Path(folder) / "text.txt"
        for text in texts:
            path.write_text(text)
            found.append([each.secret_value or "" for each in scan_file(str(path))])
    return found


if __name__ == "__main__":
    print(json.dumps(findings(json.loads(Path(sys.argv[1]).read_text()))))
