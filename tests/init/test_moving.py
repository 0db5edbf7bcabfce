"""`init --from`: runners of other programs become a stack file that plans, and nothing of theirs is lost unsaid."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock import clock
from paddock.console.output import PRINTED_JSON, BadFlag
from paddock.fleet import Fleet, FleetError, load
from paddock.init.command import InitParameters
from paddock.init.moving.pods import product
from paddock.init.moving.read import read
from paddock.plan.plan import build_plan
from paddock.tasks import init as command
from tests.support.performing import performed

FLAGS = {"region": "us-west-2", "allow": "198.18.0.7/32"}

DEPLOYMENTS = """
apiVersion: v1
kind: Secret
metadata: {name: controller-manager}
stringData: {github_token: ghp_0123456789abcdef0123456789abcdef0123}
---
apiVersion: actions.summerwind.dev/v1alpha1
kind: RunnerDeployment
metadata: {name: Train_A10G}
spec:
  template:
    spec:
      organization: acme-ml
      group: training
      labels: [train]
      ephemeral: false
      dockerEnabled: false
      image: registry.example.com/runner:1
      env:
        - {name: CCACHE_DIR, value: /cache}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: t, key: t}}}
        - {name: ALSO, value: ghp_0123456789abcdef0123456789abcdef0123}
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-A10G, karpenter.sh/capacity-type: on-demand}
      hostNetwork: true
      resources:
        limits: {nvidia.com/gpu: 1, cpu: "6", memory: 24Gi}
      volumeMounts:
        - {name: cache, mountPath: /cache}
        - {name: shm, mountPath: /dev/shm}
        - {name: tmp, mountPath: /scratch}
        - {name: docker, mountPath: /var/lib/docker-host}
      volumes:
        - {name: cache, persistentVolumeClaim: {claimName: efs-cache}}
        - {name: shm, emptyDir: {medium: Memory, sizeLimit: 4Gi}}
        - {name: tmp, emptyDir: {sizeLimit: 20Gi}}
        - {name: docker, hostPath: {path: /var/lib/docker}}
---
apiVersion: actions.summerwind.dev/v1alpha1
kind: HorizontalRunnerAutoscaler
metadata: {name: any}
spec:
  scaleTargetRef: {name: Train_A10G}
  minReplicas: 2
  maxReplicas: 6
  scheduledOverrides:
    - {startTime: "2026-01-05T20:30:00+02:00", endTime: "2026-01-06T06:00:00Z", minReplicas: 0,
       recurrenceRule: {frequency: Daily, untilTime: "2027-01-01T00:00:00Z"}}
    - {startTime: "2026-12-24T00:00:00Z", endTime: "2026-12-27T00:00:00Z", minReplicas: 0}
  metrics: [{type: TotalNumberOfQueuedAndInProgressWorkflowRuns}]
---
apiVersion: actions.summerwind.dev/v1alpha1
kind: RunnerDeployment
metadata: {name: lint}
spec: {replicas: 3, template: {spec: {organization: acme-ml, labels: [lint], resources: {limits: {cpu: "2"}}}}}
"""


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Path:
    shutil.copy(root / "Pulumi.yaml", tmp_path)
    return tmp_path


def move(project: Path, text: str | dict[str, Any], name: str = "runners.yaml", **flags: Any) -> Fleet:
    """Perform `init --from` and return the fleet of the stack file, which must plan without an error."""
    (project / name).write_text(text if isinstance(text, str) else json.dumps(text))
    assert performed(command.init, project, InitParameters(**(FLAGS | {"from_": project / name} | flags))) == 0
    stack = load(project, "ci")
    assert not [f for f in build_plan(stack, clock.today(), root=project).findings if f.severity == "error"]
    return stack.fleet


def test_a_runner_deployment_becomes_a_runner(project: Path) -> None:
    fleet = move(project, DEPLOYMENTS)
    assert fleet.github.url == "https://github.com/acme-ml"
    (runner,) = fleet.runners.values()
    assert (runner.name, runner.labels) == ("train-a10g", ("self-hosted", "linux", "x64", "train"))
    assert (runner.gpus, runner.cpu, runner.memory, runner.shm) == (1, 6000, 24 * 1024, 4 * 1024)
    assert (runner.min, runner.max, runner.group, runner.container) == (2, 6, "training", "none")
    assert [(warm.at, warm.min) for warm in runner.warm] == [("30 18 * * *", 0), ("0 6 * * *", 2)]
    assert runner.environment == {"CCACHE_DIR": "/cache"}
    assert sorted(runner.volumes) == ["cache", "tmp"]
    (pool,) = fleet.pools.values()
    assert (pool.gpu.key, pool.capacity, pool.nodes.max) == ("a10g", "on-demand", 6)
    assert all(instance.vcpus > 6 for instance in pool.types)


def test_what_is_not_taken_is_said_and_no_secret_repeated(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    move(project, DEPLOYMENTS)
    said = capsys.readouterr().out
    for key in ("image", "hostNetwork", "volumes.docker", "env.TOKEN", "env.ALSO", "Secret controller-manager"):
        assert f"{key}: " in said.split("Left out:")[1], key
    for key in ("ephemeral", "minReplicas", "metrics.Total", "untilTime"):
        assert key in said.split("Changed:")[1].split("Left out:")[0], key
    assert "lint: it asks for no GPU" in said
    assert "once, from 2026-12-24" in said
    assert "ghp_" not in said + (project / "Pulumi.ci.yaml").read_text()


def test_json_says_from_which_key_each_value_comes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    move(project, DEPLOYMENTS, json=PRINTED_JSON)
    moved = json.loads(capsys.readouterr().out)["moved"]
    assert moved["runners"][0]["taken"]["max"] == "maxReplicas"
    assert {note["kind"] for note in moved["notes"]} == {"changed", "left out"}


def test_docker_of_a_repository_gets_machines_of_one_gpu(project: Path) -> None:
    text = """
        apiVersion: actions.summerwind.dev/v1alpha1
        kind: Runner
        metadata: {name: solo}
        spec: {repository: acme-ml/engine, group: g, labels: [gpu], resources: {limits: {nvidia.com/gpu: 1}}}
    """
    fleet = move(project, text, gpu="l4")
    assert fleet.github.url == "https://github.com/acme-ml/engine"
    assert (fleet.runners["solo"].container, fleet.runners["solo"].group) == ("dind", None)
    assert {instance.gpu_count for instance in fleet.pools["l4"].types} == {1}


def test_values_of_a_scale_set_become_a_runner(project: Path) -> None:
    values = {
        "githubConfigUrl": "https://github.com/acme-ml", "githubConfigSecret": {"github_token": "ghp_" + "a" * 36},
        "runnerScaleSetName": "gpu-set", "maxRunners": 3, "runnerGroup": "ml", "containerMode": {"type": "kubernetes"},
        "template": {"spec": {
            "nodeSelector": {"node.kubernetes.io/instance-type": "g5.xlarge"},
            "containers": [{"name": "runner", "image": "ghcr.io/acme-ml/runner:3",
                            "resources": {"limits": {"nvidia.com/gpu": 1}}}]}},
    }  # fmt: skip
    fleet = move(project, yaml.safe_dump(values))
    runner = fleet.runners["gpu-set"]
    assert (runner.container, runner.image, runner.max) == ("kubernetes-novolume", "ghcr.io/acme-ml/runner:3", 3)
    assert fleet.pools[runner.pool].instances == ("g5.xlarge",)


CALL = {
    "source": "github-aws-runners/github-runner/aws", "instance_types": ["g4dn.xlarge", "c7i.large"],
    "runner_extra_labels": ["gpu"], "runners_maximum_count": 4, "runner_group_name": "ml",
    "idle_config": [{"cron": "* * 9-17 * * 1-5", "timeZone": "Europe/Berlin", "idleCount": 2}],
    "instance_target_capacity_type": "on-demand", "userdata_template": "x", "github_app": {"key_base64": "c2VjcmV0"},
}  # fmt: skip


@pytest.mark.parametrize(("name", "document"), [
    ("main.tf.json", {"module": {"runners": CALL}}),
    ("plan.json", {"configuration": {"root_module": {"module_calls": {"runners": {"source": CALL["source"],
     "expressions": {key: {"constant_value": value} for key, value in CALL.items() if key != "source"}}}}}}),
    ("runners.yaml", yaml.safe_dump({"runner_config": {k: v for k, v in CALL.items() if k != "source"},
     "matcherConfig": {"labelMatchers": [["self-hosted", "linux", "x64", "gpu"]], "exactMatch": True}})),
], ids=["tf.json", "terraform show", "configuration"])  # fmt: skip
def test_runners_of_the_terraform_module_become_runners(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, document: Any
) -> None:
    fleet = move(project, document, name, url="acme-ml")
    runner = fleet.runners["runners"]
    assert (runner.labels, runner.max, runner.group) == (("self-hosted", "linux", "x64", "gpu"), 4, "ml")
    assert [(w.at, w.min, w.time_zone) for w in runner.warm] == [
        ("0 9 * * 1-5", 2, "Europe/Berlin"), ("0 18 * * 1-5", 0, "Europe/Berlin")
    ]  # fmt: skip
    assert (fleet.pools[runner.pool].instances, fleet.pools[runner.pool].capacity) == (("g4dn.xlarge",), "on-demand")
    said = capsys.readouterr().out
    assert "c7i.large: it has no GPU" in said
    assert "userdata_template" in said
    assert "c2VjcmV0" not in said


def test_runners_that_ask_for_more_than_a_machine_get_their_share(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DEPLOYMENTS.replace('cpu: "6", memory: 24Gi', 'cpu: "500", memory: 24Gi')
    assert move(project, text).runners["train-a10g"].cpu is None
    assert "no machine has so much" in capsys.readouterr().out


def test_two_deployments_with_the_same_labels_are_one(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = DEPLOYMENTS.split("---")[1].replace("Train_A10G", "second")
    assert list(move(project, f"{DEPLOYMENTS}---{second}").runners) == ["train-a10g"]
    assert "second: its labels are those of train-a10g" in capsys.readouterr().out


SECRETS = {
    "HF_TOKEN": "hf_" + "a" * 30, "DB_PASSWORD": "hunter2000", "ID": "AKIA" + "A" * 16, "URL": "postgres://u:pw@db/x",
    "HOOK": "https://hooks.slack.com/services/T0", "PIP": "https://o:glpat-0123456789@host/simple",
    "BLOB": base64.b64encode(b"-----BEGIN RSA PRIVATE KEY-----" + b"a" * 40).decode(),
}  # fmt: skip


def deployment(name: str, namespace: str = "ci", **spec: Any) -> dict[str, Any]:
    """Return a deployment of one GPU, with what `spec` says instead."""
    inner = {"organization": "acme-ml", "labels": [name], "dockerEnabled": False} | spec
    inner.setdefault("resources", {"limits": {"nvidia.com/gpu": 1}})
    return {
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"template": {"spec": inner}},
    }  # fmt: skip


def dumped(*documents: dict[str, Any]) -> str:
    return yaml.safe_dump_all(documents)


def test_secrets_are_known_by_name_and_by_form(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = [{"name": name, "value": value} for name, value in {**SECRETS, "CCACHE_DIR": "/cache"}.items()]
    fleet = move(project, dumped(deployment("a", env=env)), gpu="t4")
    assert fleet.runners["a"].environment == {"CCACHE_DIR": "/cache"}
    written = capsys.readouterr().out + (project / "Pulumi.ci.yaml").read_text()
    assert [name for name, value in SECRETS.items() if value in written] == []


def test_a_stack_takes_the_runners_of_one_place(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = dumped(
        deployment("a"),
        deployment("b", organization=None, repository="other/app"),
        deployment("c", organization=None, enterprise="big"),
    )
    assert list(move(project, text, gpu="t4").runners) == ["a"]
    assert "b: it registers at other/app" in capsys.readouterr().out
    assert list(move(project, text, gpu="t4", url="other/app", overwrite=True).runners) == ["b"]
    with pytest.raises(BadFlag, match="no runner of the file registers there"):
        move(project, text, gpu="t4", url="nowhere", stack="x")


def test_an_autoscaler_is_of_its_namespace(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scaler = {
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "s", "namespace": "one"}, "spec": {"scaleTargetRef": {"name": "a"}, "maxReplicas": "3"},
    }  # fmt: skip
    lost = {**scaler, "spec": {"scaleTargetRef": {"name": "gone"}}}
    second = deployment("a", "two", labels=["other"])
    second["spec"]["replicas"] = 7
    fleet = move(project, dumped(deployment("a", "one"), second, scaler, lost), gpu="t4")
    assert {name: runner.max for name, runner in fleet.runners.items()} == {"one-a": 3, "two-a": 7}
    assert "gone that it scales is not in the file" in capsys.readouterr().out


@pytest.mark.parametrize(("spec", "said"), [
    ({"resources": {"limits": {"nvidia.com/mig-3g.20gb": 1}}}, "a part of a GPU"),
    ({"resources": {"limits": {"amd.com/gpu": 1}}}, "a pool is of NVIDIA GPUs"),
    ({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, "pools made here are x64"),
    ({"resources": {"limits": {"nvidia.com/gpu": 100}}}, "no machine with 100"),
    ({"resources": {"limits": {"nvidia.com/gpu": "some"}}}, "not a number of GPUs"),
    ({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}}, "a part of a GPU"),
    ({"labels": 5}, "not a list of labels"),
    ({"labels": ["a b"]}, "not a label that GitHub takes"),
    ({"dockerEnabled": True, "resources": {"limits": {"nvidia.com/gpu": 3}}}, "Docker-in-Docker is privileged"),
    ({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-RTX-9999"}}, "not a GPU that the catalogue knows"),
    ({"env": [{"name": "ACTIONS_RUNNER_CONTAINER_HOOKS", "value": "/x"}]}, "set such variables by themselves"),
    ({"volumeMounts": [{"name": "d", "mountPath": "/var/lib/docker"}]}, "a container of its own"),
], ids=str)  # fmt: skip
def test_what_a_stack_cannot_have_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], spec: dict[str, Any], said: str
) -> None:
    assert "kept" in move(project, dumped(deployment("kept"), deployment("odd", **spec)), gpu="t4").runners
    assert said in capsys.readouterr().out


def test_a_file_of_which_nothing_can_be_taken_says_why(project: Path) -> None:
    many = {"limits": {"nvidia.com/gpu": 100}}
    with pytest.raises(BadFlag, match="no runner of the file can be in a stack file: odd: no machine with 100"):
        move(project, dumped(deployment("odd", resources=many)), gpu="t4")
    assert not (project / "Pulumi.ci.yaml").exists()


@pytest.mark.parametrize(("label", "gpu"), [
    ("Tesla-T4", "t4"), ("NVIDIA-A10G", "a10g"), ("NVIDIA-A100-SXM4-80GB", "a100-80gb"), ("NVIDIA-L40S", "l40s"),
    ("Tesla-V100-SXM2-16GB", "v100-16gb"), ("NVIDIA-H100-80GB-HBM3", "h100"), ("NVIDIA-GH200-480GB", ""),
])  # fmt: skip
def test_products_of_feature_discovery_are_known(label: str, gpu: str) -> None:
    assert product(label) == gpu


def test_variables_of_terraform_are_looked_up(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"instance_types": {"references": ["var.t"]}, "runner_group_name": {"references": ["local.g"]}}
    calls = {"gh": {"source": CALL["source"], "expressions": given}}
    plan = {"variables": {"t": {"value": ["g5.xlarge", "g4dn.xlarge"]}}}
    fleet = move(project, plan | {"configuration": {"root_module": {"module_calls": calls}}}, "p.json", url="acme-ml")
    assert fleet.pools["a10g"].instances == ("g5.xlarge",)
    said = capsys.readouterr().out
    assert "runner_group_name: it is local.g" in said
    assert "g4dn.xlarge: another GPU than g5.xlarge" in said


MULTI = {
    "fifo": True,
    "matcherConfig": {"labelMatchers": [["self-hosted", "linux", "x64", "t4"], ["self-hosted", "linux", "x64", "sm75"]],
                      "exactMatch": True, "priority": 1},
    "runner_config": {
        "instance_types": ["g4dn.xlarge"], "runner_extra_labels": ["turing", "t4"], "enable_ephemeral_runners": True,
        "idle_config": [{"cron": "* 17-23 * * 1-5", "timeZone": "Etc/UTC", "idleCount": 1},
                        {"cron": "* 0-2 * * 2-6", "timeZone": "Etc/UTC", "idleCount": 1}],
    },
}  # fmt: skip


def test_a_runner_of_several_matchers_has_the_labels_of_all(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runner,) = move(project, yaml.safe_dump(MULTI), url="acme-ml").runners.values()
    assert runner.labels == ("self-hosted", "linux", "x64", "turing", "t4", "sm75")
    assert [(warm.at, warm.min) for warm in runner.warm] == [
        ("0 17 * * 1-5", 1), ("0 0 * * 2-6", 1), ("0 3 * * 2-6", 0)
    ]  # fmt: skip
    said = capsys.readouterr().out
    assert ": fifo: the module's functions" in said
    assert ": matcherConfig.priority: " in said
    assert "all GPUs of its node" not in said


def test_the_module_is_found_in_modules_that_call_it(project: Path) -> None:
    inner = {
        "gh": {"source": CALL["source"], "expressions": {"instance_types": {"references": ["var.types"]}}},
        "zips": {"source": f"{CALL['source']}//modules/download-lambda", "expressions": {}},
    }
    outer = {"source": "./ci", "expressions": {"types": {"constant_value": ["g6.xlarge"]}},
             "module": {"module_calls": inner}}  # fmt: skip
    plan = {"configuration": {"root_module": {"module_calls": {"ci": outer}}}}
    (project / "p.json").write_text(json.dumps(plan))
    assert [(found.name, found.instances) for found in read(project / "p.json").runners] == [("gh", ("g6.xlarge",))]


def gpu_values(**spec: Any) -> dict[str, Any]:
    """Return values of a scale set with one GPU, with what `spec` says of its pod."""
    runner = {"name": "runner", "resources": {"limits": {"nvidia.com/gpu": 1}}} | spec.pop("runner", {})
    containers = [runner, *spec.pop("containers", [])]
    return {"githubConfigUrl": "https://github.com/acme-ml", "template": {"spec": {"containers": containers, **spec}}}


@pytest.mark.parametrize("document", [
    {"kind": "AutoscalingRunnerSet", "metadata": {"name": "own"}, "spec": gpu_values()},
    {"kind": "HelmRelease", "metadata": {"name": "own"}, "spec": {"chart": {"spec": {}}, "values": gpu_values()}},
    {"kind": "Application", "metadata": {"name": "own"},
     "spec": {"sources": [{"chart": "other"}, {"helm": {"values": yaml.safe_dump(gpu_values())}}]}},
    {"image": {"tag": 1}, "own": gpu_values()},
    {"runnerScaleSetName": "own", "maxRunners": 1, "template": gpu_values()["template"]},
], ids=["custom resource", "Flux", "Argo CD", "part of a chart", "without an address"])  # fmt: skip
def test_values_are_found_wherever_they_stand(project: Path, document: dict[str, Any]) -> None:
    assert list(move(project, yaml.safe_dump(document), gpu="t4", url="acme-ml").runners) == ["own"]


def test_docker_written_out_by_hand_is_the_container_mode(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = [{"name": "DOCKER_HOST", "value": "unix:///run/docker/docker.sock"},
           {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]  # fmt: skip
    mounts = [{"name": "sock", "mountPath": "/run/docker"}, {"name": "work", "mountPath": "/home/runner/_work"},
              {"name": "cache", "mountPath": "/cache"}]  # fmt: skip
    values = gpu_values(
        runner={"env": env, "volumeMounts": mounts},
        volumes=[{"name": "sock", "emptyDir": {}}, {"name": "work", "emptyDir": {"sizeLimit": "20Gi"}},
                 {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}],
        initContainers=[{"name": "dind", "image": "docker:dind"}, {"name": "hooks", "image": "busybox"}],
    )  # fmt: skip
    (runner,) = move(project, yaml.safe_dump(values | {"runnerScaleSetName": "1-gpu"}), gpu="t4").runners.values()
    assert (runner.container, runner.environment, list(runner.volumes)) == ("dind", {}, ["cache"])
    assert "1-gpu" in runner.labels
    said = capsys.readouterr().out
    assert "the old name stays a label" in said
    assert "env.NODE: its value is Kubernetes' (fieldRef)" in said
    assert "volumeMounts.work: /home/runner/_work is already used" in said
    assert "initContainers.hooks: " in said


def required(label: str, *values: str) -> dict[str, Any]:
    """Return a pod's affinity to nodes that have one of the values."""
    rows = {"nodeSelectorTerms": [{"matchExpressions": [{"key": label, "operator": "In", "values": list(values)}]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rows}}


@pytest.mark.parametrize(("label", "values", "instances"), [
    ("node.kubernetes.io/instance-type", ["g6.2xlarge", "g5.xlarge"], ("g6.2xlarge",)),
    ("karpenter.k8s.aws/instance-family", ["g6"], ("g6.xlarge", "g6.2xlarge", "g6.4xlarge")),
    ("k8s.amazonaws.com/accelerator", ["nvidia-tesla-t4"], ("g4dn.xlarge", "g4dn.2xlarge", "g4dn.4xlarge")),
    ("node.kubernetes.io/instance-type", ["BM.GPU.A10.4"], ("g5.xlarge", "g5.2xlarge", "g5.4xlarge")),
])  # fmt: skip
def test_a_required_affinity_says_the_machine(
    project: Path, label: str, values: list[str], instances: tuple[str, ...]
) -> None:
    fleet = move(project, yaml.safe_dump(gpu_values(affinity=required(label, *values))), gpu="a10g")
    assert [pool.instances for pool in fleet.pools.values()] == [instances]


def test_a_name_of_theirs_stays_a_label_or_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        "githubConfigUrl": "https://github.com/acme-ml", "runnerScaleSetName": "company-gpu-runners-for-training-jobs",
        "template": {"spec": {"containers": [{"name": "runner", "command": ["x"],
                                              "resources": {"limits": {"nvidia.com/gpu": 1}}}]}},
    }  # fmt: skip
    (runner,) = move(project, yaml.safe_dump(values), gpu="t4").runners.values()
    assert runner.scale_set == values["runnerScaleSetName"]
    assert "containers.runner.command" in capsys.readouterr().out
    values |= {"runnerScaleSetName": "Arc GPU"}
    assert "arc-gpu" in move(project, yaml.safe_dump(values), gpu="t4", overwrite=True).runners
    assert "runs-on with the old name finds none" in capsys.readouterr().out


def test_a_thousand_documents_are_read(project: Path) -> None:
    others = "---\n".join("kind: ConfigMap\nmetadata: {name: c}\n" for _ in range(1000))
    assert len(move(project, f"{DEPLOYMENTS}---\n{others}").runners) == 1


@pytest.mark.parametrize(("name", "text", "message"), [
    ("none.yaml", None, "No such file"),
    ("empty.yaml", "", "it is empty"),
    ("bad.yaml", "a: [", r"not YAML \(line"),
    ("bad.json", "{", r"not JSON \(line"),
    ("deep.yaml", "[" * 5000, "not YAML"),
    ("chart.yaml", "{{ if .Values.x }}\na: b\n{{ end }}", "a Helm template(.|\n)*fix: helm template"),
    ("main.tf", 'module "x" {}', r"Terraform's own language(.|\n)*fix: terraform"),
    ("other.yaml", "kind: Deployment\nmetadata: {name: web}", r"no runners are in it \(Deployment\)"),
    ("cpu.yaml", DEPLOYMENTS.replace("nvidia.com/gpu: 1, ", ""), "none of its runners asks for a GPU: Train_A10G"),
    ("latin.yaml", b"\xff\xfe\x00a", "not text"),
    ("large.yaml", "#" * (5 * 2**20 + 1), "more than 5 MiB"),
], ids=lambda value: value if isinstance(value, str) and len(value) < 12 else "")  # fmt: skip
def test_a_file_without_gpu_runners_is_refused_in_words(
    tmp_path: Path, name: str, text: str | bytes | None, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadFlag, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize(("given", "reason"), [
    ("c7i.8xlarge", "it has no GPU"), ("trn1.2xlarge", "AWS Neuron"), ("g4ad.xlarge", "AMD"), ("mac2.metal", "a Mac"),
    ("p2.xlarge", "too old"),
])  # fmt: skip
def test_an_instance_type_of_another_kind_is_refused_by_its_reason(project: Path, given: str, reason: str) -> None:
    move(project, DEPLOYMENTS)
    path = project / "Pulumi.ci.yaml"
    text = path.read_text()
    path.write_text(text.replace(text.partition("instances: [")[2].partition("]")[0], given))
    with pytest.raises(FleetError, match=f"{given}: .*{reason}") as error:
        load(project, "ci")
    assert "did you mean" not in str(error.value)
