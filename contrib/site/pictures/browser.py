#!/usr/bin/env python3
"""Takes pictures of pages: browser.py URL NAME[:dark|:phone|:high|:low]…

Opens the address in Chromium by chromedriver, waits until the page has drawn itself, and writes docs/images/NAME.png for
each name.
"""

from __future__ import annotations

import base64
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import typing
import urllib.error
import urllib.request

IMAGES = pathlib.Path(__file__).resolve().parents[3] / "docs/images"

#: Width and height of each kind of picture, pixels.
SIZES = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844), "high": (1100, 1400), "low": (1100, 860)}

#: Time for a page to ask the daemon and to draw, seconds.
DRAW_SECS = 8.0


class Browser:
    """Chromium without a screen."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.profile = tempfile.TemporaryDirectory()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={self.profile.name}",
        ]
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": flags}}}}
        self.session = ""
        for _ in range(50):
            try:
                self.session = self.ask("/session", wanted)["sessionId"]
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        if not self.session:
            raise RuntimeError("chromedriver does not answer")

    def ask(self, path: str, body: dict[str, typing.Any] | None = None, method: str = "POST") -> typing.Any:
        """One request to the driver."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def command(self, name: str, **parameters: typing.Any) -> typing.Any:
        """A command of Chromium's own protocol."""
        return self.ask(f"/session/{self.session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def show_as(self, kind: str) -> None:
        """Sets the screen and the reader's preference."""
        width, height = SIZES[kind]
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=kind == "phone",
        )
        scheme = "dark" if kind == "dark" else "light"
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Opens a page."""
        self.ask(f"/session/{self.session}/url", {"url": url})
        time.sleep(DRAW_SECS)

    def picture(self) -> bytes:
        """The visible part of the page as PNG."""
        return base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """Ends browser and driver."""
        self.ask(f"/session/{self.session}", method="DELETE")
        self.driver.terminate()
        self.driver.wait()
        self.profile.cleanup()


def main() -> None:
    """Takes the pictures."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    browser = Browser()
    try:
        browser.show_as("light")
        browser.open(sys.argv[1])
        for wanted in sys.argv[2:]:
            name, _, kind = wanted.partition(":")
            browser.show_as(kind or "light")
            time.sleep(DRAW_SECS / 2)
            (IMAGES / f"{name}.png").write_bytes(browser.picture())
    finally:
        browser.close()


if __name__ == "__main__":
    main()
