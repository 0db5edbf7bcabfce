"""The launch template that all our nodes share: IMDSv2, encrypted gp3, tags on what it launches."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.component import Component
from paddock.fleet import Fleet


def launch_template(
    owner: Component,
    name: str,
    fleet: Fleet,
    *,
    devices: Mapping[str, Mapping[str, int]],
    user_data: pulumi.Input[str] | None = None,
    **more: Any,
) -> aws.ec2.LaunchTemplate:
    """`devices`: device name -> size (GiB), iops, throughput (MiB/s). `user_data` in clear text; it is encoded here."""
    tags = {**fleet.aws_tags, "Name": f"{fleet.name}-{name}"}
    return aws.ec2.LaunchTemplate(
        name,
        update_default_version=True,
        ebs_optimized="true",
        metadata_options={
            "http_endpoint": "enabled",
            "http_tokens": "required",
            # One hop: the node's own agents reach IMDS, pods do not and so cannot borrow the node's role.
            "http_put_response_hop_limit": 1,
            "instance_metadata_tags": "disabled",
        },
        block_device_mappings=[
            {
                "device_name": device,
                "ebs": {
                    "volume_type": "gp3",
                    "volume_size": disk["size"],
                    "iops": disk["iops"],
                    "throughput": disk["throughput"],
                    "encrypted": "true",
                    "delete_on_termination": "true",
                },
            }
            for device, disk in devices.items()
        ],
        # A provider's default tags stop at the template; what it launches is tagged here.
        tag_specifications=[
            {"resource_type": kind, "tags": tags} for kind in ("instance", "volume", "network-interface")
        ],
        user_data=None if user_data is None else pulumi.Output.from_input(user_data).apply(_base64),
        tags=dict(fleet.tags),
        opts=owner.child(),
        **more,
    )


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
