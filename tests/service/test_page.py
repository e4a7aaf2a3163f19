"""The page, in a real browser, on a real service: what it shows, and for whom it works."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.service.running import CITY, Threaded, make_index, sale

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

CHROMIUM = next(
    (path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()),
    None,
)
EVIL = "<img src=x onerror='window.owned = 1'>"
XML = {"content-type": "application/xml"}
TOKEN = "a token for the page"
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "is_mobile": True,
    "has_touch": True,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def served(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    """A service with a statement, one with a hostile name, and some matches."""
    state = tmp_path_factory.mktemp("state")
    evil = f'statements=[{{name="{EVIL}", expression="//sale[units]"}}]'
    with Threaded(f"index={index}", f"state={state}", evil) as service:
        with service.client() as client:
            client.put("/v1/statements/city", json=CITY).raise_for_status()
            body = {"expression": "//sale/item/units", "returns": ["message"]}
            client.put("/v1/statements/units", json=body).raise_for_status()
            for number in range(8):
                client.post("/v1/messages", content=sale(number), headers=XML)
            client.post("/v1/messages", content=b"<a>" + EVIL.encode(), headers=XML)
        yield service


@pytest.fixture
def page(browser: Browser, served: Threaded) -> Iterator[Page]:
    """The page, shown; whatever it complains of fails the test."""
    with Opened(browser, served.url) as shown:
        yield shown


class Opened:
    """A page in a browser of its own, which may ask nobody but the service."""

    def __init__(self, browser: Browser, url: str, **more: Any) -> None:
        self._context = browser.new_context(**more)
        self._url = url
        self.complaints: list[str] = []
        self.asked: set[str] = set()

    def __enter__(self) -> Page:
        self.page = self._context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", lambda request: self.asked.add(request.url))
        self.page.goto(self._url)
        return self.page

    def _console(self, message: Any) -> None:
        # A browser notes answers that say no; that is what some of the tests ask for.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def __exit__(self, *_: object) -> None:
        self._context.close()
        assert not self.complaints
        strangers = [url for url in self.asked if not url.startswith((self._url, "data:"))]
        assert not strangers, "it asked somebody else"


def wait(page: Page, selector: str, text: str) -> None:
    page.locator(selector).filter(has_text=re.compile(text)).first.wait_for()


def until(page: Page, holds: str) -> None:
    """Wait for an expression; the page's policy forbids the browser to do that by itself."""
    for _ in range(400):
        if page.evaluate(f"Boolean({holds})"):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {holds}")


# --- what it shows --------------------------------------------------------------------------


def test_figures_come_and_matches_show_up_as_they_are_found(page: Page, served: Threaded) -> None:
    wait(page, "#status", "Live")
    wait(page, "#messages-note", r"\d+ since the start")
    wait(page, "#workers", "1")
    until(page, "document.querySelectorAll('#stages tr').length > 3")
    # The page follows the stream by now; what is sent from here on is shown.
    until(page, "performance.getEntriesByName(location.href + 'v1/stats').length > 1")
    with served.client() as client:
        client.post("/v1/messages", content=sale(23, 99), headers=XML).raise_for_status()
    wait(page, "#feed li", "C2.*/item")
    assert page.locator("#feed-empty").is_hidden()
    # A rate needs two looks, and the chart says the same in words.
    until(page, "document.getElementById('messages-rate').textContent !== '–'")
    label = page.locator("#rate-chart .plot").get_attribute("aria-label") or ""
    assert re.search(r"Rate: Messages [\d.,]+/s, Matches [\d.,]+/s", label)
    assert page.locator("#rate-chart .line").first.get_attribute("d") is not None


def test_matches_of_before_are_there_when_it_is_opened(page: Page) -> None:
    """Whoever sends a message and then looks finds what it found."""
    wait(page, "#feed li", "city.*C5")
    shown = page.locator("#feed li").count()
    assert shown >= 16
    # Looked away from and back at, it goes on: nothing is shown twice.
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange'));"
        "delete document.hidden;"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    until(page, "performance.getEntriesByName(location.href + 'v1/matches/stream').length > 0")
    page.wait_for_timeout(500)
    assert page.locator("#feed li").count() == shown


def test_the_feed_can_be_paused(page: Page, served: Threaded) -> None:
    wait(page, "#status", "Live")
    until(page, "performance.getEntriesByName(location.href + 'v1/stats').length > 1")
    page.click("#feed-pause")
    before = page.locator("#feed li").count()
    with served.client() as client:
        client.post("/v1/messages", content=sale(24, 99), headers=XML).raise_for_status()
    page.wait_for_timeout(300)
    assert page.locator("#feed li").count() == before
    assert page.get_attribute("#feed-pause", "aria-pressed") == "true"
    page.click("#feed-pause")
    wait(page, "#feed li", "city")


def test_statements_show_what_they_found_and_cost(page: Page) -> None:
    row = page.locator("#rows tr").filter(has_text="local:city")
    row.locator(".chip").wait_for()
    cells = row.locator("td").all_inner_texts()
    assert int(cells[0].split()[0]) >= 8
    assert re.search(r"(ns|µs|ms|s)$", cells[2].strip())
    assert "cmatch" in cells[4] or "admatch" in cells[4]
    page.click("[data-sort=name]")
    names = page.locator("#rows .name").all_inner_texts()
    assert names == sorted(names, key=str.lower)
    assert page.locator("th:has([data-sort=name])").get_attribute("aria-sort") == "ascending"
    page.fill("#search", "UNITS > 3")
    assert page.locator("#rows .name").all_inner_texts() == ["city"]
    page.fill("#search", "nothing like it")
    wait(page, "#rows-empty", "No statement has")


def test_what_is_hostile_is_only_text(page: Page) -> None:
    wait(page, "#rows .name", re.escape(EVIL))
    page.click("#letters-box summary")
    wait(page, "#letters code", "onerror")
    until(page, f"[...document.querySelectorAll('option')].some(o => o.value === {EVIL!r})")
    page.fill("#try-expression", "//a[b = 'x']")
    page.fill("#try-message", "<a><b>&lt;script&gt;window.owned = 1&lt;/script&gt;</b></a>")
    page.click("#try-form .primary")
    wait(page, "#try-result", "<script>")
    assert page.evaluate("window.owned") is None
    assert page.locator("main script, #rows img, #feed img").count() == 0


def test_the_policy_lets_no_other_script_run(browser: Browser, served: Threaded) -> None:
    shown = Opened(browser, served.url)
    with shown as page:
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'),"
            "{textContent: 'window.owned = 1'}))"
        )
        assert page.evaluate("window.owned") is None
        page.wait_for_timeout(100)
        # The browser complains of what was tried here, and of nothing else.
        assert all("inline script" in each for each in shown.complaints)
        shown.complaints.clear()


def test_adaptation_tells_how_each_join_is_done(page: Page) -> None:
    page.locator("#report .join").first.wait_for()
    join = page.locator("#report .join").first
    assert "item/child::city" in join.locator("h2").inner_text()
    assert join.locator("tr.chosen").count() == 1
    assert join.locator("tbody tr").count() >= 2
    assert page.locator("#report-empty").is_hidden()


# --- trying ---------------------------------------------------------------------------------


def tried(page: Page, expression: str, message: str) -> str:
    page.fill("#try-expression", expression)
    page.fill("#try-message", message)
    page.focus("#try-message")
    page.keyboard.press("Control+Enter")
    until(page, "document.querySelector('#try-result .verdict')")
    until(page, "!document.getElementById('try-result').hasAttribute('aria-busy')")
    return page.inner_text("#try-result")


def test_a_statement_is_tried_on_a_message_with_the_reason(page: Page) -> None:
    good = "<sale><item sku='p9'><units>7</units></item></sale>"
    shown = tried(page, "//sale/item[units > 3]/local:city", good)
    assert "Matches once" in shown
    assert "C2" in shown
    assert "/item[1]/city[1]" in shown
    assert 'units was "7"' in shown


def test_a_statement_that_does_not_match_says_where_it_stopped(page: Page) -> None:
    bad = "<sale><item sku='p9'><units>2</units></item></sale>"
    shown = tried(page, "//sale/item[units > 3]/local:city", bad)
    assert "Does not match" in shown
    assert 'Stopped here: none of 1 passed: units was "2", needed > 3' in shown
    assert "null" not in shown
    assert "[object" not in shown
    shown = tried(page, "//sale/itm", bad)
    assert "Did you mean item?" in shown
    assert "[object" not in shown


def test_a_key_that_the_corpus_lacks_is_told_apart(page: Page) -> None:
    shown = tried(page, "//item/local:city", "<item sku='nobody'/>")
    assert "the corpus has no node with its key" in shown


def test_namespaces_are_offered_and_taken(page: Page) -> None:
    shown = tried(page, "//sale/item", "<sale xmlns='urn:s'><item/></sale>")
    assert "With the namespaces of the message" in shown
    page.click("#try-result .hint button")
    wait(page, "#try-result", "Matches once")
    assert "urn:s" in page.input_value("#try-prefixes")


def test_what_is_wrong_is_said_at_its_field(page: Page) -> None:
    tried(page, "//sale[", "<sale/>")
    assert page.get_attribute("#try-expression", "aria-invalid") == "true"
    assert page.is_visible("#try-expression-error")
    assert "//sale[" in page.inner_text("#try-result .pointer")
    tried(page, "//sale", "<sale>")
    assert page.get_attribute("#try-expression", "aria-invalid") is None
    assert page.get_attribute("#try-message", "aria-invalid") == "true"
    assert "line 1" in page.inner_text("#try-message-error")


def test_a_row_leads_to_the_box(page: Page) -> None:
    page.locator("#rows tr").filter(has_text="local:city").locator("button").click()
    assert page.input_value("#try-expression") == CITY["expression"]
    assert page.input_value("#try-known") == "city"
    assert page.evaluate("document.activeElement.id") == "try-message"


# --- for whom it works ----------------------------------------------------------------------


def test_it_works_by_keyboard_alone(page: Page) -> None:
    wait(page, "#status", "Live")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        name, outline = page.evaluate(
            "[document.activeElement].map(at => [at.id || at.textContent.trim().slice(0, 20),"
            "getComputedStyle(at).outlineStyle])[0]"
        )
        reached.add(name)
        assert outline != "none", f"{name} does not show the focus"
    assert {
        "feed-pause",
        "search",
        "try-known",
        "try-expression",
        "try-message",
        "Try it",
    } <= reached
    page.focus("#rate-chart .plot")
    until(page, "document.querySelectorAll('#rate-chart .labels text').length > 3")
    until(page, "document.getElementById('messages-rate').textContent !== '–'")
    page.keyboard.press("ArrowLeft")
    assert "ago" in page.inner_text("#rate-chart .when")
    assert "ago" in (page.text_content("#rate-chart [aria-live]") or "")


def test_everything_has_a_name_and_a_place(page: Page) -> None:
    wait(page, "#status", "Live")
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1, role
    unnamed = page.evaluate(
        """[...document.querySelectorAll('button, a, input, select, textarea')]
        .filter(e => e.offsetParent !== null || e.closest('dialog'))
        .filter(e => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label')))
        .map(e => e.outerHTML)"""
    )
    assert unnamed == []
    assert (
        page.evaluate(
            'document.querySelectorAll(\'[tabindex]:not([tabindex="0"],[tabindex="-1"])\').length'
        )
        == 0
    )
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    for attribute in ("aria-labelledby", "aria-describedby", "for"):
        for named in page.locator(f"[{attribute}]").all():
            assert set((named.get_attribute(attribute) or "").split()) <= set(ids)
    levels = page.evaluate(
        "[...document.querySelectorAll('main h1, main h2, main h3')]"
        ".filter(e => e.offsetParent).map(e => +e.tagName[1])"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.get_attribute("html", "lang") == "en"


CONTRAST = """() => {
  const parse = (c) => {
    const canvas = document.createElement('canvas'); canvas.width = canvas.height = 1;
    const on = canvas.getContext('2d', {willReadFrequently: true});
    on.clearRect(0, 0, 1, 1); on.fillStyle = c; on.fillRect(0, 0, 1, 1);
    return [...on.getImageData(0, 0, 1, 1).data].map((v, i) => i === 3 ? v / 255 : v);
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > 0.99) return c;
    }
    return [255, 255, 255, 1];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || !e.getClientRects().length || e.closest('.skip, script, option')) continue;
    const style = getComputedStyle(e);
    const [a, b] = [parse(e.closest('svg') ? style.fill : style.color), ground(e)].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${text.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: Browser, served: Threaded, scheme: Any) -> None:
    with Opened(browser, served.url, color_scheme=scheme) as page:
        page.locator("#report .join").first.wait_for()
        tried(page, "//sale/item[units > 3]", "<sale><item><units>2</units></item></sale>")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(map(int, re.findall(r"\d+", ground)[:3])) < 200
        assert dark == (scheme == "dark")
        assert page.evaluate(CONTRAST) == []
        # The other theme can be chosen, and is kept.
        for _ in range(2 if scheme == "light" else 1):
            page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground
        page.reload()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground


def test_it_fits_a_phone(browser: Browser, served: Threaded) -> None:
    with Opened(browser, served.url, **PHONE) as page:
        page.locator("#report .join").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        small = page.evaluate(
            """[...document.querySelectorAll('button, nav a, input, select, summary')]
            .filter(e => e.offsetParent !== null && !e.closest('thead'))
            .map(e => [e.textContent.trim() || e.id, e.getBoundingClientRect()])
            .filter(([, box]) => box.height < 24 || box.width < 40).map(([name]) => name)"""
        )
        assert small == []
        tall = page.evaluate(
            "[...document.querySelectorAll('main button, nav a')]"
            ".filter(e => e.offsetParent !== null && !e.closest('thead'))"
            ".every(e => e.getBoundingClientRect().height >= 44)"
        )
        assert tall
        page.tap("nav a[href='#try']")
        shown = tried(page, "//sale/item[units > 3]", "<sale><item><units>7</units></item></sale>")
        assert "Matches once" in shown
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_without_the_service_it_keeps_what_it_has(page: Page) -> None:
    wait(page, "#status", "Live")
    page.locator("#rows tr").first.wait_for()
    page.context.set_offline(True)
    wait(page, "#status", "Offline")
    assert page.locator("#rows tr").count() == 3
    assert "does not answer" in page.inner_text("#notice")
    page.context.set_offline(False)
    wait(page, "#status", "Live")
    assert page.locator("#notice").is_hidden()


# --- tokens ---------------------------------------------------------------------------------


def test_a_token_is_asked_for_and_kept_in_the_tab(
    browser: Browser, index: Path, tmp_path: Path
) -> None:
    tenants = "tenants=[{name='shop', token_env='SHOP'}]"
    overrides = (f"index={index}", f"state={tmp_path}", tenants)
    with (
        Threaded(*overrides, environ={"SHOP": TOKEN}) as service,
        Opened(browser, service.url) as page,
    ):
        page.locator("dialog[open]").wait_for()
        assert page.evaluate("document.activeElement.id") == "token-value"
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        wait(page, "#notice", "does not know this token")
        page.locator("dialog[open]").wait_for()
        page.fill("#token-value", TOKEN)
        page.keyboard.press("Enter")
        wait(page, "#tenant", "shop")
        wait(page, "#status", "Live")
        assert page.locator("#notice").is_hidden()
        page.reload()
        wait(page, "#tenant", "shop")
        assert TOKEN not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
        page.click("#token-open")
        page.click("dialog button[value=forget]")
        wait(page, "#status", "Token needed")
        assert page.evaluate("sessionStorage.length") == 0


def test_one_of_several_tenants_sees_how_the_service_does(
    browser: Browser, index: Path, tmp_path: Path
) -> None:
    tenants = "tenants=[{name='shop', token_env='SHOP'}, {name='other', token_env='OTHER'}]"
    overrides = (f"index={index}", f"state={tmp_path}", tenants)
    environ = {"SHOP": TOKEN, "OTHER": "another token"}
    with (
        Threaded(*overrides, environ=environ) as service,
        Opened(browser, service.url) as page,
    ):
        with service.client(TOKEN) as client:
            client.put("/v1/statements/city", json=CITY).raise_for_status()
            client.post("/v1/messages", content=sale(), headers=XML).raise_for_status()
        page.locator("dialog[open]").wait_for()
        page.fill("#token-value", TOKEN)
        page.keyboard.press("Enter")
        wait(page, "#tenant", "shop")
        wait(page, "#status", "Live")
        wait(page, "#workers-of", "of 1")
        assert page.locator("#notice").is_hidden()
        shown = page.locator("body").inner_text()
        assert not re.search("undefined|NaN|Degraded", shown)
