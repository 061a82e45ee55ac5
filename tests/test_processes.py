import os
import signal
import threading

from heterps.processes import Child


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
