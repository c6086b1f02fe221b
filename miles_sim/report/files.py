"""A run written to files: JSON, JUnit XML, Markdown, HTML. What is not asked for is not loaded."""

from collections.abc import Callable, Mapping
from pathlib import Path

from miles_sim.verify.report import Report
from miles_sim.verify.rule import Case

Render = Callable[[Report, Mapping[str, Case]], bytes]


def _json(report: Report, cases: Mapping[str, Case]) -> bytes:
    return report.to_json()


def _junit(report: Report, cases: Mapping[str, Case]) -> bytes:
    from miles_sim.report.junit import junit

    return junit(report)


def _markdown(report: Report, cases: Mapping[str, Case]) -> bytes:
    from miles_sim.report.markdown import markdown

    return markdown(report, cases).encode()


def _html(report: Report, cases: Mapping[str, Case]) -> bytes:
    from miles_sim.report.page import page

    return page(report, cases).encode()


RENDERERS: dict[str, Render] = {"json": _json, "junit": _junit, "markdown": _markdown, "html": _html}
"""Kind of file to what makes its bytes; the same run gives the same bytes."""


def write(report: Report, cases: Mapping[str, Case], files: Mapping[str, Path]) -> None:
    """Write each kind that `files` names; raises OSError where a file cannot be written."""
    for kind, file in files.items():
        file.write_bytes(RENDERERS[kind](report, cases))
