"""Stands before an HTTP server and says 503 for a while."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server")


class FlakyServer:
    """Passes requests on to ``target`` but for the next ``failures`` of those with ``about`` in
    their address, which are answered 503; that many of them are counted in ``refused``."""

    def __init__(self, target: str) -> None:
        self.failures = 0
        self.about = ""
        self.refused = 0
        self._target = urlsplit(target).netloc
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _refuses(self, address: str) -> bool:
        with self._lock:
            if self.failures <= 0 or self.about not in address:
                return False
            self.failures -= 1
            self.refused += 1
            return True

    def _pass_on(self, request: BaseHTTPRequestHandler) -> None:
        """Host and signature stay, so that the server takes it for its client's."""
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        if self._refuses(request.path):
            request.send_response(503)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            connection.request(request.command, request.path, body, dict(request.headers))
            answer = connection.getresponse()
            content = answer.read()
            request.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    request.send_header(name, value)
            size = answer.getheader("Content-Length") if request.command == "HEAD" else None
            request.send_header("Content-Length", size or str(len(content)))
            request.end_headers()
            request.wfile.write(content)
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pass_on = self._pass_on

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                pass_on(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing is said."""

        return Handler
