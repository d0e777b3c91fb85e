import subprocess
import sys


def test_a_worker_without_a_broker_says_so_in_one_line() -> None:
    arguments = [sys.executable, "-m", "fleetlore.cli.main", "worker", "--broker", "127.0.0.1:1"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("fleetlore: no Kafka broker at 127.0.0.1:1; name ")
