"""Settings of the user's stack that the lab changes, and those that it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.fleet import KubeconfigCluster, Stack, load
from paddock.lab.control_plane.servers import Lab
from paddock.lab.stack import stack as lab
from paddock.plan.engine.program import plan_graph

ROOT = Path(__file__).resolve().parents[3]
KUBECONFIG, CHARTS, GITHUB = Path("/lab/kubeconfig"), Path("/lab/charts"), "http://127.0.0.1:4711"


def stack(folder: Path, **changes: Any) -> Stack:
    """Dev with settings of the fleet, and keys beside it, of the caller's."""
    written = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8"))
    settings = {key: changes.pop(key) for key in list(changes) if ":" in key}
    written["config"] |= settings
    written["config"]["paddock:fleet"] |= changes
    (folder / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "Pulumi.mine.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
    return load(folder, "mine")


def overlaid(read: Stack) -> Stack:
    return lab.overlay(read, kubeconfig=KUBECONFIG, charts=CHARTS, github=GITHUB)


def test_only_charts_and_github_are_others_in_an_ordinary_stack(tmp_path: Path) -> None:
    read = stack(tmp_path)
    before, after = (json.loads(stack_.config["paddock:fleet"]) for stack_ in (read, overlaid(read)))

    assert after.pop("mirror") == {"charts": "/lab/charts"}
    assert after["github"].pop("serverVersion")
    assert after["github"].pop("url") == "http://127.0.0.1:4711/acme"
    assert before["github"].pop("url") == "https://github.com/acme"
    assert after == before


def test_a_mirror_of_images_stays(tmp_path: Path) -> None:
    mirror = {"charts": "oci://registry.example.com/charts", "images": "registry.example.com/mirror"}
    held = overlaid(stack(tmp_path, mirror=mirror)).fleet.mirror
    assert held.sources == {"*": "/lab/charts"}
    assert held.images == "registry.example.com/mirror"


@pytest.mark.parametrize("path", ["acme", "acme/engine", "enterprises/acme"])
def test_what_github_is_asked_for_stays(path: str, tmp_path: Path) -> None:
    github = {"url": f"https://ghe.example.com/{path}", "token": "config", "serverVersion": "3.19"}
    held = overlaid(stack(tmp_path, github=github)).fleet.github
    assert held.url == f"http://127.0.0.1:4711/{path}"
    assert held.server_version == "3.19"


@pytest.mark.parametrize(
    "source", ["arn:aws:secretsmanager:us-west-2:123456789012:secret:paddock/app-AbCdEf", "kubernetes:runners"]
)
@pytest.mark.parametrize("kind", ["app", "token"])
def test_a_credential_that_is_kept_elsewhere_is_made_up(kind: str, source: str, tmp_path: Path) -> None:
    credentials = {"app": {"id": "12345", "installation": "678", "key": source}, "token": source}[kind]
    held = overlaid(stack(tmp_path, github={"url": "https://github.com/acme", kind: credentials})).fleet.github
    assert held.secret_source == "config"
    assert (held.app is None) == (kind == "token")


def test_a_cluster_behind_a_kubeconfig_is_never_the_users(tmp_path: Path) -> None:
    read = stack(tmp_path, cluster={"kubeconfig": "/srv/kube/config", "context": "production"})
    held = overlaid(read).fleet.cluster
    assert isinstance(held, KubeconfigCluster)
    assert (held.kubeconfig, held.context) == ("/lab/kubeconfig", None)
    assert "production" not in json.dumps(dict(overlaid(read).config))


@pytest.mark.parametrize("key", ["paddock:layers", "layers"])
def test_a_lab_holds_what_another_stack_holds_elsewhere(key: str, tmp_path: Path) -> None:
    read = stack(tmp_path, **{key: {"images": "none", "cluster": "acme/paddock/shared", "runners": "here"}})
    held = lab.overlay(read, kubeconfig=KUBECONFIG)
    assert all(held.fleet.holds(layer) for layer in ("images", "cluster", "runners"))
    assert not plan_graph(held).of_type("pulumi:pulumi:StackReference")


def test_what_is_encrypted_stays_with_the_stack_that_has_its_key(tmp_path: Path) -> None:
    read = stack(tmp_path, **{"paddock:githubAppKey": {"secure": "v1:abc:def"}, "aws:profile": "mine"})
    held = overlaid(read)
    assert "paddock:githubAppKey" in read.secrets
    assert not held.secrets
    assert "v1:abc" not in json.dumps(dict(held.config))
    assert lab.configuration(held)["aws:profile"] == "mine"
    assert isinstance(lab.configuration(held)["paddock:fleet"], dict)


@pytest.mark.parametrize("there", [True, False], ids=["there", "absent"])
def test_objects_are_applied_where_the_real_provider_is_there(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pulumi", "pulumi-language-python", *(["pulumi-resource-kubernetes"] if there else [])):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PADDOCK_LAB_BIN", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    engine = lab.lab_engine(Lab(tmp_path / "lab", {}, {}, ()), stack(tmp_path))
    assert engine.real_kubernetes is there
