"""Text that stands before the generated tables of `docs/configuration.md`."""

from __future__ import annotations

from paddock.fleet.docs import json_schema
from paddock.fleet.stackfile import yaml_document

EXAMPLE = """\
# yaml-language-server: $schema=docs/fleet.schema.json
config:
  aws:region: us-west-2

  # The credential is never part of the fleet. This adds it below, encrypted, so that the file can be committed:
  #   pulumi config set --secret paddock:githubAppKey < app.private-key.pem

  paddock:fleet:
    github:
      url: https://github.com/acme              # an organisation, a repository or an enterprise
      app: {id: "12345", installation: "678"}   # IDs in quotes
      runnerGroup: gpu                          # must exist already

    network:                                    # leave out for 10.0.0.0/16 in three zones
      zones: [us-west-2a, us-west-2b]
      nat: per-zone                             # survives the loss of a zone
      endpoints: [ecr.api, ecr.dkr]             # images do not cross the NAT gateway

    cluster:
      version: "1.36"                           # in quotes: 1.30 would be the number 1.3
      endpoint: {allow: [203.0.113.0/24]}       # who reaches the Kubernetes API; nobody by default
      access:
        platform: {principal: "arn:aws:iam::123456789012:role/Platform", policy: cluster-admin}

    pools:                                      # nodes of one GPU model each
      t4:
        instances: [g4dn.xlarge, g4dn.2xlarge]  # several, because spot wants choice
        capacity: spot
        fallback: on-demand                     # bought when there is no spot
        nodes: {max: 10}                        # both together; none while no job waits
      l4:
        instances: [g6.xlarge, g6.2xlarge]
        nodes: {max: 4}
        sharing: {timeSlicing: 4}               # four small jobs a GPU
      h100:
        instances: [p5.48xlarge]
        capacity: {capacityBlock: cr-0123456789abcdef0}
        zones: [us-west-2b]                     # a reservation is in one zone
        nodes: {max: 1}

    runners:                                    # scale sets: what `runs-on` asks for
      gpu:
        pool: t4
        labels: [self-hosted, linux, x64, gpu, cuda]
        max: 10
        warm:                                   # two idle runners in working hours
          - {at: "0 8 * * 1-5", min: 2, timeZone: America/Los_Angeles}
          - {at: "0 19 * * 1-5", min: 0, timeZone: America/Los_Angeles}
      gpu-small: {pool: l4, gpus: 1}            # one share; labels: self-hosted, linux, x64, gpu-small
      gpu-h100-x8:
        pool: h100
        gpus: 8
        container: kubernetes-novolume          # jobs with `container:` get a pod of their own
        volumes:
          models: {claim: model-cache, mount: /models, readOnly: true}

    monitoring: {enabled: true}
    tags: {team: ml-platform}
"""

INTRODUCTION = f"""\
<!-- Generated from paddock/fleet by `./inv schema --write`. Change the model, not this file. -->

# Configuration

A stack is one file, `Pulumi.<stack>.yaml`, beside `Pulumi.yaml`. Its key `paddock:fleet` says what the fleet is; all
else (taints, tolerations, node labels, launch templates, scale-from-zero tags, CPU and memory of a runner) is derived.
`./inv plan --stack <stack>` checks the file and shows what it would become, without credentials and without a network.

```yaml
{EXAMPLE}```

Only `github`, `pools` and a region must be written: see `Pulumi.dev.yaml` for about the least, `Pulumi.prod.yaml` for
more.

## Rules of the file

- Keys are camelCase. A key that Paddock does not know is an error, with the nearest one it does know.
- Values are read as Pulumi's engine reads them, which is not as every YAML tool does: `yes` and `on` are text,
  `1.30` is the number 1.3, `017` is 15. Versions, IDs and dates need quotes; where they are missing a message says so.
- Memory and disk carry a unit (`12Gi`, `512Mi`); CPU is cores (`3`, `2.5`) or millicores (`3500m`).
- Networks are IPv4, in canonical form (`203.0.113.0/24`, not `203.0.113.4/24`).
- Anchors, aliases and merge keys (`<<`) work. The file has at most {yaml_document.MAX_BYTES // 1024} KiB.
- All mistakes are listed at once in the order of the file, each with line, key, what was expected and a fix; those
  between parts (a runner on a pool that is not there) once every part is well-formed. Exit code 2; nothing is changed.

## Other keys under `config`

| key | meaning |
|---|---|
| `aws:region` | AWS region; required, unless the fleet has `region`; not yet one of China or GovCloud |
| `paddock:layers` | [Layers](#layers) of this stack, for those who keep them apart from the fleet |
| `paddock:suppressions` | exceptions from the plan's rules, a list of `{{rule, resource, reason, expires}}` |
| `paddock:githubAppKey` | private key of the GitHub App, encrypted |
| `paddock:githubToken` | personal access token, encrypted |
| `paddock:servingKeys` | API keys of [serving](serve-kubernetes.md), a line each, encrypted |
| `paddock:rayToken` | token of Ray's processes, encrypted |
| `paddock:redisPassword` | password of the Redis that keeps Ray's state, encrypted |

Keys of other namespaces (`aws:profile`, `kubernetes:...`) go to Pulumi's providers. Values under `config:` of
`Pulumi.yaml` hold for every stack that does not write its own.

**Where the credential is.** `github.app.key` and `github.token` name a place, never the credential: `config` (the
encrypted key above), the ARN of a Secrets Manager secret in the fleet's region, or `kubernetes:NAME` for a secret that
is already in the runners' namespace. The encrypted keys are written by

```sh
pulumi config set --secret paddock:githubAppKey < app.private-key.pem
pulumi config set --secret paddock:githubToken
```

A private key or a GitHub token in clear text anywhere in the file is refused, and the message does not repeat it.

## In an editor

`{json_schema.PATH}` is the JSON Schema of a stack file: completion, descriptions and checks while you type. With
the YAML language server (VS Code, Neovim, Emacs, Helix), put this in the first line of the stack file, or map the
schema to `Pulumi.*.yaml` in the editor's settings:

```yaml
# yaml-language-server: $schema=docs/fleet.schema.json
```

The schema knows shapes, names and bounds; what holds between the parts, and what depends on the day, only `./inv plan`
checks. A schema validator that reads YAML 1.1 takes `yes` for true; Pulumi and Paddock do not.
"""
