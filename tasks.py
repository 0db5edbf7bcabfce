"""Lets a bare `invoke` find the tasks too."""

from paddock.tasks import namespace as namespace
