"""A real HDFS on this machine: Apache Hadoop's NameNode and DataNodes, each a process.

The jars are those that ``make build/hadoop`` gathers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from heterps.errors import ProcessError
from heterps.processes import Child, stop_all
from heterps.testing.ports import free_ports
from heterps.testing.services import Service

HADOOP = Path(__file__).parents[3] / "build" / "hadoop"
_JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_LOG4J = """log4j.rootLogger=WARN,err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c{1}: %m%n
"""
_PATIENCE_S, _LOOK_EVERY_S, _GRACE_S = 120.0, 0.1, 2.0


class Hdfs(Service):
    """``within`` stands before every command, as ``ip netns exec …``. With ``permissions`` modes of
    files count, for all but the user of this process."""

    def __init__(
        self,
        folder: Path,
        *,
        datanodes: int = 1,
        host: str = "127.0.0.1",
        within: Sequence[str] = (),
        permissions: bool = False,
    ) -> None:
        self._permissions = permissions
        self._folder = folder
        self._host = host
        self._within = within
        self._name_ports = free_ports(2, host)
        self._data_ports = [free_ports(3, host) for _ in range(datanodes)]
        self._java_tmp = folder / "java-tmp"
        self._namenode: Child | None = None
        self._datanodes: list[Child] = []

    @property
    def url(self) -> str:
        return f"hdfs://{self._host}:{self._name_ports[0]}"

    @property
    def web_url(self) -> str:
        return f"webhdfs://{self._host}:{self._name_ports[1]}"

    def start(self) -> None:
        """Until every DataNode is known to the NameNode."""
        if not HADOOP.is_dir():
            raise ProcessError("hdfs", f"has no jars in {HADOOP}: run make build/hadoop")
        format_it = self._java("format", _NAMENODE, {}, "-format", "-nonInteractive")
        if format_it.wait(_PATIENCE_S) != 0:
            raise ProcessError("hdfs", f"was not formatted: {format_it.last_words(3)}")
        settings = {"dfs.namenode.http-address": f"{self._host}:{self._name_ports[1]}"}
        self._namenode = self._java("namenode", _NAMENODE, settings)
        self._datanodes = [self._datanode(number) for number in range(len(self._data_ports))]
        self._await_datanodes(len(self._datanodes))

    @property
    def children(self) -> list[Child]:
        return [*([self._namenode] if self._namenode else []), *self._datanodes]

    def close(self) -> None:
        for child in self._datanodes:
            self._signal(child, signal.SIGCONT)
        stop_all(self.children, _GRACE_S)
        self._namenode, self._datanodes = None, []
        shutil.rmtree(self._java_tmp, ignore_errors=True)

    def kill(self, number: int = 0) -> None:
        """A DataNode, without a word."""
        self._datanodes[number].kill()
        self._datanodes[number].wait(_PATIENCE_S)

    def restart(self, number: int = 0) -> None:
        """A DataNode that was killed, with its blocks and ports; another one is left alone."""
        if self._datanodes[number].poll() is not None:
            self._datanodes[number] = self._datanode(number)

    def pause(self, number: int = 0) -> None:
        self._signal(self._datanodes[number], signal.SIGSTOP)

    def go_on(self, number: int = 0) -> None:
        self._signal(self._datanodes[number], signal.SIGCONT)

    def _await_datanodes(self, count: int) -> None:
        """Until so many are live and blocks may be written. Raises ProcessError."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            self._check_namenode()
            if self._live() == count:
                return
            time.sleep(_LOOK_EVERY_S)
        raise ProcessError("hdfs", f"has {self._live()} DataNodes, expected {count}", "stuck")

    def _live(self) -> int:
        """DataNodes that the NameNode knows, or -1 while it is not ready: one that has registered
        may have told nothing of its disk yet. It takes long to see that one has gone.
        """
        try:
            state = self._bean("FSNamesystemState")
        except (OSError, ValueError, LookupError):
            return -1
        ready = state["FSState"] == "Operational" and state["CapacityTotal"] > 0
        return int(state["NumLiveDataNodes"]) if ready else -1

    def _bean(self, name: str) -> dict[str, Any]:
        page = f"http://{self._host}:{self._name_ports[1]}/jmx?qry=Hadoop:service=NameNode,name="
        with urllib.request.urlopen(f"{page}{name}", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)["beans"][0]
        return found

    def _check_namenode(self) -> None:
        child = self._namenode
        if child is not None and child.poll() is not None:
            raise ProcessError("namenode", f"ended: {child.last_words(3)}", "ended")

    def _datanode(self, number: int) -> Child:
        data, ipc, web = self._data_ports[number]
        host = self._host
        settings = {
            "dfs.datanode.hostname": host,
            "dfs.datanode.data.dir": f"file://{self._folder}/data-{number}",
            "dfs.datanode.address": f"{host}:{data}",
            "dfs.datanode.ipc.address": f"{host}:{ipc}",
            "dfs.datanode.http.address": f"{host}:{web}",
        }
        return self._java(f"datanode-{number}", _DATANODE, settings)

    def _java(self, name: str, main: str, settings: Mapping[str, str], *arguments: str) -> Child:
        conf = self._folder / f"conf-{name}"
        conf.mkdir(parents=True, exist_ok=True)
        (conf / "hdfs-site.xml").write_text(_xml({**self._settings(), **settings}))
        (conf / "log4j.properties").write_text(_LOG4J)
        path = os.pathsep.join([str(conf), str(HADOOP), f"{HADOOP}/*"])
        self._java_tmp.mkdir(exist_ok=True)
        own = f"-Djava.io.tmpdir={self._java_tmp}"  # Jetty leaves folders behind
        command = [*self._within, *_JAVA, own, "-cp", path, main, *arguments]
        return Child("heterps.testing.execute", command, self._folder / f"{name}.log")

    def _settings(self) -> dict[str, str]:
        return {
            "fs.defaultFS": self.url,
            "hadoop.tmp.dir": f"{self._folder}/tmp",
            "dfs.namenode.name.dir": f"file://{self._folder}/name",
            "dfs.replication": str(len(self._data_ports)),
            "dfs.webhdfs.enabled": "true",
            "dfs.permissions.enabled": str(self._permissions).lower(),
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "3000",
        }

    def _signal(self, child: Child, number: signal.Signals) -> None:
        if child.poll() is None:
            os.kill(child.pid, number)


def _xml(settings: Mapping[str, str]) -> str:
    entries = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    return f"<configuration>\n{entries}</configuration>\n"
