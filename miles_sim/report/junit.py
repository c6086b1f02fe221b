"""A run as JUnit XML, for what shows test results: one suite a contract, one test a case.

No times and no host: the same run gives the same bytes. Known violations and what is not applicable are skipped tests
with their reason; a contract that saw nothing and a baseline entry that answers to nothing are failures of their own.
"""

import re
from collections import defaultdict
from xml.etree import ElementTree

from miles_sim.verify.report import FAILING, Report, Result, Verdict

_NOT_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


def junit(report: Report) -> bytes:
    """The document's bytes, UTF-8."""
    by_contract: dict[str, list[ElementTree.Element]] = defaultdict(list)
    for result in report.results:
        by_contract[result.contract].append(_test(result))
    for contract in report.contracts:
        if contract.verdict is Verdict.VACUOUS:
            by_contract[contract.id].append(_failed(contract.id, "any case", "vacuous", contract.reason))
    if report.unmatched_baseline:
        by_contract["baseline"] = [
            _failed("baseline", entry, "unmatched", "answers to nothing in this run")
            for entry in report.unmatched_baseline
        ]
    root = ElementTree.Element("testsuites", {"name": _xml(f"{report.target.name} {report.target.version}")})
    for name, tests in by_contract.items():
        ElementTree.SubElement(root, "testsuite", {"name": name, **_counts(tests)}).extend(tests)
    root.attrib.update(_counts([test for suite in root for test in suite]))
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _test(result: Result) -> ElementTree.Element:
    if result.verdict in FAILING:
        return _failed(result.contract, result.scenario, result.verdict.value, result.message, _told(result))
    test = _element(result.contract, result.scenario)
    if result.verdict is not Verdict.PASS:
        told = f"{result.verdict.value.replace('_', ' ')}: {result.message}"
        ElementTree.SubElement(test, "skipped", {"message": _xml(told)})
    return test


def _failed(contract: str, case: str, kind: str, message: str, told: str = "") -> ElementTree.Element:
    test = _element(contract, case)
    failure = ElementTree.SubElement(test, "failure", {"type": kind, "message": _xml(message)})
    failure.text = _xml(told or message)
    return test


def _told(result: Result) -> str:
    lines = [result.message] if not result.findings else []
    for finding in result.findings:
        lines += [f"{finding.where}: {finding.message}"]
        if finding.expected or finding.found:
            lines += [f"  expected  {finding.expected}", f"  found     {finding.found}"]
    return "\n".join([*lines, result.repro])


def _element(contract: str, case: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", {"classname": _xml(contract), "name": _xml(case)})


def _counts(tests: list[ElementTree.Element]) -> dict[str, str]:
    failures = sum(test.find("failure") is not None for test in tests)
    skipped = sum(test.find("skipped") is not None for test in tests)
    return {"tests": str(len(tests)), "failures": str(failures), "errors": "0", "skipped": str(skipped)}


def _xml(text: str) -> str:
    """`text` without the characters that XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
