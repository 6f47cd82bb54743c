"""What `deploy/` holds is valid, and names settings, options, files and services that exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec.models import ComposeSpecification
from typer.main import get_command

from headstart.cli import build
from headstart.gateway.settings import Settings
from tests.debian_tools import SYSTEMD

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KUBERNETES = ("1.30", "1.33", "1.37")
PAGE = ROOT / "docs" / "scale.md"


def documents() -> list[dict[str, Any]]:
    return [doc for path in MANIFESTS for doc in yaml.safe_load_all(path.read_text())]


def named(document: dict[str, Any]) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod's specification, with the name of what makes it."""
    for document in documents():
        template = document.get("spec", {}).get("template")
        if template is not None:
            yield named(document), template["spec"]


def values_of(content: Any, key: str) -> Iterator[Any]:
    """All that stands under `key`, at any depth."""
    if isinstance(content, dict):
        for name, value in content.items():
            if name == key:
                yield value
            yield from values_of(value, key)
    elif isinstance(content, list):
        for value in content:
            yield from values_of(value, key)


# --- Kubernetes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("document", documents(), ids=named)
def test_manifests_follow_the_schema(document: dict[str, Any], version: str) -> None:
    """That of the Kubernetes API, strictly: no property that it does not know."""
    kubernetes_validate.validate(document, version, strict=True)


def test_a_manifest_with_a_slip_is_found() -> None:
    """The check would notice a wrong name or type."""
    document = next(doc for doc in documents() if doc["kind"] == "Deployment")
    spec = document["spec"]
    for wrong in ({"replica": 1}, {"replicas": "one"}):
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(
                {**document, "spec": {**spec, **wrong}}, KUBERNETES[-1], strict=True
            )


def test_selectors_choose_the_pods_that_are_made() -> None:
    """Each service, budget and policy has pods; each set chooses its own."""
    labels = [
        doc["spec"]["template"]["metadata"]["labels"]
        for doc in documents()
        if "template" in doc.get("spec", {})
    ]
    for document in documents():
        for key in ("selector", "podSelector"):
            for selector in values_of(document.get("spec", {}), key):
                wanted = selector.get("matchLabels", selector)
                assert any(wanted.items() <= each.items() for each in labels), named(document)


def test_names_in_manifests_exist() -> None:
    """Claims and settings are made here; the others by commands that the file or page names."""
    text = "\n".join(path.read_text() for path in MANIFESTS) + PAGE.read_text()
    made = {named(document) for document in documents()}
    for claim in values_of(documents(), "claimName"):
        assert f"PersistentVolumeClaim/{claim}" in made
    maps = [*values_of(documents(), "configMapRef"), *values_of(documents(), "configMap")]
    for reference in maps:
        name = reference["name"]
        assert f"ConfigMap/{name}" in made or f"kubectl create configmap {name} " in text
    for reference in values_of(documents(), "secretKeyRef"):
        assert f"kubectl create secret generic {reference['name']} " in text
        assert f"--from-literal={reference['key']}=" in text
    assert {doc["spec"]["serviceName"] for doc in documents() if doc["kind"] == "StatefulSet"} <= {
        doc["metadata"]["name"] for doc in documents() if doc["kind"] == "Service"
    }


def test_each_llm_server_of_the_set_is_named() -> None:
    """A gateway pins sessions to servers by their own names, as many as there are replicas."""
    (servers,) = (doc for doc in documents() if doc["kind"] == "StatefulSet")
    (settings,) = (doc["data"] for doc in documents() if doc["kind"] == "ConfigMap")
    name, service = servers["metadata"]["name"], servers["spec"]["serviceName"]
    expected = [f"http://{name}-{n}.{service}:8000" for n in range(servers["spec"]["replicas"])]
    assert settings["HEADSTART_LLM"].split(" ") == expected


def test_services_do_not_set_our_settings() -> None:
    """Kubernetes gives each pod HEADSTART_PORT=tcp://… for a service named headstart, unless told
    not to: that is a setting of ours."""
    assert [name for name, pod in pods() if pod.get("enableServiceLinks", True)] == []


def test_gateways_have_time_to_retire() -> None:
    """Their signal is SIGUSR1, and what ends them waits: in all three."""
    unit = (DEPLOY / "systemd" / "headstart@.service").read_text()
    assert "ExecStop=-/bin/kill -USR1 $MAINPID" in unit
    assert "TimeoutStopSec=15min" in unit
    for name, pod in pods():
        if "gateway" in name:
            assert pod["terminationGracePeriodSeconds"] == 900
            (container,) = pod["containers"]
            assert "kill -USR1 1" in container["lifecycle"]["preStop"]["exec"]["command"][-1]
    for service in ("gateway-a", "gateway-b"):
        one = compose()["services"][service]
        assert (one["stop_signal"], one["stop_grace_period"]) == ("SIGUSR1", "15m")


# --- compose -------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return content


def test_the_compose_file_follows_its_specification() -> None:
    """And one with a slip does not."""
    content = compose()
    ComposeSpecification.model_validate(content)
    services = content["services"]
    wrong = {**content, "services": {**services, "haproxy": {"image": ["haproxy"]}}}
    with pytest.raises(ValueError, match="haproxy"):
        ComposeSpecification.model_validate(wrong)


def test_what_compose_refers_to_is_there() -> None:
    """Services, volumes and files."""
    content = compose()
    for name, service in content["services"].items():
        assert set(service.get("depends_on", {})) <= set(content["services"]), name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            there = (DEPLOY / source).exists() if "/" in source else source in content["volumes"]
            assert there, f"{name}: {volume}"
        if "build" in service:
            assert (DEPLOY / service["build"] / "Dockerfile").is_file()


def test_health_checks_name_hosts_that_gateways_answer_to() -> None:
    """The image's own, and HAProxy's; another name is 421, and the gateway never healthy."""
    (checked,) = re.findall(r"urlopen\('http://([\w.]+):", (ROOT / "Dockerfile").read_text())
    services = compose()["services"]
    site = services["haproxy"]["environment"]["SITE"]
    gateways = {name: one for name, one in services.items() if name.startswith("gateway-")}
    assert len(gateways) == 3
    for name, one in gateways.items():
        hosts = one["environment"]["HEADSTART_ALLOWED_HOSTS"].split()
        assert {checked, site} <= set(hosts), name
    (settings,) = (doc["data"] for doc in documents() if doc["kind"] == "ConfigMap")
    (pod,) = (pod for name, pod in pods() if name.endswith("/haproxy"))
    given = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
    assert given["SITE"] in settings["HEADSTART_ALLOWED_HOSTS"].split()


# --- systemd -------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_pass_systemds_own_check(unit: Path, tmp_path: Path) -> None:
    """`systemd-analyze verify` says nothing, with programs in place of ours, which are not here."""
    (analyze,) = SYSTEMD.ensure()

    def told_of(text: str) -> str:
        copy = tmp_path / unit.name.replace("@", "@0")
        copy.write_text(re.sub(r"/opt/\w+/bin/\w+", "/bin/true", text))
        told = subprocess.run(
            [analyze, "verify", "--man=no", "--recursive-errors=no", str(copy)],
            capture_output=True,
            text=True,
            check=False,
            env=SYSTEMD.environment,
        )
        return "\n".join(line for line in told.stderr.splitlines() if copy.name in line)

    assert told_of(unit.read_text()) == ""
    assert "Restrat" in told_of(unit.read_text().replace("Restart=", "Restrat="))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_instances_that_share_folders_are_one_user(unit: Path) -> None:
    """DynamicUser gives each instance a user of its own otherwise, and systemd hands a shared
    folder over to the one that was started last."""
    text = unit.read_text()
    assert "DynamicUser=yes" in text
    shared = re.findall(r"^(?:State|Cache)Directory=(?!.*%i).*$", text, re.MULTILINE)
    assert shared
    assert re.search(r"^User=[a-z]+$", text, re.MULTILINE)


# --- names of ours -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [COMPOSE, *UNITS, *MANIFESTS], ids=lambda path: path.name)
def test_settings_are_ours(path: Path) -> None:
    """Each HEADSTART_NAME that is set is a setting."""
    names = re.findall(r"HEADSTART_([A-Z_]+)\b(?=[:=,\n])", path.read_text())
    assert {name.lower() for name in names} <= set(Settings.model_fields)
    assert names or "headstart" not in path.name


def test_options_are_ours() -> None:
    """Each option that a unit gives `headstart serve` is one."""
    serve = get_command(build([])).commands["serve"]  # type: ignore[attr-defined]
    known = {option for parameter in serve.params for option in parameter.opts}
    text = (DEPLOY / "systemd" / "headstart@.service").read_text()
    (given,) = re.findall(r"^ExecStart=\S+/headstart serve (.*)$", text, re.MULTILINE)
    assert set(re.findall(r"--[a-z-]+", given)) <= known


def test_haproxys_variables_are_those_of_its_file() -> None:
    """Compose and Kubernetes give it addresses by names that deploy/haproxy.cfg reads."""
    read = set(re.findall(r'"\$\{([A-Z_]+)-', (DEPLOY / "haproxy.cfg").read_text()))
    given = set(compose()["services"]["haproxy"]["environment"])
    (pod,) = (pod for name, pod in pods() if name.endswith("/haproxy"))
    assert given == {variable["name"] for variable in pod["containers"][0]["env"]} <= read


def test_images_have_versions() -> None:
    """Nothing but our own is taken as it happens to be today."""
    images = [*values_of(documents(), "image"), *values_of(compose(), "image")]
    assert [i for i in set(images) if i != "headstart" and not re.search(r":v?\d", i)] == []
