"""Ask public databases for known vulnerabilities of the packages in files of pins, and say how many they knew.

Exit codes: 0 every package was answered for, and none has a known vulnerability; 1 a vulnerability; 2 usage; 3 no known
vulnerability, but some packages, perhaps all, were not answered for: they are not audited, which is said in red.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SERVICES = ("pypi", "osv")
SECONDS = 120
AUDITED, VULNERABLE, USAGE, NOT_AUDITED = 0, 1, 2, 3


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


def in_red(text: str) -> str:
    """Return a text in red, where a terminal shows it."""
    return f"\033[1;31m{text}\033[0m" if sys.stdout.isatty() else text


def main(arguments: list[str]) -> int:
    """Audit, print, and return the exit code."""
    files = [Path(name) for name in arguments]
    if not files or not all(path.is_file() for path in files):
        print("usage: audit.py PINS ...", file=sys.stderr)
        return USAGE
    asked, known = 0, dict[str, dict[str, object]]()
    for pins in files:
        asked += sum("==" in line and line[0] != "#" for line in pins.read_text(encoding="utf-8").splitlines())
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
        why = f"because no database ({', '.join(SERVICES)}) answered for them"
        print(in_red(f"NOT AUDITED: {asked - len(known)} of {asked} pinned packages, {why}"))
    if bad:
        return VULNERABLE
    return AUDITED if len(known) >= asked else NOT_AUDITED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
