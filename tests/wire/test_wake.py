import os
import select
import threading

from heterps.wire.wake import Wake


def is_set(wake: Wake) -> bool:
    return bool(select.select([wake], [], [], 0)[0])


def test_it_is_set_until_it_is_cleared():
    wake = Wake()
    assert not is_set(wake)
    wake.set()
    wake.set()
    assert is_set(wake)
    wake.clear()
    wake.clear()
    assert not is_set(wake)
    wake.close()
    wake.close()


def test_setting_it_after_the_end_writes_to_no_other_file():
    taken_over = 0
    for _ in range(200):
        wake = Wake()
        number = wake.fileno()
        begin = threading.Barrier(2)

        def set_often(wake: Wake = wake, begin: threading.Barrier = begin) -> None:
            begin.wait()
            for _ in range(200):
                wake.set()

        thread = threading.Thread(target=set_often)
        thread.start()
        begin.wait()
        wake.close()
        other = os.eventfd(0, os.EFD_NONBLOCK)
        thread.join()
        assert wake.fileno() == -1
        assert not select.select([other], [], [], 0)[0]
        taken_over += other == number
        os.close(other)
    assert taken_over
