"""What a person hears of servers that do not answer."""

import io
import re
import subprocess
import sys
import threading

import pytest

from heterps.cli.errors import print_notice
from heterps.cli.terminal_bar import TerminalBar
from heterps.testing.commands import on_terminal


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.slow
def test_a_command_that_waits_for_servers_says_so_once_on_standard_error():
    url = "webhdfs://127.0.0.1:1/x"  # a port that nobody listens at
    end = subprocess.Popen.kill
    result = on_terminal("data", "inspect", "--json", url, until="s more", then=end)
    assert result.out == ""
    lines = result.err.splitlines()
    assert len(lines) == 1
    assert re.match(
        r"waiting for webhdfs://127\.0\.0\.1:1 \(.*\): trying for 11\d s more", lines[0]
    )


def test_a_notice_of_another_thread_stands_above_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with TerminalBar("reading") as bar:
        bar.show(1, 2, "half")
        thread = threading.Thread(target=print_notice, args=("waiting for hdfs://h [1]",))
        thread.start()
        thread.join()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert re.search(r"[\r\n]waiting for hdfs://h \[1\]\nreading", shown)


def test_a_notice_that_nobody_reads_ends_nothing(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    print_notice("waiting")
