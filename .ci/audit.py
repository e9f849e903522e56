"""Ask public databases for known vulnerabilities of the packages in a file of pins, and say how many they knew.

Exit codes: 0 no known vulnerability among the packages that were answered for, even if these are none, which is said;
1 a vulnerability; 2 usage.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SERVICES = ("pypi", "osv")
SECONDS = 120


def answer(service: str, pins: Path) -> list[dict[str, object]]:
    """Return what a database says of every package; nothing if it cannot be reached."""
    command = [
        "-m",
        "pip_audit",
        "--requirement",
        str(pins),
        "--no-deps",
        "--disable-pip",
        "--vulnerability-service",
        service,
    ]
    try:
        done = subprocess.run(
            [sys.executable, *command, "--format", "json", "--progress-spinner", "off"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return list(json.loads(done.stdout)["dependencies"])
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return []


def main(arguments: list[str]) -> int:
    """Audit, print, and return the exit code."""
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        print("usage: audit.py PINS", file=sys.stderr)
        return 2
    pins = Path(arguments[0])
    asked = sum("==" in line and not line.startswith("#") for line in pins.read_text(encoding="utf-8").splitlines())
    known: dict[str, dict[str, object]] = {}
    for service in SERVICES:
        if len(known) < asked:
            for found in answer(service, pins):
                if "vulns" in found:
                    # A second service adds what the first did not know; it takes nothing back.
                    known.setdefault(str(found["name"]), found)
    bad = {name: found["vulns"] for name, found in known.items() if found["vulns"]}
    for name, vulnerabilities in bad.items():
        print(f"VULNERABLE: {name} {known[name]['version']}: {json.dumps(vulnerabilities)[:500]}")
    print(f"audit: {len(known)} of {asked} pinned packages were answered for, {len(bad)} with a known vulnerability")
    if len(known) < asked:
        print(
            f"NOT AUDITED: {asked - len(known)} packages, because no database ({', '.join(SERVICES)}) answered for them"
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
