"""Run Drain3 over labelled error texts, a miner for each tool: a JSON file of [tool, text] in, the cluster of each out.

Clusters are asked for after all texts have been added, because a template goes on changing while texts come.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from drain3 import TemplateMiner
from drain3.masking import MaskingInstruction
from drain3.template_miner_config import TemplateMinerConfig

# The masks of drain3's example configuration.
MASKS = (
    (r"((?<=[^A-Za-z0-9])|^)(([0-9a-f]{2,}:){3,}([0-9a-f]{2,}))((?=[^A-Za-z0-9])|$)", "ID"),
    (r"((?<=[^A-Za-z0-9])|^)(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})((?=[^A-Za-z0-9])|$)", "IP"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9a-f]{6,} ?){3,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9A-F]{4} ?){4,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)(0x[a-f0-9A-F]+)((?=[^A-Za-z0-9])|$)", "HEX"),
    (r"((?<=[^A-Za-z0-9])|^)([\-\+]?\d+)((?=[^A-Za-z0-9])|$)", "NUM"),
)


def clusters(texts: list[tuple[str, str]]) -> list[str]:
    """Name of each text's cluster."""
    miners: dict[str, TemplateMiner] = {}
    for tool, text in texts:
        if tool not in miners:
            config = TemplateMinerConfig()
            config.masking_instructions = [MaskingInstruction(pattern, mask) for pattern, mask in MASKS]
            miners[tool] = TemplateMiner(config=config)
        miners[tool].add_log_message(text)
    found = []
    for tool, text in texts:
        match = miners[tool].match(text, full_search_strategy="fallback")
        found.append(f"{tool}/{match.cluster_id if match else text}")
    return found


if __name__ == "__main__":
    print(json.dumps(clusters(json.loads(Path(sys.argv[1]).read_text()))))
