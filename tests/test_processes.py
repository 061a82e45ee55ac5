import os
import signal
import threading

from heterps.processes import Child

_OWNER = """
import os, signal, sys, time
from pathlib import Path
from heterps.processes import at_end

own = Path(sys.argv[1])

def clear_up():
    os.kill(os.getpid(), signal.SIGTERM)
    own.unlink()

at_end(clear_up)
own.touch()
time.sleep(600)
"""


def test_a_process_that_is_told_to_end_clears_up_first_though_it_is_told_again(tmp_path):
    (tmp_path / "owner.py").write_text(_OWNER)
    own = tmp_path / "own"
    child = Child("owner", [str(own)], tmp_path / "log", {"PYTHONPATH": str(tmp_path)})
    while not own.exists():
        assert child.wait(0.02) is None, child.last_words()
    child.terminate()
    assert child.wait(60.0) == -signal.SIGTERM
    assert not own.exists()


def test_the_end_of_a_process_is_seen_by_all_threads_that_look(tmp_path):
    for _ in range(5):
        child = Child("timeit", ["-n", "1000000000"], tmp_path / "log")
        seen, began = [], threading.Barrier(5)

        def look(child=child, seen=seen, began=began):
            began.wait()
            while (code := child.poll()) is None:
                pass
            seen.append(code)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        began.wait()
        os.killpg(child.pid, signal.SIGKILL)
        for thread in threads:
            thread.join(30)
        assert seen == [-signal.SIGKILL] * 4
