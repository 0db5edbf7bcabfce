"""Sources of charts and images with a mirror and without."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.fleet import GitHub, Mirror
from paddock.fleet.model.mirror import ChartName, chart_name

ECR = "123456789012.dkr.ecr.us-west-2.amazonaws.com"
HUB = "registry.example.com/hub"
ALL = "registry.example.com/all"


@pytest.mark.parametrize(("charts", "location"), [
    (None, None),
    ("oci://r.example.com/charts", "oci://r.example.com/charts/dcgm-exporter"),
    ("https://r.example.com/charts", "https://r.example.com/charts"),
    ("charts", "charts/dcgm-exporter-4.8.2.tgz"),
    ("./charts/", "charts/dcgm-exporter-4.8.2.tgz"),
    ("../our/charts", "../our/charts/dcgm-exporter-4.8.2.tgz"),
    ("/srv/charts", "/srv/charts/dcgm-exporter-4.8.2.tgz"),
    ({"dcgm-exporter": "oci://r.example.com/gpu/dcgm-exporter"}, "oci://r.example.com/gpu/dcgm-exporter"),
    ({"dcgm-exporter": "/srv/dcgm-exporter-4.8.2.tgz"}, "/srv/dcgm-exporter-4.8.2.tgz"),
    ({"dcgm-exporter": "https://r.example.com/gpu", "*": "charts"}, "https://r.example.com/gpu"),
    ({"cluster-autoscaler": "charts", "*": "oci://r.example.com"}, "oci://r.example.com/dcgm-exporter"),
    ({"cluster-autoscaler": "charts"}, None),
])  # fmt: skip
def test_where_a_chart_is(charts: Any, location: str | None) -> None:
    assert Mirror(charts=charts).chart("dcgm-exporter", "4.8.2") == location


@pytest.mark.parametrize("name", get_args(ChartName))
@pytest.mark.parametrize("place", ["{}", "oci://ghcr.io/charts/{}", "../charts/{}-0.20.0.tgz", "/c/{}-v1.2.3-rc.1.tgz"])
def test_a_chart_is_known_wherever_it_comes_from(name: str, place: str) -> None:
    assert chart_name(place.format(name)) == name


@pytest.mark.parametrize(("image", "mirrored"), [
    ("docker:29-dind", f"{HUB}/library/docker:29-dind"),
    ("acme/tool:1", f"{HUB}/acme/tool:1"),
    ("docker.io/docker:29-dind", f"{HUB}/library/docker:29-dind"),
    ("docker.io/acme/tool:1", f"{HUB}/acme/tool:1"),
    ("nvcr.io/nvidia/cuda:13.0", f"{ALL}/nvidia/cuda:13.0"),
    (f"quay.io/a/b@sha256:{'0' * 64}", f"{ALL}/a/b@sha256:{'0' * 64}"),
    ("localhost:5000/a:1", f"{ALL}/a:1"),
    (f"{HUB}/acme/tool:1", f"{HUB}/acme/tool:1"),
    (f"{ECR}/paddock-dev/runner-gpu:1", f"{ECR}/paddock-dev/runner-gpu:1"),
    ("public.ecr.aws/docker/library/node:22", f"{ALL}/docker/library/node:22"),
])  # fmt: skip
def test_where_an_image_is(image: str, mirrored: str) -> None:
    mirror = Mirror(images={"docker.io": HUB, "*": ALL})

    assert mirror.image(image) == mirrored
    assert mirror.holds(mirrored)
    assert Mirror(images=None).image(image) == image


def test_an_account_s_own_registry_is_mirrored_where_it_is_named() -> None:
    assert Mirror(images={ECR: HUB}).image(f"{ECR}/a:1") == f"{HUB}/a:1"
    assert Mirror(images=f"{ECR}/mirror").image("nvcr.io/a:1") == f"{ECR}/mirror/a:1"


_NAMES = st.from_regex(
    r"([a-z]{1,8}\.[a-z]{2,3}(:[0-9]{2,4})?/)?[a-z]{1,5}(/[a-z]{1,5}){0,2}:[0-9]{1,3}", fullmatch=True
)
_PREFIXES = st.from_regex(r"[a-z]{1,8}\.[a-z]{2,3}(:[0-9]{2,4})?(/[a-z]{1,5}){0,2}", fullmatch=True)


@given(_NAMES, _PREFIXES)
def test_an_image_is_mirrored_once(image: str, prefix: str) -> None:
    mirror = Mirror(images=prefix)
    copy = mirror.image(image)

    assert copy.startswith(f"{prefix}/")
    assert mirror.image(copy) == copy
    assert copy.rpartition("/")[2] == image.rpartition("/")[2]


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "localhost"])
def test_github_may_be_on_this_machine(host: str) -> None:
    github = GitHub.model_validate({"url": f"http://{host}/acme", "token": "config", "serverVersion": "3.21"})

    assert (github.host, github.scope) == (host, "organisation")


@pytest.mark.parametrize("host", ["github.com", "127.0.0.2:80", "localhost.example.com", "[::2]:80", "0.0.0.0:80"])
def test_github_is_reached_by_http_nowhere_else(host: str) -> None:
    with pytest.raises(ValueError, match="not where runners can register"):
        GitHub.model_validate({"url": f"http://{host}/acme", "token": "config", "serverVersion": "3.21"})
