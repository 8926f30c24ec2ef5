"""Background processes that belong to one stack, and to nobody else.

A process is remembered by its pid *and* its start time, so a pid that the system has given to somebody else is never signalled.
Each leads a process group of its own: ending it ends what it started, the running functions for one.
"""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

GRACE_SECS = 10


def start(command: list[str], log: Path, env: dict[str, str]) -> dict:
    """Starts `command` in the background; what it returns goes into the state file and identifies the process from now on."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True)
    return {"pid": process.pid, "started": _started(process.pid)}


def is_running(process: dict) -> bool:
    started = _started(process["pid"])
    return started is not None and started == process["started"]


def stop(process: dict) -> None:
    """Asks, waits, then insists. Somebody else's process of the same pid is left alone."""
    _end(process, signal.SIGTERM, signal.SIGKILL)


def kill(process: dict) -> None:
    """Does not ask."""
    _end(process, signal.SIGKILL)


def _end(process: dict, *attempts: signal.Signals) -> None:
    for attempt in attempts:
        if not is_running(process):
            return
        try:
            os.killpg(process["pid"], attempt)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + GRACE_SECS
        while is_running(process) and time.monotonic() < deadline:
            time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _started(pid: int) -> str | None:
    """When the process began, in the system's own words; None when it is gone or only waits to be collected."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # not our child: an earlier run of the script started it
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # the second field is the command in brackets and may hold spaces and brackets of its own
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] == "Z" else fields[19]
    found = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return None if not found or found.startswith("Z") else found.partition(" ")[2].strip()
