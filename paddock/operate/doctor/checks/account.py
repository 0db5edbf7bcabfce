"""Credentials, the account and region that they are of, and this machine's clock."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from paddock.aws import client
from paddock.errors import did_you_mean
from paddock.fleet.stackfile.configuration import accounts
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Amount, Result
from paddock.operate.sources.aws import NoCredentials
from paddock.operate.sources.unavailable import Unavailable

AREA = "account"
_ACCOUNT = re.compile(r"(?:arn:aws[a-z-]*:[a-z0-9-]*:[a-z0-9-]*:|(?<!\d))(\d{12})(?=:|\.dkr[.-]ecr)")
"""Account in an ARN, and in the host of a registry."""
SKEW_SECONDS = 60
"""GitHub takes no App's token from the future; AWS refuses requests that are five minutes off."""


def credentials(context: Context) -> Iterator[Result]:
    """Check that AWS takes the credentials."""
    try:
        identity = context.identity()
    except NoCredentials as error:
        yield Result(status="fail", area=AREA, subject="credentials", message=str(error), fix=error.fix)
        return
    root = identity.arn.endswith(":root")
    yield Result(
        status="warn" if root else "pass",
        area=AREA,
        subject="credentials",
        message=f"{identity.arn}{', the root user, which nothing can limit' if root else ''}",
        fix="sign in as a role: aws configure sso" if root else "",
    )


def clock(context: Context) -> Iterator[Result]:
    """Compare this machine's clock with AWS's."""
    identity = context.identity()
    if identity.aws_clock is None:
        raise Unavailable("AWS's answer has no time")
    skew = (identity.own_clock - identity.aws_clock).total_seconds()
    late = abs(skew) > SKEW_SECONDS
    message = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} AWS's" if late else "agrees with AWS's"
    amount = Amount(name="skew", value=round(skew), unit="s", source="sts:GetCallerIdentity, header Date",
                    as_of=identity.aws_clock.isoformat())  # fmt: skip
    fix = "timedatectl set-ntp true" if late else ""
    yield Result(
        status="warn" if late else "pass", area=AREA, subject="clock", message=message, fix=fix, amounts=(amount,)
    )


def account(context: Context) -> Iterator[Result]:
    """Compare the account of the credentials with those that the stack allows or names."""
    own = context.identity().account
    config = context.stack.config
    allowed = accounts(config.get("aws:allowedAccountIds", ""))
    forbidden = accounts(config.get("aws:forbiddenAccountIds", ""))
    clear = (text for key, text in config.items() if key not in context.stack.secrets)
    named = {number for text in clear for number in _ACCOUNT.findall(text)}
    if (allowed and own not in allowed) or own in forbidden:
        key = "aws:allowedAccountIds" if allowed and own not in allowed else "aws:forbiddenAccountIds"
        message = f"these credentials are of {own}, which {key} of the stack rules out"
        yield Result(status="fail", area=AREA, subject="account", message=message, fix="sign in to the stack's account")
    elif own in allowed or own in named:
        yield Result(status="pass", area=AREA, subject="account", message=f"{own}, as the stack says")
    elif named:
        message = f"these credentials are of {own}; the stack file names {', '.join(sorted(named))}"
        fix = "sign in to the other account, or leave it so where the stack means both"
        yield Result(status="warn", area=AREA, subject="account", message=message, fix=fix)
    else:
        yield Result(status="pass", area=AREA, subject="account", message=f"{own}; the stack file names none")


def region(context: Context) -> Iterator[Result]:
    """Compare the stack's region with those of AWS, and with the one of this shell."""
    own, default, known = context.fleet.region, client.default_region(), client.regions("eks")
    if own not in known:
        message = f"{own} is not a region in which this boto3 knows EKS"
        fix = did_you_mean(own, known, "aws:region of the stack file")
        yield Result(status="warn", area=AREA, subject="region", message=message, fix=fix)
    elif default and default != own:
        message = f"the stack is in {own}, and this shell's default is {default}: commands of aws ask there"
        name = "AWS_REGION" if "AWS_REGION" in os.environ else "AWS_DEFAULT_REGION"
        yield Result(status="warn", area=AREA, subject="region", message=message, fix=f"export {name}={own}")
    else:
        yield Result(status="pass", area=AREA, subject="region", message=own)
