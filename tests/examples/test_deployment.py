"""The deployment examples: what they say to `holdfast worker` is what it understands, and their rules hold together."""

from __future__ import annotations

import configparser
import re
import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli.work import worker
from tests.cases import for_each
from tests.examples.serving import EXAMPLES

UNIT = EXAMPLES / "systemd" / "holdfast-worker.service"
MANIFEST = EXAMPLES / "kubernetes" / "worker.yaml"


def parsed(words: list[str]) -> Any:
    """The options as the command itself reads them."""
    return SimpleNamespace(**worker.make_context("worker", words).params)


def load(text: str) -> Any:
    """What a YAML text of mappings, lists of them, scalars and one-line lists means; anything else is refused.

    No YAML library is among the development tools, and the manifest needs no more than this of the language.
    """
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines()]
    lines = [(indent, line) for indent, line in lines if line and not line.startswith("#")]
    assert "\t" not in text
    value, rest = _node(lines, 0)
    assert not rest, f"cannot read: {rest[0][1]}"
    return value


def _node(lines: list[tuple[int, str]], indent: int) -> tuple[Any, list[tuple[int, str]]]:
    if lines[0][1].startswith("- "):
        items = []
        while lines and lines[0][0] == indent and lines[0][1].startswith("- "):
            # An item's own keys stand two further in, the first of them behind its dash.
            lines = [(indent + 2, lines[0][1][2:]), *lines[1:]]
            item, lines = _node(lines, indent + 2)
            items.append(item)
        return items, lines
    mapping: dict[str, Any] = {}
    while lines and lines[0][0] == indent and not lines[0][1].startswith("- "):
        found = re.fullmatch(r"([\w.-]+):(?: +(.+))?", lines[0][1])
        assert found, f"cannot read: {lines[0][1]}"
        key, value = found.groups()
        assert key not in mapping, f"twice: {key}"
        lines = lines[1:]
        if value is not None:
            mapping[key] = _scalar(value)
        else:
            assert [each for each, _ in lines[:1] if each > indent], f"nothing in {key}"
            mapping[key], lines = _node(lines, lines[0][0])
    return mapping, lines


def _scalar(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(item) for item in text[1:-1].split(", ")]
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    assert not re.search(r"[\[\]{}&*!|>%@`#]|: ", text.replace("{}", "")), f"cannot read: {text}"
    known = {"true": True, "false": False, "{}": {}}
    return int(text) if text.isdigit() else known.get(text, text)


@pytest.fixture
def unit() -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the way to keep the case of names
    parser.read_string(UNIT.read_text("utf-8"))
    return {section: dict(parser[section]) for section in parser.sections()}


@pytest.fixture
def manifest() -> list[dict[str, Any]]:
    return [load(text) for text in MANIFEST.read_text("utf-8").split("\n---\n")]


@pytest.fixture
def pod(manifest: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = manifest[0]["spec"]["template"]["spec"]
    return found


# -- systemd ----------------------------------------------------------------------------------------------------------


def test_the_unit_starts_a_worker_with_options_that_there_are(unit: dict[str, dict[str, str]]) -> None:
    program, verb, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.startswith("/")
    assert program.endswith("/holdfast")
    assert verb == "worker"
    options = parsed(words)
    assert (options.app, options.health) == ("shop:handlers", ("127.0.0.1", 8080))


def test_the_unit_leaves_time_to_drain_and_restarts_what_crashed(unit: dict[str, dict[str, str]]) -> None:
    service = unit["Service"]
    assert (service["KillSignal"], service["KillMode"], service["Restart"]) == ("SIGTERM", "mixed", "on-failure")
    assert service["RestartPreventExitStatus"] == "2"


def test_the_unit_may_write_its_store_and_nothing_else(unit: dict[str, dict[str, str]]) -> None:
    service = unit["Service"]
    folder = f"/var/lib/{service['StateDirectory']}/"
    assert service["Environment"].startswith(f"HOLDFAST_STORE={folder}")
    assert (service["DynamicUser"], service["ProtectSystem"], service["NoNewPrivileges"]) == ("yes", "strict", "yes")
    assert service["CapabilityBoundingSet"] == ""


# -- Kubernetes -------------------------------------------------------------------------------------------------------


def test_the_manifest_is_what_kubernetes_expects(manifest: list[dict[str, Any]]) -> None:
    deployment, claim = manifest
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    spec = deployment["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    volumes = {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}
    [container] = spec["template"]["spec"]["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert volumes["store"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_one_file_is_never_open_on_two_machines(manifest: list[dict[str, Any]]) -> None:
    deployment, claim = manifest
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_the_pod_starts_a_worker_with_options_that_there_are(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    words: list[str] = container["command"] + container["args"]
    assert words[:2] == ["holdfast", "worker"]
    options = parsed(words[2:])
    [port] = container["ports"]
    assert options.health == ("0.0.0.0", port["containerPort"])  # noqa: S104 - where a kubelet can ask
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/var/lib/holdfast", "/tmp"}  # noqa: S108 - of the pod
    assert container["env"][0] == {"name": "HOLDFAST_STORE", "value": "/var/lib/holdfast/shop.db"}


def test_the_probes_ask_what_there_is(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    names = {"startupProbe": "/live", "livenessProbe": "/live", "readinessProbe": "/ready"}
    assert {name: container[name]["httpGet"]["path"] for name in names} == names
    assert {container[name]["httpGet"]["port"] for name in names} == {container["ports"][0]["name"]}


def test_the_pod_may_do_little(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@for_each(
    "text",
    ["a", "a: 1\n b: 2", "a:\nb: 1", "a: 1\na: 2", "a: [1", "a: &x 1", "\ta: 1", "a: b: c", "- a\nb: 1"],
)
def test_what_is_no_such_yaml_is_refused(text: str) -> None:
    with pytest.raises(AssertionError):
        load(text)


def test_the_yaml_that_is_read() -> None:
    text = 'a:\n  b: 1\n  c: ["x", 2]\n  d:\n    - e: {}\n      f: true\n    - e: y\n'
    assert load(text) == {"a": {"b": 1, "c": ["x", 2], "d": [{"e": {}, "f": True}, {"e": "y"}]}}
