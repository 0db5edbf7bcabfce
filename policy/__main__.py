"""The policy pack: `pulumi preview --policy-pack policy`."""

from policy.pack import publish

publish()
