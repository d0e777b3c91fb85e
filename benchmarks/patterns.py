"""Do two texts of the same failure get the same class-level pattern, and two different failures different ones?

The figures are pairwise precision and recall against labels written by hand. Precision is the share of the joined pairs
that belong together; recall is the share of the pairs that belong together and are joined. The texts are
`benchmarks/data/error_texts.txt`, of common tools, and those of the logged runs whose labels are in
`benchmarks/data/logged_errors.csv` (by reference: the runs are not part of this repository). A third of the labels of
the logged runs was put aside before the masks were written and never looked at. The file of texts of common tools says
how each part fared before it was looked at.

Drain3 runs with its defaults and the masks of its example over the same head lines, with one miner per tool.
`benchmarks.reported` adds pairs of texts in the shapes of public bug reports. The rows of CPU are of each text once,
none seen before.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from benchmarks import peers, reported
from benchmarks.labelled import LOGS, Labelled, read_logged, read_texts
from benchmarks.report import Report, Row
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.fingerprint.normal_form import head_line

BAR = 0.97


class Score(NamedTuple):
    """Pairwise; 1.0 where there is no pair to get wrong."""

    precision: float
    recall: float


def score(labels: list[str], clusters: list[str]) -> Score:
    """Pairwise precision and recall, from the sizes of what both, the labels and the clusters put together."""
    both = _pairs(list(zip(labels, clusters, strict=True)))
    joined, belong = _pairs(clusters), _pairs(labels)
    return Score(both / joined if joined else 1.0, both / belong if belong else 1.0)


def _pairs(names: list[str] | list[tuple[str, str]]) -> int:
    return sum(count * (count - 1) // 2 for count in Counter(names).values())


def ours(texts: list[Labelled]) -> list[str]:
    return [failure_of(each.tool, "", each.error_type, each.text).class_ for each in texts]


def cost(texts: list[Labelled]) -> list[Row]:
    """CPU of the pattern of each text, which must be new to this process."""
    spent = []
    for text in {(each.error_type, each.text): each for each in texts}.values():
        began = time.thread_time()
        ours([text])
        spent.append((time.thread_time() - began) * 1e6)
    p50, p99 = np.quantile(spent, (0.5, 0.99))
    name = "fleetlore: a text not seen before"
    return [Row(f"{name}, p50", p50, "µs of CPU"), Row(f"{name}, p99", p99, "µs of CPU")]


def drain3(texts: list[Labelled]) -> list[str]:
    """Cluster of each text by Drain3.

    Raises:
        ModelUnavailable, StackError: it cannot be installed, or failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_bytes(orjson.dumps([[each.tool, head_line(each.text)] for each in texts]))
        found: list[str] = peers.run("with_drain3", path, peer="drain3")
    return found


def run(quick: bool) -> Report:
    """`quick` changes nothing: it takes a second."""
    written, logged = read_texts(), read_logged()
    texts = written + logged
    costs = cost(texts)
    found, drained = ours(texts), drain3(texts)
    labels = [f"{each.tool}\t{each.label}" for each in texts]
    rows = []
    for name in (*dict.fromkeys(each.part for each in texts), "all"):
        places = [place for place, each in enumerate(texts) if name in (each.part, "all")]
        for who, clusters in (("fleetlore", found), ("drain3", drained)):
            reached = score([labels[place] for place in places], [clusters[place] for place in places])
            note = f"{len(places)} texts of {len({labels[place] for place in places})} failures"
            rows.append(Row(f"{name}, {who}: precision", reached.precision, "of pairs", note=note))
            rows.append(Row(f"{name}, {who}: recall", reached.recall, "of pairs"))
    reported_rows, reported_reports = reported.measure(ours, drain3)
    total, peer = score(labels, found), score(labels, drained)
    note = "" if logged else f"without the logged runs: no {LOGS}"
    recall = Report("patterns_recall", total.recall, BAR, "of pairs", peers={"drain3": peer.recall}, reference="drain3")
    unit, rivals, also = "of pairs (precision)", {"drain3": peer.precision}, (recall, *reported_reports)
    rows += [*costs, *reported_rows]
    return Report(
        "patterns", total.precision, BAR, unit, rivals, reference="drain3", rows=tuple(rows), also=also, note=note
    )
