"""A shop's pages in a browser: over HTTP, and in a real one where there is one."""

from __future__ import annotations

import base64
import http.client
import re
import shutil
import subprocess
from contextlib import AbstractContextManager
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

from heedful.serving.server import EnvironmentServer
from heedful.serving.sessions import Refusal
from heedful_envs.shop.browser_pages import ShopPages, _content
from heedful_envs.shop.drawn import DrawnShop
from heedful_envs.shop.environment import Shop
from heedful_envs.shop.products import Product
from heedful_envs.shop.visit import Visit
from patience import PATIENCE
from served import serving

ENV = Shop()
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def serving_pages(token: str = "") -> AbstractContextManager[EnvironmentServer]:
    return serving(ENV, token=token, pages=ShopPages(ENV, 10, 600.0))


class Browser:
    """Follows redirects and sends the forms of the page that it shows."""

    def __init__(self, server: EnvironmentServer, headers: dict[str, str] | None = None) -> None:
        host, port = server.server_address
        self.host = f"{host}:{port}"
        self.connection = http.client.HTTPConnection(str(host), int(port), timeout=PATIENCE)
        self.headers = headers or {}
        self.place, self.status, self.body = "/page", 0, ""
        self.answer_headers: dict[str, str] = {}

    def ask(self, method: str, place: str, form: dict[str, str] | None = None, **headers: str) -> int:
        body = None if form is None else urlencode(form)
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, place, body, {**(FORM if form is not None else {}), **self.headers, **more})
        response = self.connection.getresponse()
        self.status, self.body = response.status, response.read().decode()
        self.answer_headers = {name.lower(): value for name, value in response.getheaders()}
        if self.status == 303:
            self.place = self.answer_headers["location"]
            return self.ask("GET", self.place)
        return self.status

    def send(self, **fields: str) -> int:
        turn = re.search(r"name='turn' value='(\d+)'", self.body)
        return self.ask("POST", self.place, ({"turn": turn[1]} if turn else {}) | fields)

    @property
    def text(self) -> str:
        """What a person reads."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.body.split("</style>")[1])).split())


def test_a_person_searches_chooses_and_buys_and_reads_the_terms_of_the_reward() -> None:
    with serving_pages() as server:
        browser = Browser(server)
        assert browser.ask("GET", "/page") == 200
        assert "Start a visit" in browser.text
        browser.ask("POST", "/page", {"seed": "0"})
        assert "Find a kite that is modern and thin, with color white and size medium" in browser.text
        browser.send(search="kite")
        assert "Page 1 of 1, results in all: 6" in browser.text
        browser.send(click="b")
        browser.send(click="white")
        assert "Chosen: color white" in browser.text
        assert "Turns left: 6" in browser.text
        browser.send(click="Buy Now")
        assert "bought b: type 1, attributes 1/2, options 1/2, price 1/1. Reward 0.600" in browser.text


def test_a_form_that_is_sent_twice_spends_one_turn_and_a_click_in_vain_is_told() -> None:
    with serving_pages() as server:
        browser = Browser(server)
        browser.ask("POST", "/page", {"seed": "0"})
        for _ in range(2):
            browser.ask("POST", browser.place, {"turn": "0", "search": "kite"})
        assert "Turns left: 8" in browser.text
        browser.send(click="nothing of this page")
        assert "Nothing happened: there is no such button on this page." in browser.text
        for _ in range(8):
            browser.send(click="nothing of this page")
        assert "The turns are over and nothing was bought. Reward 0.000" in browser.text


def test_pages_have_no_script_and_load_nothing_from_elsewhere() -> None:
    with serving_pages() as server:
        browser = Browser(server)
        browser.ask("POST", "/page", {"seed": "1"})
        browser.send(search="<script>alert(1)</script> kite lamp")
        assert "<script" not in browser.body
        assert not re.search(r"(src|href)=['\"](?!/page)", browser.body)
        policy = browser.answer_headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert browser.answer_headers["content-type"] == "text/html; charset=utf-8"


def test_all_text_of_a_page_is_escaped() -> None:
    nasty = "<script>'\" onclick='x"
    one = Product(id=nasty, title=nasty, price=1.0, price_text=nasty, options=((nasty, (nasty,)),), bullets=("", nasty))
    shop = DrawnShop([one], ENV.goal(0))
    visit = Visit(shop, shop.goal, nasty, ENV)
    visit.found, visit.page = [nasty], "results"
    for action in ("", nasty, "features"):
        assert not action or not visit.click(action).refused
        html = _content(visit, "<form>")
        assert "<script" not in html
        assert "' onclick" not in html
        assert "script.&#x27;&quot; onclick" in html
    assert "<script" not in ShopPages(ENV, 10, 600.0).refused(nasty)


def test_a_page_needs_the_right_host_and_a_form_of_its_own() -> None:
    with serving_pages() as server:
        browser = Browser(server)
        assert browser.ask("GET", "/page", Host="evil.example") == 421
    with serving_pages() as server:
        browser = Browser(server)
        assert browser.ask("POST", "/page", {"seed": "0"}, Origin="http://evil.example") == 403
        assert browser.ask("POST", "/page", {"seed": "0"}, Origin="http://[::1") == 403
    with serving_pages() as server:
        browser = Browser(server)
        assert browser.ask("POST", "/page", {"seed": "0"}, Origin=f"http://{browser.host}") == 200
        assert browser.ask("POST", "/page", {"seed": "-1"}) == 400
        assert browser.ask("GET", "/page/0123456789") == 404


def test_with_a_token_the_browser_asks_for_it_as_a_password() -> None:
    with serving_pages(token="secret") as server:
        assert Browser(server).ask("GET", "/page") == 401
        browser = Browser(server)
        browser.ask("GET", "/page")
        assert browser.answer_headers["www-authenticate"] == 'Basic realm="heedful"'
        for password, status in (("secret", 200), ("wrong", 401), ("", 401)):
            told = base64.b64encode(f"me:{password}".encode()).decode()
            assert Browser(server, {"Authorization": f"Basic {told}"}).ask("GET", "/page") == status
        assert Browser(server, {"Authorization": "Basic ???"}).ask("GET", "/page") == 401


def test_visits_are_limited_and_idle_ones_are_closed() -> None:
    now = [0.0]
    pages = ShopPages(ENV, most=2, idle=10.0, clock=lambda: now[0])
    for _ in range(2):
        pages.answer("POST", "/page", {"seed": "0"})
    with pytest.raises(Refusal, match="All 2 visits are in use"):
        pages.answer("POST", "/page", {"seed": "0"})
    now[0] = 11.0
    assert pages.answer("POST", "/page", {"seed": "0"}).status == 303


def test_other_paths_are_answered_as_without_pages() -> None:
    with serving_pages() as server:
        browser = Browser(server)
        assert browser.ask("GET", "/health") == 200
        assert browser.body == '{"status":"ok","sessions":0}'


BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)


@pytest.mark.skipif(not BROWSER, reason="no Chromium is installed here")
def test_a_real_browser_shows_the_page(tmp_path: Path) -> None:
    with serving_pages() as server:
        browser = Browser(server)
        browser.ask("POST", "/page", {"seed": "0"})
        browser.send(search="kite")
        switches = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}",
            "--window-size=900,700",
        ]
        shot = tmp_path / "page.png"
        ended = subprocess.run(
            [BROWSER, *switches, f"--screenshot={shot}", "--dump-dom", f"{server.url}{browser.place}"],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert "kite plain modern thin" in ended.stdout, ended.stderr[-500:]
        assert ended.stdout.count("<button") == 7
