"""The `ditport` command."""


def main() -> int:
    """Replaced by the first real command."""
    raise SystemExit("ditport: no command in this version yet")
