"""A report as JUnit XML: a test case for each kill."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from holdfast.testing.drill.report import DrillReport

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: DrillReport) -> bytes:
    """The report as one test suite."""
    suite = ET.Element(
        "testsuite",
        name=_clean(f"holdfast drill {report.handler}"),
        tests=str(len(report.kills) + len(report.unjudged)),
        failures=str(len(report.failures) + len(report.unjudged)),
        errors="0",
        skipped="0",
        time=f"{report.seconds:.3f}",
    )
    for kill in report.kills:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_clean(report.handler),
            name=_clean(f"{kill.number:03} killed {kill.place}"),
            time=f"{kill.seconds:.3f}",
        )
        if kill.findings:
            said = "\n".join(f"{finding.kind}: {finding.text}" for finding in kill.findings)
            failure = ET.SubElement(case, "failure", type=kill.findings[0].kind)
            failure.set("message", _clean(kill.findings[0].text))
            failure.text = _clean(said)
    for said in report.unjudged:
        case = ET.SubElement(
            suite, "testcase", classname=_clean(report.handler), name="the same undisturbed", time="0.000"
        )
        ET.SubElement(case, "failure", type="unjudged", message=_clean(said))
    if report.unsteady:
        ET.SubElement(suite, "system-out").text = _clean("\n".join(report.unsteady))
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    text: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _clean(text: str) -> str:
    """The text without characters that XML cannot represent."""
    return _NOT_IN_XML.sub("?", text)
