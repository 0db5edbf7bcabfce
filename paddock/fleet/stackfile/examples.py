"""Examples of required keys, for the messages about those that are missing."""

from __future__ import annotations

EXAMPLES = {
    "app": 'app: {id: "12345", installation: "678"}',
    "at": 'at: "0 8 * * 1-5"',
    "existing": "existing: {vpc: vpc-..., subnets: [subnet-..., subnet-...]}",
    "github": 'github: {url: https://github.com/ORG, app: {id: "12345", installation: "678"}}',
    "id": 'id: "12345"',
    "installation": 'installation: "678"',
    "instances": "instances: [g4dn.xlarge, g4dn.2xlarge]",
    "kubernetes": 'kubernetes: "1.35"',
    "max": "max: 5",
    "min": "min: 1",
    "mount": "mount: /models",
    "nodes": "nodes: {max: 5}",
    "pool": "pool: NAME, one of the keys under pools",
    "pools": "pools: {t4: {instances: [g4dn.xlarge], nodes: {max: 5}}}",
    "principal": "principal: arn:aws:iam::123456789012:role/NAME",
    "url": "url: https://github.com/ORG",
}
