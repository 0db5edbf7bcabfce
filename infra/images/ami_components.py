"""Work of the AMI pipeline: component documents, their parameters, and the tags of what comes out.

Pure text and values: nothing here talks to AWS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from infra import versions
from infra.gpu import user_data
from paddock import catalog
from paddock.catalog import EksAmi, InstanceType
from paddock.fleet import Fleet, software
from paddock.fleet.model.mirror import PRIVATE_ECR, parts
from paddock.fleet.model.pool import Bottlerocket

AMI = Path(__file__).parents[2] / "ami"
COMPONENTS = ("driver", "node", "runner-image", "facts", "cleanup")
"""In the order they run in, in each phase."""
FOLDER = "/opt/paddock/ami"
"""Where the scripts are on the machine, and stay: they also tell what is wrong with a node."""
DROP_IN = "/etc/eks/nodeadm.d/40-paddock.yaml"

_END = "END-OF-FILE"
"""A line that no file has."""
_SCRIPT = re.compile(rf"{FOLDER}/([a-z-]+\.sh)|\$here/([a-z-]+\.sh)|dirname \"\$0\"\)/([a-z-]+\.sh)")


@dataclass(frozen=True, slots=True)
class Document:
    """One component: `data` as Image Builder takes it, and the names of its parameters."""

    name: str
    data: str
    parameters: tuple[str, ...]


def documents(fleet: Fleet) -> tuple[Document, ...]:
    """Every component, with the scripts that it calls and the files that it puts down."""
    files = {DROP_IN: user_data.drop_in(pre_pulled=runner_image(fleet) is not None)}
    return tuple(_document(name, files if name == "node" else {}) for name in COMPONENTS)


def parameters(fleet: Fleet) -> dict[str, str]:
    """Values of the components' parameters: what the image must turn out to have. Empty is not asked."""
    ami, image = _base(fleet), runner_image(fleet) or ""
    driver = ami.driver if ami and ami.driver else fleet.images.ami.driver or ""
    branch = catalog.driver_branch(driver) if driver else None
    return {
        "driver": driver,
        "cuda": branch.max_cuda if branch else "",
        "kernel": ami.kernel if ami and ami.kernel else "",
        "toolkit": ami.container_toolkit if ami and ami.container_toolkit else "",
        "kubernetes": fleet.cluster.version,
        "release": fleet.eks_release or "",
        "runnerImage": image,
        "snapshotters": " ".join(_snapshotters(fleet)),
        "fabricManager": "fabric-manager" if any(map(has_nvswitch, _types(fleet))) else "",
        "dcgm": versions.DCGM_EXPORTER_IMAGE.partition("-")[0] if fleet.monitoring.enabled else "",
    }


def tags(fleet: Fleet) -> dict[str, str]:
    """Tags of the image: only what its tests compare with the machine, and only what is known before it is built."""
    values = parameters(fleet)
    if "." not in values["driver"]:
        values["driver"] = ""  # a branch alone; which version of it, the base image decides
    facts = {
        "kubernetes": values["kubernetes"],
        "driver": values["driver"],
        "cuda": values["cuda"],
        "kernel": values["kernel"],
        "toolkit": values["toolkit"],
        "release": values["release"],
        "runner-image": values["runnerImage"],
    }
    return {"paddock:fleet": fleet.name, **{f"paddock:{fact}": value for fact, value in facts.items() if value}}


def runner_image(fleet: Fleet) -> str | None:
    """The image that the AMI holds, named as containerd files it. None when it holds none."""
    return software.runner_image(fleet) if fleet.images.ami.pre_pull else None


def ecr_repository(image: str) -> str | None:
    """ARN of the repository of an image in a private ECR; None for any other registry."""
    host, rest = parts(image)
    match = PRIVATE_ECR.fullmatch(host)
    if match is None:
        return None
    region, name = match["region"], re.split("[@:]", rest)[0]
    partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(region.rsplit("-", 2)[0], "aws")
    return f"arn:{partition}:ecr:{region}:{match['account']}:repository/{name}"


def has_nvswitch(instance: InstanceType) -> bool:
    """Return whether CUDA starts only once a fabric manager has set up the NVSwitches: whole boards, from A100 on."""
    gpu = catalog.gpus()[instance.gpu] if instance.gpu else None
    return bool(gpu and gpu.nvlink_gbs and catalog.version(gpu.compute_capability) >= (8, 0) and instance.gpu_count > 2)


def _document(name: str, files: Mapping[str, str]) -> Document:
    """The document with a first step that puts down its scripts: so no bucket has to hold them."""
    text = (AMI / "components" / f"{name}.yaml").read_text(encoding="utf-8")
    parsed = yaml.safe_load(text)
    contents = {f"{FOLDER}/{script}": ("0755", script_text(script)) for script in scripts(text)}
    contents |= {path: ("0644", content) for path, content in files.items()}
    first = {
        "name": "Files",
        # Not CreateFile: nothing says what that makes of a backslash in a file's content.
        "action": "ExecuteBash",
        "timeoutSeconds": 60,
        "inputs": {"commands": [_puts_down(contents)]},
    }
    build = next(phase for phase in parsed["phases"] if phase["name"] == "build")
    build["steps"] = [first, *build["steps"]]
    parameters = tuple(key for parameter in parsed.get("parameters", ()) for key in parameter)
    data = yaml.dump(parsed, Dumper=_Dumper, sort_keys=False, width=2**20)
    return Document(name, data, parameters)


def _puts_down(contents: Mapping[str, tuple[str, str]]) -> str:
    """Bash that writes files, folders included, from their mode and content by path."""
    put = (
        f"install -D -m {mode} /dev/stdin {path} << '{_END}'\n{content}{_END}\n"
        for path, (mode, content) in contents.items()
    )
    return "set -e\n" + "".join(put)


def scripts(text: str) -> tuple[str, ...]:
    """Scripts that `text` calls, and those that they call."""
    names: dict[str, None] = {}
    waiting = [text]
    while waiting:
        for groups in _SCRIPT.findall(waiting.pop()):
            name = next(filter(None, groups))
            if name not in names:
                names[name] = None
                waiting.append(script_text(name))
    return tuple(sorted(names))


def script_text(name: str) -> str:
    return (AMI / "scripts" / name).read_text(encoding="utf-8")


def _base(fleet: Fleet) -> EksAmi | None:
    images = (ami for ami in catalog.eks_amis() if ami.os == "al2023")
    return next((ami for ami in images if ami.release == fleet.eks_release), None)


def _types(fleet: Fleet) -> list[InstanceType]:
    """Instance types that may boot the image."""
    pools = (pool for pool in fleet.pools.values() if not isinstance(pool.ami, Bottlerocket))
    return [instance for pool in pools for instance in pool.types]


def _snapshotters(fleet: Fleet) -> tuple[str, ...]:
    """Snapshotters that hold the unpacked images of the nodes: an image of the other one is unpacked again."""
    snapshotters = {"soci" if user_data.pulls_fast(instance) else "overlayfs" for instance in _types(fleet)}
    return tuple(sorted(snapshotters, reverse=True)) or ("soci",)


class _Dumper(yaml.SafeDumper):
    """Scripts as they are written, line by line: that is what one reads in the console when a step fails."""


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
