"""Scripts of this folder that start a cluster, in a process of their own that ends with all it started."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def seen_by(script, folder, **environment):
    """What a script says on its last line; it is given the folder, and the variables besides the usual ones."""
    variables = os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"} | environment
    command = [sys.executable, str(HERE / script), str(folder)]
    process = subprocess.Popen(command, env=variables, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=240)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(output.splitlines()[-1])
