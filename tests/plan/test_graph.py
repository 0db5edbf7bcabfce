"""The graph is what an engine would be told: complete, the same on every run, and without a secret in clear text."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest
from pulumi.runtime import settings

from paddock.plan.engine import program as run
from paddock.plan.engine.graph import Graph, PlanError, Resource
from paddock.plan.engine.recorder import record
from paddock.plan.engine.values import SECRET, UNKNOWN, Secret, redact
from tests.support.fleets import ALL, SAMPLES, example, graph, named

URN = "urn:pulumi:dev::paddock::"
VPC = URN + "paddock:infra:Network$aws:ec2/vpc:Vpc::network-vpc"


def plan(program: Callable[[], Any], *, preview: bool = False, **config: str) -> Graph:
    secrets = frozenset(f"test:{key}" for key in config)
    return record(
        program,
        project="test",
        stack="unit",
        config={f"test:{k}": v for k, v in config.items()},
        secrets=secrets,
        preview=preview,
    )


def find_resource(result: Graph, name: str, type_: str | None = None) -> Resource:
    (resource,) = [r for r in result.resources.values() if r.name == name and type_ in (None, r.type)]
    return resource


def bucket(name: str, **options: Any) -> aws.s3.Bucket:
    return aws.s3.Bucket(name, opts=pulumi.ResourceOptions(**options))


class Group(pulumi.ComponentResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("test:index:Group", name, {}, opts)


# ---- the same every time ----


@pytest.mark.parametrize("name", ALL)
def test_first_preview_and_creation_declare_the_same(name: str) -> None:
    created, previewed = graph(name), graph(name, preview=True)

    assert set(created.resources) == set(previewed.resources)
    for urn, resource in created.resources.items():
        before = previewed.resources[urn]
        for field in ("type", "parent", "protect", "dependencies", "property_dependencies"):
            assert getattr(resource, field) == getattr(before, field)
        assert set(resource.inputs) == set(before.inputs)


@pytest.mark.parametrize("name", ALL)
def test_creation_knows_every_input(name: str) -> None:
    unknown = {
        resource.name
        for resource in graph(name).resources.values()
        for value in resource.inputs.values()
        if UNKNOWN in json.dumps(redact(value))
    }

    assert unknown <= {"cluster-eks-k8s"}, "the eks component writes that provider's kubeconfig in its own process"


# ---- everything an engine is told ----


@pytest.mark.parametrize("name", ALL)
def test_urns_are_pulumis_own(name: str) -> None:
    result = graph(name)
    for urn, resource in result.resources.items():
        types = []
        above: Resource | None = resource
        while above and above.type != "pulumi:pulumi:Stack":
            types.append(above.type)
            above = result.resources[above.parent] if above.parent else None
        if resource.type == "pulumi:pulumi:Stack":
            assert (
                urn
                == f"urn:pulumi:{result.stack}::{result.project}::pulumi:pulumi:Stack::{result.project}-{result.stack}"
            )
        else:
            assert urn == f"urn:pulumi:{result.stack}::{result.project}::{'$'.join(reversed(types))}::{resource.name}"
            assert resource.parent in result.resources


def test_parents_dependencies_and_options_are_kept() -> None:
    result = graph("dev").resources
    subnet = result[URN + "paddock:infra:Network$aws:ec2/subnet:Subnet::network-private-us-west-2a"]
    pool = result[URN + "paddock:infra:GpuPool$aws:eks/nodeGroup:NodeGroup::t4-spot"]

    assert subnet.parent == URN + "paddock:infra:Network::network"
    assert subnet.dependencies == (VPC,)
    assert subnet.property_dependencies["vpcId"] == (VPC,)
    assert subnet.provider.startswith(URN + "pulumi:providers:aws::aws::")
    assert result[VPC].protect
    assert not subnet.protect
    assert pool.ignore_changes == ("scalingConfig.desiredSize",)
    assert any(urn.endswith("::cluster-coredns") for urn in pool.dependencies)


def test_delete_before_replace_is_kept() -> None:
    assert find_resource(graph("dev"), "gpu", "kubernetes:helm.sh/v3:Release").delete_before_replace


@pytest.mark.parametrize("name", ALL)
def test_dependencies_are_declared_before_what_needs_them(name: str) -> None:
    declared: set[str] = set()
    for urn, resource in graph(name).resources.items():
        assert set(resource.dependencies) <= declared
        assert {u for urns in resource.property_dependencies.values() for u in urns} <= set(resource.dependencies)
        declared.add(urn)


def test_numbers_and_flags_keep_their_kind() -> None:
    template = find_resource(graph("dev"), "t4", "aws:ec2/launchTemplate:LaunchTemplate").inputs
    size = template["blockDeviceMappings"][0]["ebs"]["volumeSize"]

    assert type(size) is int
    assert template["updateDefaultVersion"] is True


def test_outputs_of_the_stack_are_kept() -> None:
    outputs = graph("dev").outputs

    assert outputs["kubeconfigCommand"] == "aws eks update-kubeconfig --name paddock-dev --region us-west-2"
    assert outputs["runners"]["gpu"]["runsOn"] == "runs-on: [self-hosted, linux, x64, gpu, cuda]"
    assert graph("dev", preview=True).outputs["kubeconfig"] == UNKNOWN


def test_questions_to_the_cloud_are_listed() -> None:
    tokens = {token for token, _ in graph("prod").lookups}

    assert tokens == {
        "aws:index/getCallerIdentity:getCallerIdentity",
        "aws:secretsmanager/getSecretVersion:getSecretVersion",
        "kubernetes:helm:template",
    }


# ---- secrets ----


@pytest.mark.parametrize("preview", [False, True], ids=["create", "preview"])
def test_secrets_are_never_shown(preview: bool) -> None:
    def program() -> None:
        token = pulumi.Config("test").require_secret("token")
        secret = k8s.core.v1.Secret("secret", string_data={"token": token, "plain": "seen"})
        pulumi.export("token", token)
        pulumi.export("echo", secret.string_data)

    result = plan(program, preview=preview, token="hunter2")

    assert find_resource(result, "secret").inputs["stringData"] == Secret({"token": "hunter2", "plain": "seen"}) or (
        find_resource(result, "secret").inputs["stringData"]["token"] == Secret("hunter2")
    )
    assert "hunter2" not in repr(result)
    assert "hunter2" not in json.dumps(
        redact({"resources": [r.inputs for r in result.resources.values()], "outputs": result.outputs})
    )
    assert redact(result.outputs["token"]) == SECRET


# ---- refusals ----


def test_two_resources_of_one_name_are_refused() -> None:
    def program() -> None:
        bucket("logs")
        bucket("logs")

    with pytest.raises(PlanError, match="two resources of type aws:s3/bucket:Bucket are named logs"):
        plan(program)


def test_one_name_under_two_kinds_of_parents_is_fine() -> None:
    def program() -> None:
        bucket("logs")
        bucket("logs", parent=Group("group"))

    assert len(plan(program).of_type("aws:s3/bucket:Bucket")) == 2


def test_question_without_an_answer_is_refused() -> None:
    def program() -> None:
        pulumi.export("ami", aws.ec2.get_ami_output(most_recent=True, owners=["self"]).apply(lambda ami: ami.id))

    with pytest.raises(PlanError, match="aws:ec2/getAmi:getAmi"):
        plan(program)


def test_remote_component_without_a_recording_is_refused() -> None:
    def program() -> None:
        k8s.yaml.v2.ConfigGroup("group", yaml="")

    with pytest.raises(PlanError, match="cannot be planned without an engine"):
        plan(program)


def test_refusal_of_the_program_is_a_plan_error() -> None:
    def program() -> None:
        raise pulumi.RunError("write it like this")

    with pytest.raises(PlanError, match=r"^write it like this$"):
        plan(program)


def test_mistake_in_the_program_is_raised_as_it_is() -> None:
    def program() -> None:
        bucket("logs").bucket.apply(lambda name: dict[str, str]()[name])

    with pytest.raises(KeyError):
        plan(program)


def test_failed_run_leaves_the_next_one_unharmed() -> None:
    def broken() -> None:
        for index in range(20):
            bucket(f"b{index}").id.apply(lambda id_: bucket(f"late-{id_}"))
        raise RuntimeError("half way")

    def fine() -> None:
        bucket("logs")

    before = plan(fine)
    with pytest.raises(RuntimeError, match="half way"):
        plan(broken)

    assert plan(fine) == before
    assert run.plan_graph(named("dev")) == graph("dev")


def test_run_leaves_no_trace_in_the_sdk() -> None:
    settings.SETTINGS.project = "untouched"
    plan(lambda: None)

    assert settings.SETTINGS.project == "untouched"
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


# ---- transforms ----


def test_transform_reaches_what_lies_below_its_resource() -> None:
    def tag(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        if not args.custom:
            return None
        return pulumi.ResourceTransformResult(
            {**args.props, "tags": {"by": args.name}},
            pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(protect=True)),
        )

    def program() -> None:
        group = Group("group", pulumi.ResourceOptions(transforms=[tag]))
        bucket("inside", parent=Group("inner", pulumi.ResourceOptions(parent=group)))
        bucket("outside")

    result = plan(program)

    assert find_resource(result, "inside").inputs == {"tags": {"by": "inside"}}
    assert find_resource(result, "inside").protect
    assert find_resource(result, "outside").inputs == {}
    assert not find_resource(result, "outside").protect


def test_transform_of_another_option_is_refused() -> None:
    def rename(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult:
        args.opts.retain_on_delete = True
        return pulumi.ResourceTransformResult(args.props, args.opts)

    def program() -> None:
        bucket("logs", transforms=[rename])

    with pytest.raises(PlanError, match="a transform changes retain_on_delete of logs"):
        plan(program)


@pytest.mark.parametrize(("name", "public"), [("dev", True), ("prod", True), ("private", False)])
def test_control_plane_is_hardened_by_its_transform(name: str, public: bool) -> None:
    control_plane = find_resource(graph(name), "cluster-eksCluster").inputs

    assert control_plane["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": False,
    }
    assert control_plane["vpcConfig"]["endpointPublicAccess"] is public
    assert control_plane["vpcConfig"]["endpointPrivateAccess"] is True
    assert ("publicAccessCidrs" in control_plane["vpcConfig"]) is public


# ---- alone on a machine ----


def test_planning_needs_no_network_and_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    earlier = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def refuse(place: Any, name: str) -> None:
        original = getattr(place, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() in earlier:  # a server of an earlier test
                return original(*args, **kwargs)
            raise AssertionError("a plan opened a connection or started a program")

        monkeypatch.setattr(place, name, call)

    expected = graph("prod")
    for name in ("connect", "connect_ex", "bind", "sendto"):
        refuse(socket.socket, name)
    refuse(socket, "getaddrinfo")
    refuse(subprocess.Popen, "__init__")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert run.plan_graph(example("prod")) == expected
    assert not list(tmp_path.iterdir())


def test_samples_differ_from_each_other() -> None:
    digests = {hashlib.sha256(repr(graph(name).resources.values()).encode()).hexdigest() for name in SAMPLES}

    assert len(digests) == len(SAMPLES), "each sample is there for something that the others have not"
