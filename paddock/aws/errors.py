"""Errors of AWS: sentences with a next step, of what boto3 raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paddock.errors import PaddockError

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
_CLOCK = {"RequestInTheFuture", "RequestTimeTooSkewed"}
_UNKNOWN = {
    "AuthFailure",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
DENIED = {"AccessDenied", "AccessDeniedException", "AuthorizationError", "ForbiddenException", "UnauthorizedOperation"}
_THROTTLED = {
    "CallRateLimitExceededException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_TRANSIENT = {
    *("InternalError", "InternalFailure", "ServiceException", "ServiceUnavailable", "ServiceUnavailableException"),
    *("Unavailable", "500", "502", "503", "504"),
}
_IAM_NAMES = {
    "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing",
    "resourcegroupstaggingapi": "tag",
    "service-quotas": "servicequotas",
}
"""Services whose name in IAM is not that of the API."""
_IAM_ACTIONS = {"s3:ListObjectVersions": "s3:ListBucketVersions"}
"""Actions that are not named as their operation (docs.aws.amazon.com/service-authorization, Amazon S3, 2026-11)."""
_SET_CLOCK = "set the clock of this machine (timedatectl set-ntp true)"
_SIGN_IN = "sign in again (aws sso login, or new keys), and look with: aws sts get-caller-identity"


class AwsError(PaddockError):
    """AWS refused or did not answer. `transient` is true where the same question may be answered later."""

    def __init__(self, message: str, code: str = "", transient: bool = False) -> None:
        super().__init__(message)
        self.code, self.transient = code, transient


class NotSignedIn(AwsError):
    """AWS takes no request of this machine: no credentials, expired or unknown ones, a wrong clock, no boto3."""

    exit_code = 2


def action(service: str, operation: str) -> str:
    """Return the name by which IAM allows an operation: `ec2:DescribeImages` of `describe_images`."""
    words = "".join(f"{word[0].upper()}{word[1:]}" for word in operation.split("_"))
    named = f"{_IAM_NAMES.get(service, service)}:{words.replace('OpenId', 'OpenID')}"
    return _IAM_ACTIONS.get(named, named)


@contextmanager
def translated(call: str, region: str) -> Iterator[None]:
    """Raise AwsError for what boto3 raises during the block; `call` is the action as IAM names it."""
    try:
        from botocore import exceptions as raised
    except ImportError:
        raise NotSignedIn("boto3 is not installed\n    fix: pip install 'paddock[build]'") from None
    try:
        yield
    except raised.ClientError as error:
        raise _refused(error.response.get("Error", {}), call, region) from error
    except (raised.NoCredentialsError, raised.PartialCredentialsError, raised.ProfileNotFound) as error:
        raise NotSignedIn(
            f"there are no credentials for AWS: {_sentence(str(error))}\n"
            "    expected: credentials where boto3 looks: the environment, a profile, or the machine's role\n"
            "    fix: aws sso login --profile NAME and export AWS_PROFILE=NAME, or another source that boto3 reads"
        ) from error
    except (raised.HTTPClientError, raised.ConnectionError) as error:
        raise AwsError(
            f"AWS does not answer {call} in {region}: {_sentence(str(error))}\n"
            "    fix: look at the network, the proxy and the region of the stack, and run it again",
            transient=True,
        ) from error
    except raised.BotoCoreError as error:
        if any(word in type(error).__name__ for word in ("SSO", "Token", "Credential", "Login")):
            raise _credentials(_sentence(str(error))) from error
        raise AwsError(
            f"{call} cannot be asked: {_sentence(str(error))}\n"
            f"    fix: look at the region, {region}, and at what ~/.aws/config and the variables AWS_... say"
        ) from error


def _refused(error: dict[str, Any], action: str, region: str) -> AwsError:
    code, words = str(error.get("Code", "")), _sentence(str(error.get("Message", "")))
    if code in _EXPIRED:
        return _credentials(words)
    if code == "RequestExpired":  # EC2 answers so to temporary credentials that have expired, too
        return NotSignedIn(
            f"AWS refuses a request because of its time: {words} ({code})\n"
            "    expected: credentials that have not expired, and this machine's clock to be right\n"
            f"    fix: {_SIGN_IN}; else {_SET_CLOCK}"
        )
    if code in _CLOCK or "signature expired" in words.lower() or "signature not yet current" in words.lower():
        return NotSignedIn(
            f"AWS refuses a request because of its time: {words} ({code})\n"
            "    expected: this machine's clock to be right\n"
            f"    fix: {_SET_CLOCK}, and run it again"
        )
    if code in _UNKNOWN:
        return NotSignedIn(
            f"AWS does not know these credentials in {region}: {words} ({code})\n"
            "    expected: credentials of an account that has this region\n"
            f"    fix: enable the region for the account if it is an opt-in one, else {_SIGN_IN}"
        )
    if code in DENIED:
        message = (
            f"AWS denies {action} in {region}: {words}\n"
            f"    expected: credentials that may do {action}\n"
            f"    fix: allow {action} to this role or user, or sign in as one that may"
        )
        return AwsError(message, code)
    if code in _THROTTLED:
        message = (
            f"AWS throttles {action}: too many calls in this account and region\n    fix: run it again in a minute"
        )
        return AwsError(message, code, transient=True)
    transient = code in _TRANSIENT
    fix = f"correct what AWS names and run it again; the reference of {action} explains {code or 'why'}"
    fix = "run it again in a minute" if transient else fix
    return AwsError(f"AWS refused {action} in {region}: {words} ({code})\n    fix: {fix}", code, transient)


def _credentials(words: str) -> NotSignedIn:
    return NotSignedIn(
        f"the credentials for AWS have expired: {words}\n"
        f"    expected: credentials that have not expired\n    fix: {_SIGN_IN}"
    )


def _sentence(words: str) -> str:
    """Return AWS's words on one line, without the encoded part that only AWS reads."""
    return " ".join(words.split(" Encoded authorization failure message:")[0].split())[:400].rstrip(".")
