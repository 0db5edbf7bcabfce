"""What several of these tests stand on."""

from tests.support.ami_account import project, world

__all__ = ["project", "world"]
