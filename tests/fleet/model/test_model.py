"""Meaning of the parts of the model: quantities, labels, subnets, schedules, credentials."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from itertools import combinations
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from paddock.fleet import Fleet, FleetError, parse
from paddock.fleet.errors import Problem, did_you_mean, dotted
from paddock.fleet.model.network import NewNetwork
from paddock.fleet.model.quantity import format_cpu, format_memory, parse_cpu, parse_memory
from paddock.fleet.sizing.addresses import addresses, addresses_needed


def fleet(**parts: Any) -> Fleet:
    """A fleet with these parts in place of the usual ones."""
    content = {
        "github": {"url": "https://github.com/acme", "token": "config"},
        "pools": {"t4": {"instances": ["g4dn.xlarge", "g4dn.12xlarge"], "nodes": {"max": 5}}},
        "runners": {"gpu": {"pool": "t4"}},
        **parts,
    }
    return parse({"paddock:fleet": json.dumps(content), "aws:region": "us-west-2"}, "acme", "dev")


def refusal(**parts: Any) -> str:
    with pytest.raises(FleetError) as caught:
        fleet(**parts)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "millicores"),
    [(3, 3000), ("3", 3000), (2.5, 2500), ("2.5", 2500), ("3500m", 3500), ("1m", 1), (0.001, 1), ("0.5", 500)],
)
def test_cpu(text: Any, millicores: int) -> None:
    assert parse_cpu(text) == millicores


@pytest.mark.parametrize(
    "text", [0, -1, "0", "", "m", "3 cores", "1.5m", "1e3", "3M", True, None, [], {}, "9" * 5000, float("inf")]
)
def test_what_is_no_cpu(text: Any) -> None:
    with pytest.raises(ValueError, match="is not an amount of CPU; write cores"):
        parse_cpu(text)


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [
        ("12Gi", 12288), ("512Mi", 512), ("1.5Gi", 1536), ("1Ti", 2**20), ("2048Ki", 2), ("1G", 953), ("100M", 95),
        ("1048576", 1), ("1T", 953674),
    ],
)  # fmt: skip
def test_memory(text: str, mebibytes: int) -> None:
    assert parse_memory(text) == mebibytes


@pytest.mark.parametrize(
    "text", [12, "12GB", "12 Gi", "", "Gi", "-1Gi", "0Gi", "1Ki", True, None, [], "9" * 5000 + "Gi"]
)
def test_what_is_no_memory(text: Any) -> None:
    with pytest.raises(ValueError, match="is not an amount of memory; write a number with its unit"):
        parse_memory(text)


@given(st.integers(1, 10**8))
def test_amounts_come_back_from_their_text(amount: int) -> None:
    assert parse_cpu(format_cpu(amount)) == amount
    assert parse_memory(format_memory(amount)) == amount


@pytest.mark.parametrize(("runner", "name", "labels"), [
    ({}, "gpu", ("self-hosted", "linux", "x64", "gpu")),
    ({"name": "big"}, "big", ("self-hosted", "linux", "x64", "big")),
    ({"labels": ["a", "b"]}, "gpu", ("a", "b")),
    ({"labels": ["a"], "name": "big"}, "big", ("a",)),
])  # fmt: skip
def test_a_runner_without_labels_is_found_by_its_name(
    runner: dict[str, Any], name: str, labels: tuple[str, ...]
) -> None:
    spec = fleet(runners={"gpu": {"pool": "t4", **runner}})
    assert spec.runners["gpu"].scale_set == name
    assert spec.runners["gpu"].effective_labels == labels


def test_parts_know_their_names_which_are_no_setting() -> None:
    spec = fleet(runners={"gpu": {"pool": "t4", "name": "big"}})
    pool, runner = spec.pools["t4"], spec.runners["gpu"]
    assert (pool.name, runner.name, runner.scale_set) == ("t4", "gpu", "big")
    assert list(spec.runners_on(pool)) == [runner]
    assert "name" not in pool.model_dump(by_alias=True)
    assert runner.model_dump(by_alias=True)["name"] == "big"
    assert 'unknown key "name"' in refusal(
        pools={"t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": 1}, "name": "x"}}
    )


def test_a_part_keeps_its_name_in_another_fleet() -> None:
    spec = fleet()
    copied = spec.model_copy(update={"pools": {"t4": spec.pools["t4"].model_copy(update={"max_pods": 9})}})
    renamed = Fleet.model_validate({**dict(copied), "pools": {"other": copied.pools["t4"]}, "runners": {}})
    assert (copied.pools["t4"].name, renamed.pools["other"].name) == ("t4", "other")


@pytest.mark.parametrize(("pool", "runner", "jobs"), [
    ({}, {"max": 3}, 3),
    ({}, {}, 5),
    ({"instances": ["g4dn.12xlarge"]}, {}, 20),
    ({"instances": ["g4dn.12xlarge"]}, {"gpus": 2}, 10),
    ({}, {"gpus": 4}, 5),
    ({"instances": ["g4dn.12xlarge"]}, {"gpus": 3}, 5),
    ({"instances": ["g4dn.xlarge"], "sharing": {"timeSlicing": 4}}, {}, 20),
    ({"instances": ["p4d.24xlarge"], "sharing": {"mig": "1g.5gb"}}, {}, 280),
])  # fmt: skip
def test_without_a_maximum_a_scale_set_fills_its_pool(pool: dict[str, Any], runner: dict[str, Any], jobs: int) -> None:
    usual = {"instances": ["g4dn.xlarge", "g4dn.12xlarge"], "nodes": {"max": 5}}
    spec = fleet(pools={"t4": {**usual, **pool}}, runners={"gpu": {"pool": "t4", **runner}})
    assert spec.max_runners(spec.runners["gpu"]) == jobs


@given(prefix=st.integers(16, 22), zones=st.integers(2, 6), block=st.integers(0, 2**16 - 1))
def test_a_vpc_is_cut_without_overlap_one_pair_a_zone(prefix: int, zones: int, block: int) -> None:
    vpc = IPv4Network((block << 16, prefix))
    assume(zones <= NewNetwork(cidr=str(vpc), zones=zones).room)
    private, public = NewNetwork(cidr=str(vpc), zones=zones).subnets()
    networks = [IPv4Network(text) for text in (*private, *public)]
    assert len(private) == len(public) == zones
    assert all(network.subnet_of(vpc) for network in networks)
    assert not any(first.overlaps(second) for first, second in combinations(networks, 2))
    assert all(network.prefixlen <= 26 for network in networks[:zones])
    assert all(network.prefixlen <= 28 for network in networks[zones:])


@given(
    prefix=st.integers(16, 21),
    region=st.sampled_from(["us-west-2", "ap-northeast-1", "us-west-1"]),
    letters=st.lists(st.sampled_from("abcd"), min_size=2, max_size=4, unique=True),
    more=st.sampled_from("abcd"),
)
def test_subnets_stay_when_a_zone_comes_or_goes(prefix: int, region: str, letters: list[str], more: str) -> None:
    def ranges(letters: list[str]) -> dict[str, tuple[str, str]]:
        network = NewNetwork(cidr=f"10.0.0.0/{prefix}", zones=tuple(f"{region}{letter}" for letter in letters))
        return dict(zip(letters, zip(*network.subnets(), strict=True), strict=True))

    few, many = ranges(letters), ranges([*dict.fromkeys([more, *letters])])
    assert few == {letter: many[letter] for letter in letters}


def test_counted_zones_lie_where_their_names_do() -> None:
    named = NewNetwork(zones=("ap-northeast-1a", "ap-northeast-1c", "ap-northeast-1d"))
    assert NewNetwork(zones=3).subnets() == named.subnets()
    assert named.subnets() == (
        ("10.0.0.0/18", "10.0.64.0/18", "10.0.128.0/18"),
        ("10.0.255.64/26", "10.0.255.128/26", "10.0.255.192/26"),
    )


@pytest.mark.parametrize(("parts", "words"), [
    ({"network": {"cidr": "10.0.0.0/22", "zones": 4}}, "10.0.0.0/22 has no part for zone us-west-2d"),
    ({"network": {"zones": ["us-west-2a", "us-west-2h"]}}, "has no part for zone us-west-2h"),
    ({"cluster": {"zones": ["us-west-2a", "us-west-2f"]}}, "the network has no subnet in us-west-2f"),
    ({"cluster": {"zones": ["us-west-2a"]}}, "EKS wants two zones for a control plane"),
    ({"cluster": {"zones": ["us-west-2a", "us-west-2b"]}, "network": {"existing": {"vpc": "vpc-01234567",
     "subnets": ["subnet-01234567", "subnet-01234568"]}}},
     "the network is adopted by its subnets, and their zones are not in the stack"),
])  # fmt: skip
def test_zones_without_a_subnet_are_refused(parts: dict[str, Any], words: str) -> None:
    assert words in refusal(**parts)


def test_addresses_are_counted_by_the_formula_in_the_docs() -> None:
    spec = fleet(
        network={"cidr": "10.0.0.0/20", "zones": 2},
        pools={
            "t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": 3}, "maxPods": 16, "fallback": "on-demand"},
            "l4": {"instances": ["g6.xlarge"], "nodes": {"max": 2}, "maxPods": 20},
        },
    )
    assert isinstance(spec.network, NewNetwork)
    assert addresses(spec.network) == 2 * (1024 - 5)
    # 16 pods on interfaces of 9 besides their own address, 20 on interfaces of 14; four are the control plane's.
    assert addresses_needed(spec) == {"t4": 3 * 20, "l4": 2 * 30, "system": 4 * 30, "network": 4}


@pytest.mark.parametrize("pods_fit", [True, False])
def test_subnets_must_hold_exactly_what_is_needed(pods_fit: bool) -> None:
    # Two /26 have 118 addresses: one system node takes 30, the control plane 4, a GPU node with eight pods 10.
    parts = {
        "network": {"zones": 2, "cidr": "10.0.0.0/22", "privateSubnets": ["10.0.0.0/26", "10.0.0.64/26"]},
        "cluster": {"system": {"nodes": {"min": 1, "max": 1}}},
    }
    pool = {"instances": ["g4dn.xlarge"], "maxPods": 8, "nodes": {"max": 8 if pods_fit else 9}}
    if pods_fit:
        assert fleet(**parts, pools={"t4": pool})
    else:
        assert (
            "have 118 addresses, and all nodes with all their pods need 124 (t4 90, system 30, network 4)"
            in refusal(**parts, pools={"t4": pool})
        )


@pytest.mark.parametrize(
    "schedule", ["0 8 * * 1-5", "*/15 * * * *", "0,30 8-18 1 1,6 0", "59 23 31 12 7", "0-30/5 * * * *"]
)
def test_a_cron_schedule(schedule: str) -> None:
    assert fleet(runners={"gpu": {"pool": "t4", "warm": [{"at": schedule, "min": 1}]}})


@pytest.mark.parametrize(
    "schedule",
    ["", "0 8 * *", "0 8 * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
     "5-1 * * * *", "@daily", "0 8 * * MON", "0  8 * * *", "0 8 * * *\n", "-1 * * * *", "999999999999 * * * *"],
)  # fmt: skip
def test_what_is_no_cron_schedule(schedule: str) -> None:
    assert "is not a cron schedule" in refusal(runners={"gpu": {"pool": "t4", "warm": [{"at": schedule, "min": 1}]}})


@pytest.mark.parametrize(("url", "scope", "kind"), [
    ("https://github.com/acme", "organisation", "cloud"),
    ("https://github.com/acme/gpu", "repository", "cloud"),
    ("https://github.com/enterprises/acme", "enterprise", "cloud"),
    ("https://acme.ghe.com/team", "organisation", "cloud"),
    ("https://github.acme.example/team", "organisation", "server"),
    ("https://github.acme.example:8443/team/gpu", "repository", "server"),
    ("http://127.0.0.1:8080/acme", "organisation", "server"),
])  # fmt: skip
def test_where_runners_can_register(url: str, scope: str, kind: str) -> None:
    github = fleet(github={"url": url, "token": "config", "serverVersion": "3.21"}).github
    assert (github.scope, github.kind) == (scope, kind)


@pytest.mark.parametrize(
    "url",
    ["github.com/acme", "http://github.com/acme", "https://github.com", "https://github.com/", "https://github.com/acme/",
     "https://github.com/enterprises", "https://github.com/a/b/c", "https://github.com/acme?tab=x", "https://[",
     "ssh://git@github.com/acme", "", "https://github.com/acme\n"],
)  # fmt: skip
def test_where_runners_cannot_register(url: str) -> None:
    assert "paddock:fleet.github.url: " in refusal(github={"url": url, "token": "config"})


def test_an_address_with_a_password_is_refused_and_not_repeated() -> None:
    text = refusal(github={"url": "https://me:hunter2@github.com/acme", "token": "config"})
    assert "holds a user or password" in text
    assert "hunter2" not in text


@pytest.mark.parametrize("group", ["Linux GPU (EU)", "a_b/c-1.2 x", "R&D", "3D-Grafik", "Prüfstand", "team:gpu"])
def test_a_valid_runner_group_is_kept_as_written(group: str) -> None:
    fleet(runners={"gpu": {"pool": "t4", "group": group}})
    assert yaml.safe_load(f"runnerGroup: {group}\n") == {"runnerGroup": group}


@pytest.mark.parametrize("group", ["2026-13-45", "1:30", "1e3", "0o17", "[[", "'a'", "!x", "a:"])
def test_what_a_reader_of_yaml_takes_for_something_else_is_none(group: str) -> None:
    with pytest.raises(FleetError, match="as a runner group is something else to YAML"):
        fleet(runners={"gpu": {"pool": "t4", "group": group}})


@pytest.mark.parametrize(("source", "kubernetes"), [
    ("config", None),
    ("arn:aws:secretsmanager:us-west-2:123456789012:secret:paddock/app-AbCdEf", None),
    ("arn:aws-us-gov:secretsmanager:us-gov-west-1:123456789012:secret:x", None),
    ("kubernetes:github-app", "github-app"),
])  # fmt: skip
def test_where_a_credential_can_be(source: str, kubernetes: str | None) -> None:
    by_token = fleet(github={"url": "https://github.com/acme", "token": source}).github
    app = {"id": "1", "installation": "2", "key": source}
    by_app = fleet(github={"url": "https://github.com/acme", "app": app}).github
    assert by_token.secret_source == by_app.secret_source == source
    assert by_token.kubernetes_secret == kubernetes


@pytest.mark.parametrize(
    "source", ["", "vault:x", "arn:aws:ssm:us-west-2:123456789012:parameter/x", "hunter2", "kubernetes:"]
)
def test_a_misplaced_credential_is_refused_and_not_repeated(source: str) -> None:
    text = refusal(github={"url": "https://github.com/acme", "token": source})
    assert "this does not say where the secret is" in text
    assert "hunter2" not in text


def test_the_parts_of_a_fleet_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        fleet().name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(("word", "candidates", "hint"), [
    ("spott", ["spot", "on-demand"], 'did you mean "spot"?'),
    ("max_pods", ["maxPods", "max"], 'did you mean "maxPods"?'),
    ("T4", ["t4", "a100"], 'did you mean "t4"?'),
    ("ondemand", ["spot", "on-demand"], 'did you mean "on-demand"?'),
    ("zebra", ["spot", "on-demand"], ""),
    ("x", [], ""),
])  # fmt: skip
def test_did_you_mean(word: str, candidates: list[str], hint: str) -> None:
    assert did_you_mean(word, candidates) == hint


def test_a_problem_reads_place_key_message_expectation_and_fix() -> None:
    problem = Problem(
        ("paddock:fleet", "runners", "gpu", "labels", 0), "is wrong", "right", "mend it", "Pulumi.dev.yaml", 7
    )
    assert str(problem) == (
        "Pulumi.dev.yaml:7: paddock:fleet.runners.gpu.labels[0]: is wrong\n    expected: right\n    fix: mend it"
    )
    assert dotted(()) == ""
