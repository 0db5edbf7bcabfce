"""Docker's stored logins, and a copy of them for a login that ends with this process.

The engine, which looks digests up, has no logins: the client sends them with each request, and so does this module.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddock.image_reference import HUB
from paddock.images.docker import folders, process
from paddock.images.errors import BuildError, BuildInputError

_HUB_KEY = "https://index.docker.io/v1/"
_TOKEN_USER = "<token>"  # noqa: S105 - the name that helpers give to identity tokens


def private(environ: Mapping[str, str], registry: str) -> Path:
    """A folder like the user's, in which a login to `registry` stays a file; the caller removes it.

    Helpers, contexts, plugins and builders are those of the user, by link.
    """
    own = folders.settings(environ)
    settings = _settings(own)
    # An empty name is docker's word for "no helper", so the login reaches neither a keychain nor a cloud's helper.
    settings["credHelpers"] = {**settings["credHelpers"], _key(registry): ""}
    folder = Path(tempfile.mkdtemp(prefix="paddock-docker-"))
    try:
        for path in own.iterdir() if own.is_dir() else ():
            if path.name != "config.json":
                (folder / path.name).symlink_to(path.absolute())
        config = os.open(folder / "config.json", os.O_CREAT | os.O_WRONLY, 0o600)
        with open(config, "w", encoding="utf-8") as file:
            json.dump(settings, file)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def header(environ: Mapping[str, str], registry: str) -> dict[str, str]:
    """Return the header with which the engine logs in to `registry` by itself."""
    login = {"serveraddress": _key(registry), **_of(environ, registry)}
    return {"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(login).encode()).decode()}


def _of(environ: Mapping[str, str], registry: str) -> dict[str, str]:
    settings = _settings(folders.settings(environ))
    helper = settings["credHelpers"].get(_key(registry), settings.get("credsStore"))
    if login := _stored_login(_environment_logins(environ), registry):
        return login
    if helper and (helper_login := _helper_login(str(helper), registry, environ)):
        return helper_login
    return _stored_login(settings["auths"], registry)


def _stored_login(logins: Mapping[str, Any], registry: str) -> dict[str, str]:
    for name, entry in logins.items():
        if _host(name) == _host(_key(registry)) and isinstance(entry, dict):
            return _entry(entry, name)
    return {}


def _entry(entry: Mapping[str, Any], name: str) -> dict[str, str]:
    if token := entry.get("identitytoken"):
        return {"identitytoken": str(token)}
    try:
        user, _, password = base64.b64decode(str(entry.get("auth") or ""), validate=True).decode().partition(":")
    except ValueError:
        raise BuildInputError(f"docker's login of {name} cannot be read\n    fix: docker login {name}") from None
    return {"username": user, "password": password.rstrip("\0")} if user else {}


def _helper_login(helper: str, registry: str, environ: Mapping[str, str]) -> dict[str, str]:
    program = shutil.which(f"docker-credential-{helper}", path=environ.get("PATH"))
    if program is None:
        raise BuildInputError(
            f"docker keeps the login of {registry} with docker-credential-{helper}, which is not on PATH"
            "\n    fix: install it, or take credsStore and credHelpers out of "
            f"{folders.settings(environ) / 'config.json'}"
        )
    finished = process.call([program, "get"], environ, stdin=_key(registry))
    if finished.code:
        message = (finished.stdout.strip() or finished.stderr.strip()).splitlines()[-1:]
        if message and "credentials not found" in message[0]:
            return {}
        raise BuildError(
            f"docker-credential-{helper} gives no login of {registry}: {message[0] if message else 'without a word'}"
            f"\n    fix: docker login {registry}"
        )
    try:
        login = json.loads(finished.stdout)
        user, secret = str(login["Username"]), str(login["Secret"])
    except (ValueError, KeyError, TypeError):
        raise BuildError(f"docker-credential-{helper} answers in another form than docker's") from None
    return {"identitytoken": secret} if user == _TOKEN_USER else {"username": user, "password": secret}


def _settings(own: Path) -> dict[str, Any]:
    """Return the settings with the maps of logins and of helpers, which may be empty."""
    path = own / "config.json"
    try:
        settings: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")))
        return {**settings, **{name: dict(settings.get(name) or {}) for name in ("auths", "credHelpers")}}
    except FileNotFoundError:
        return {"auths": {}, "credHelpers": {}}
    except (OSError, ValueError, TypeError) as error:
        raise BuildInputError(
            f"cannot read {path}: {error}\n    expected: docker's settings, JSON\n    fix: repair or remove the file"
        ) from None


def _environment_logins(environ: Mapping[str, str]) -> dict[str, Any]:
    """CI systems hand logins over in a variable, which newer clients read as well."""
    try:
        return dict(json.loads(environ.get("DOCKER_AUTH_CONFIG") or "{}").get("auths", {}))
    except (ValueError, AttributeError, TypeError):
        raise BuildInputError('DOCKER_AUTH_CONFIG is not JSON of the form {"auths": {…}}') from None


def _key(registry: str) -> str:
    return _HUB_KEY if registry == HUB else registry


def _host(name: str) -> str:
    return name.removeprefix("https://").removeprefix("http://").partition("/")[0]
