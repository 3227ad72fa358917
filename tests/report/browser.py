"""A page in a real browser: Chromium through its DevTools protocol, over two pipes and without another package.

Debian's package `chromium` is looked for. Tests are skipped where there is none (`needs_browser`).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")
KEYS = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "ArrowLeft": (37, ""),
    "ArrowRight": (39, ""),
    "Home": (36, ""),
    " ": (32, " "),
}


class Browser:
    """One tab. `errors` gathers what the console and the page complain about."""

    def __init__(self, process: subprocess.Popen[bytes], into: int, out: int) -> None:
        self.process, self._into, self._out = process, into, out
        self._rest, self._number, self._session = b"", 0, ""
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask, and wait for the answer. Events that come before it are kept where they are errors."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._into, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._read()
            if told.get("id") == self._number:
                assert "error" not in told, told["error"]
                return told["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._out, 1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        name, told_of = told.get("method", ""), told.get("params", {})
        if name == "Runtime.exceptionThrown" or (name == "Log.entryAdded" and told_of["entry"]["level"] == "error"):
            self.errors.append(json.dumps(told_of))
        if name == "Runtime.consoleAPICalled" and told_of["type"] in ("error", "assert"):
            self.errors.append(json.dumps(told_of["args"]))
        return told

    def open(self, page: Path, address: str = "") -> None:
        """Load a file, from the beginning."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.resolve().as_uri() + address)
        self.until("document.readyState === 'complete'")

    def read(self, expression: str) -> Any:
        """The value of an expression of JavaScript; of a promise, when it is there."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, condition: str, seconds: float = 20.0) -> None:
        """Wait for a condition, or fail with the page's text."""
        waited = f"""new Promise((yes) => {{ const start = Date.now(); (function again() {{
            if ({condition}) yes(true); else if (Date.now() - start > {1000 * seconds}) yes(false);
            else setTimeout(again, 20); }})(); }})"""
        for _ in range(3):  # a navigation ends the wait of the page before it
            try:
                assert self.read(waited), f"{condition} did not come true; errors: {self.errors}"
                return
            except AssertionError as error:
                if "navigat" not in str(error) and "context" not in str(error):
                    raise

    def key(self, name: str) -> None:
        code, text = KEYS[name]
        known = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **known, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def click(self, selector: str, right: float = 0.5) -> None:
        """A real click of the mouse on an element: at its middle, or at a share of its width."""
        place = self.read(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); "
            f"const b = e.getBoundingClientRect(); return [b.x + b.width * {right}, b.y + b.height / 2]; }})()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def dark(self, on: bool = True) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, file: Path, whole: bool = False) -> None:
        """The page as a PNG file."""
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(told["data"]))


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """A browser without a window, whose profile is a folder of the test."""
    assert CHROMIUM is not None
    to_browser, into = os.pipe()
    out, from_browser = os.pipe()

    def as_3_and_4() -> None:
        os.dup2(to_browser, 3)
        os.dup2(from_browser, 4)

    words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    process = subprocess.Popen(
        [CHROMIUM, *words, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(3, 4),
        preexec_fn=as_3_and_4,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        browser = Browser(process, into, out)
        browser.size(1280, 800)
        yield browser
    finally:
        process.terminate()
        process.wait(20)
        os.close(into)
        os.close(out)
