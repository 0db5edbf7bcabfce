"""Failures of the hub, its client, the network and the disk, in words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from paddock.models.errors import ModelError, error

FORM = "hf://OWNER/REPO[@REVISION][/FILE.gguf], on the branch main where no revision is named"


class Interrupted(Exception):
    """The hub went away in the middle of a file."""

    def __init__(self, failed: Exception, there: int, size: int) -> None:
        self.failed, self.there, self.size = failed, there, size
        super().__init__(str(failed))


@contextlib.contextmanager
def in_words(where: str, reference: str, repo: str, revision: str) -> Iterator[None]:
    """Say what the library raises as a ModelError, begun by `where`."""
    try:
        import huggingface_hub.errors as of
        from huggingface_hub import constants
    except ModuleNotFoundError:
        raise error(
            f"{where}: {reference} is a model of the hub, and huggingface_hub is not installed here",
            fix="./inv in a checkout installs it, or pip install huggingface_hub",
        ) from None
    try:
        yield
    except ModelError:
        raise
    except Interrupted as gone:
        raise error(
            f"{where}: {constants.ENDPOINT} went away in the middle of a file of {repo}: {size(gone.there)} of "
            f"{size(gone.size)} are here ({line(gone.failed)})",
            fix="run it again: it continues where it ended",
        ) from None
    except of.GatedRepoError:
        raise error(
            f"{where}: {repo} is available to those who accept its licence",
            "HF_TOKEN, the key of an account that has accepted it",
            f"accept it at {constants.ENDPOINT}/{repo}, and set HF_TOKEN",
        ) from None
    except of.RevisionNotFoundError:
        raise error(
            f"{where}: {repo} has no revision {revision}",
            "a branch, a tag or a commit that its page lists; a / in a name is written %2F",
        ) from None
    except of.RepositoryNotFoundError:
        key = "the key in HF_TOKEN does not see it" if os.environ.get("HF_TOKEN") else "HF_TOKEN is not set"
        raise error(
            f"{where}: {constants.ENDPOINT} shows no repository {repo}: it is not there, or private ({key})",
            "OWNER/REPO as its page names it",
        ) from None
    except (of.LocalEntryNotFoundError, of.OfflineModeIsEnabled) as failed:
        why = "HF_HUB_OFFLINE is set" if offline() else f"{constants.ENDPOINT} does not answer"
        raise error(
            f"{where}: {reference} is not whole in {constants.HF_HUB_CACHE}, and {why}"
            + ("" if offline() else f" ({line(failed.__cause__ or failed)})"),
            fix="fetch it where there is a network, with the same HF_HOME" if offline() else "look at the network",
        ) from None
    except of.EntryNotFoundError as failed:
        raise error(f"{where}: {repo} has no such file: {line(failed)}") from None
    except of.HfHubHTTPError as failed:
        status = failed.response.status_code
        key = " (HF_TOKEN)" if status in (401, 403) else ""
        raise error(f"{where}: {constants.ENDPOINT} answers {status}{key} for {repo}: {line(failed)}") from None
    except of.HFValidationError:
        raise error(f"{where}: {reference} is not a model of the hub", FORM) from None
    except UnicodeEncodeError:
        raise error(f"{where}: HF_TOKEN has characters that no key has", "the key of an account, in ASCII") from None
    except (ValueError, KeyError, TypeError) as failed:
        raise error(
            f"{where}: {constants.ENDPOINT} does not answer as a hub does ({type(failed).__name__}: {line(failed)})",
            "the address of a hub",
            "look at HF_ENDPOINT, and at what is between here and there",
        ) from None
    except OSError as failed:
        text = failed.strerror or line(failed)
        raise error(f"{where}: {reference} cannot be downloaded: {text}", fix="look at the disk, or HF_HOME") from None
    except Exception as failed:
        if type(failed).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "requests"):
            raise
        raise error(
            f"{where}: {constants.ENDPOINT} does not answer ({line(failed)})",
            fix="look at the network, or name another by HF_ENDPOINT; HF_HUB_OFFLINE=1 takes what is here",
        ) from None


def offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.is_offline_mode())


def size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 10**9 else f"{count / 1e6:.1f} MB"


def line(failed: BaseException) -> str:
    text = " ".join(str(failed).split()).partition(" For more information")[0]
    return text[:200] or type(failed).__name__
