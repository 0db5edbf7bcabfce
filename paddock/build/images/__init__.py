"""Images built, checked, listed, measured and delivered. The engine is `paddock.build.docker`."""
