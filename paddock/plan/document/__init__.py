"""The plan as data: the document of `--json` and saved plans. It renders nothing."""
