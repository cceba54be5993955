"""Does the page do what a person expects? Drives it in headless Chromium.

Needs `pip install -r requirements.txt`, Chromium with its driver, and a running server: BASE_URL (default
http://127.0.0.1:8080). Environment: CHROMIUM and CHROMEDRIVER (default /usr/bin/...), SCREENSHOTS (a folder to write
pictures to), QUESTION and FOLLOW_UP (questions that the indexed documents answer).
Prints one line for each check and exits with 1 at the first deviation.
"""

import os
import pathlib
import sys
import tempfile
import time
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

BASE_URL = os.environ.get("BASE_URL", "http://127.0.0.1:8080").rstrip("/")
QUESTION = os.environ.get("QUESTION", "Why does the KV cache grow with every token?")
FOLLOW_UP = os.environ.get("FOLLOW_UP", "How does grouped-query attention shrink it?")
SCREENSHOTS = os.environ.get("SCREENSHOTS")
PATIENCE_S = float(os.environ.get("PATIENCE_S", "120"))


class Deviation(Exception):
    """The page did something else."""


def check(name, holds, seen=""):
    """Prints a check and stops when it fails."""
    print(f"{'ok  ' if holds else 'FAIL'} {name}{': ' if seen != '' else ''}{seen}", flush=True)
    if not holds:
        raise Deviation(name)


def until(what, probe, patience_s=PATIENCE_S):
    """Waits until the probe gives something, and gives it."""
    began = time.monotonic()
    while time.monotonic() - began < patience_s:
        try:
            found = probe()
        except StaleElementReferenceException:
            found = None
        if found:
            return found
        time.sleep(0.02)
    raise Deviation(f"not in {patience_s} s: {what}")


def metric(name):
    """The value of a series without labels or with its first labels."""
    with urllib.request.urlopen(f"{BASE_URL}/metrics") as reply:
        for line in reply.read().decode().splitlines():
            if line.startswith(name) and not line.startswith("#"):
                return float(line.rsplit(" ", 1)[1])
    raise Deviation(f"no figure {name}")


class Page:
    """The page in a browser of its own."""

    def __init__(self, profile):
        options = webdriver.ChromeOptions()
        options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        for flag in (
            "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-dev-shm-usage",
            "disable-background-networking", "disable-component-update", "disable-sync", "hide-scrollbars",
            f"user-data-dir={profile}", "window-size=1100,860",
        ):
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver")
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))

    def open(self, path="/"):
        self.driver.get(BASE_URL + path)
        until("the page knows its model", lambda: self.driver.execute_script(
            "return document.getElementById('model').textContent"))

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        found = self.all(selector)
        if not found:
            raise Deviation(f"nothing matches {selector}")
        return found[-1]

    def run(self, script, *more):
        return self.driver.execute_script(script, *more)

    def press(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def picture(self, name):
        if SCREENSHOTS:
            time.sleep(0.6)  # Animations end.
            folder = pathlib.Path(SCREENSHOTS)
            folder.mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(folder / f"{name}.png"))

    def size(self, width, height):
        """The size of the view itself; below 500 pixels a window refuses, a view does not."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 2, "mobile": width < 600})

    def colours(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def background(self):
        return self.run("return getComputedStyle(document.body).backgroundColor")

    def finished(self):
        until("the answer is complete", lambda: self.all(".turn:last-child[aria-busy=false]"))

    def trouble(self):
        return [box.text for box in self.all(".trouble")]


def asks(page):
    page.open()
    page.picture("1-start")
    check("the question box has the focus", page.run("return document.activeElement.id") == "question")
    # Writes down the order in which things appear, without polling from outside.
    page.run("""
        window.seen = [];
        new MutationObserver(() => {
          const now = [
            ["sources", ".turn:last-child .card"], ["answer", ".turn:last-child .answer > *"],
            ["timing", ".turn:last-child .timing"],
          ];
          for (const [name, selector] of now) {
            if (!window.seen.includes(name) && document.querySelector(selector)) window.seen.push(name);
          }
        }).observe(document.getElementById("turns"), { childList: true, subtree: true });
    """)
    page.press(QUESTION, Keys.ENTER)
    until("text appears", lambda: page.all(".turn .answer > *"))
    check("the button is Stop while it writes", page.one("#stop").is_displayed() and not page.one("#send").is_displayed())
    page.picture("2-writing")
    page.finished()
    check("nothing went wrong", page.trouble() == [], page.trouble())
    check("sources come before the text, timing last", page.run("return window.seen") == ["sources", "answer", "timing"])
    check("the answer is announced when complete", "Answer with" in page.run(
        "return document.getElementById('announce').textContent"))
    figures = [part.text for part in page.all(".figure")]
    check("the timing line names sources, first words and total", len(figures) >= 3, figures)
    page.picture("3-answered")


def cites(page):
    cite = until("the answer cites", lambda: page.all(".turn:last-child .cite"))[0]
    number = cite.text
    card = page.one(f".turn:last-child .card[data-number='{number}']")
    lit = lambda: "lit" in card.get_attribute("class").split()
    check("the card is quiet at first", not lit())
    ActionChains(page.driver).move_to_element(cite).perform()
    check("pointing at a citation lights its card", until("lit", lit))
    page.picture("4-pointing")
    ActionChains(page.driver).move_to_element(page.one("#question")).perform()
    until("leaving it puts the light out", lambda: not lit())
    page.run("arguments[0].focus()", cite)
    check("so does focus", until("lit", lit))
    page.press(Keys.ENTER)
    passage = page.one(".turn:last-child .passage")
    check("a click opens the whole passage", until("open", passage.is_displayed), passage.text.splitlines()[0])
    check("the card says that it is open", card.get_attribute("aria-expanded") == "true")
    check("the passage is the source's text", len(page.one(".passage-text").text) > 40)
    page.picture("5-passage")
    page.press(Keys.ESCAPE)
    check("Escape closes it", until("closed", lambda: not passage.is_displayed()))
    page.one(".turn:last-child .timing summary").click()
    check("the timing line opens to stages", page.one(".stages").is_displayed(), page.one(".stages").text.split("\n")[0])
    page.picture("6-stages")


def follows_up(page):
    page.run("document.activeElement.blur()")
    page.press("/")
    check("/ goes to the question box", page.run("return document.activeElement.id") == "question")
    check("and types nothing", page.run("return document.activeElement.value") == "")
    # The request itself shows whether the conversation goes along.
    page.run("""
        window.bodies = [];
        const plain = window.fetch;
        window.fetch = (path, options) => {
          if (options?.body) window.bodies.push(JSON.parse(options.body));
          return plain(path, options);
        };
    """)
    page.press(FOLLOW_UP, Keys.ENTER)
    until("a second turn", lambda: len(page.all(".turn")) == 2)
    page.finished()
    body = page.run("return window.bodies[0]")
    roles = [message["role"] for message in body["conversation"]]
    check("the conversation goes along", roles == ["user", "assistant"], roles)
    check("without its old markers", "[1]" not in body["conversation"][1]["content"])
    page.picture("7-follow-up")


def stops(page):
    until("idle", lambda: metric("riposte_requests_in_flight") == 0)
    before = metric('riposte_answers_total{finish="cancelled"}') if cancelled_before() else 0
    page.press("Tell me everything about continuous batching.", Keys.ENTER)
    until("text appears", lambda: page.all(".turn:last-child .answer > *"))
    check("a request is in flight", metric("riposte_requests_in_flight") == 1)
    page.one("#stop").click()
    until("the turn says so", lambda: page.one(".turn:last-child .note").text == "Stopped.")
    check("nothing is in flight any more", until("idle", lambda: metric("riposte_requests_in_flight") == 0, 10))
    running = lambda: metric("vllm:num_requests_running") == 0 and metric('riposte_kv_blocks{state="held"}') == 0
    check("the engine holds nothing", until("engine idle", running, 10))
    check("it counts as cancelled", metric('riposte_answers_total{finish="cancelled"}') == before + 1)
    page.run("document.getElementById('question').focus()")
    page.press("Tell me everything about speculative decoding.", Keys.ENTER)
    until("text appears", lambda: page.all(".turn:last-child .answer > *"))
    page.press(Keys.ESCAPE)
    until("Escape stops as well", lambda: page.one(".turn:last-child .note").text == "Stopped.")
    check("Escape stops as well", until("idle", lambda: metric("vllm:num_requests_running") == 0, 10))


def cancelled_before():
    with urllib.request.urlopen(f"{BASE_URL}/metrics") as reply:
        return 'riposte_answers_total{finish="cancelled"}' in reply.read().decode()


def starts_afresh(page):
    page.one("#fresh").click()
    check("New conversation clears the page", page.all(".turn") == [] and page.one("#welcome").is_displayed())
    page.one("#question").send_keys("line one", Keys.SHIFT, Keys.ENTER)
    check("Shift+Enter makes a line", page.run("return document.getElementById('question').value") == "line one\n")
    check("and asks nothing", page.all(".turn") == [])


def darkens(page):
    page.colours("light")
    light = page.background()
    page.colours("dark")
    dark = page.background()
    check("the system's dark mode is followed", light != dark, f"{light} to {dark}")
    page.one("#theme").click()
    check("the switch overrides it", page.background() == light)
    page.open()
    check("and is remembered", page.background() == light)
    page.one("#theme").click()
    check("and goes back", page.background() == dark)


def linked(page):
    page.open("/?q=" + urllib.request.quote(QUESTION))
    page.finished()
    check("?q= asks", page.one(".question").text == QUESTION)
    page.picture("8-dark")
    page.one(".turn:last-child .card").click()
    page.picture("9-dark-passage")


def narrows(page):
    page.size(390, 844)
    overflow = lambda: page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    check("no sideways scrolling at 390 pixels", overflow() <= 0, overflow())
    page.run("window.scrollTo(0, 0)")
    page.picture("a-phone-dark")
    page.colours("light")
    page.one("#theme").click()
    page.open("/?q=" + urllib.request.quote(QUESTION))
    page.finished()
    check("nor with a fresh answer", overflow() <= 0, overflow())
    page.picture("b-phone-light")
    page.run("document.querySelector('.cite')?.click()")
    page.picture("c-phone-passage")
    page.open()
    check("nor on the start page", overflow() <= 0, overflow())
    page.picture("d-phone-start")


def complains(page):
    """A server that fails is told in kind words, with a way on."""
    page.open()
    page.run("""
        const plain = window.fetch;
        window.fetch = (path, options) => path === "/v1/answer"
          ? Promise.resolve(new Response(JSON.stringify({ error: { type: "overloaded_error", code: "queue_full", message: "x" } }),
              { status: 503, headers: { "content-type": "application/json" } }))
          : plain(path, options);
        window.restore = () => { window.fetch = plain; };
    """)
    page.one("#question").send_keys(QUESTION, Keys.ENTER)
    until("a message", page.trouble)
    check("a full queue is told kindly", "try again" in page.trouble()[0].lower(), page.trouble()[0])
    page.picture("e-trouble")
    page.run("window.restore()")
    page.one(".trouble button").click()
    page.finished()
    check("Try again does", page.trouble() == [] and len(page.all(".turn")) == 1)


def builds_text_not_markup(page):
    """The page's own modules, fed with what a hostile document or model might say."""
    page.open()
    hostile = "<img src=x onerror=alert(1)> [a](javascript:alert(1)) **<b>x</b>** `<i>` [1] [7]"
    seen = page.driver.execute_async_script("""
        const [text, done] = arguments;
        import("/page/markdown.js").then(({ render }) => {
          const box = document.createElement("div");
          const cite = (number) => number === 1 ? document.createElement("button") : null;
          render(box, text, cite);
          const names = [...box.querySelectorAll("*")].map((one) => one.localName);
          done({ names, text: box.textContent });
        });
    """, hostile)
    check("markup stays text", set(seen["names"]) <= {"p", "strong", "code", "button", "span"}, seen["names"])
    check("a citation of nothing stays text", "[7]" in seen["text"] and "<img" in seen["text"])
    shape = page.driver.execute_async_script("""
        const [text, done] = arguments;
        import("/page/markdown.js").then(({ blocks }) => done(blocks(text).map((one) => [one.kind, one.lines.length])));
    """, "# Head\n\nOne\nline.\n\n- a\n- b\n  more\n\n1. x\n2. y\n\n```\ncode [1]\n\n```\nEnd")
    check("blocks are told apart", shape == [["h", 1], ["p", 1], ["ul", 2], ["ol", 2], ["code", 2], ["p", 1]], shape)
    wrong = page.driver.execute_async_script("""
        const done = arguments[0];
        import("/page/stream.js").then(({ EventReader }) => {
          const wrong = [];
          for (const end of ["\\n", "\\r\\n", "\\r"]) {
            const lines = [": alive", "event: delta", "data: {\\"text\\":", "data: 1}", "", "data: bare", "", ""];
            const text = lines.join(end) + (end === "\\r" ? "x" : "");
            for (let one = 0; one <= text.length; one++) {
              for (let two = one; two <= text.length; two++) {
                const reader = new EventReader();
                const parts = [text.slice(0, one), text.slice(one, two), text.slice(two)];
                const events = parts.flatMap((part) => reader.push(part)).map((event) => `${event.name}=${event.data}`);
                const expected = ["delta={\\"text\\":\\n1}", "message=bare"];
                if (JSON.stringify(events) !== JSON.stringify(expected)) wrong.push([end, one, two, events]);
              }
            }
          }
          done(wrong);
        });
    """)
    check("events survive every way of cutting the stream", wrong == [], wrong[:2])


def stays_quiet(page):
    loud = [entry["message"] for entry in page.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    check("the console has no complaint", loud == [], loud)


def main():
    with tempfile.TemporaryDirectory() as profile:
        page = Page(profile)
        try:
            page.size(1100, 860)
            page.colours("light")
            for part in (asks, cites, follows_up, stops, starts_afresh, darkens, linked, narrows, complains,
                         builds_text_not_markup, stays_quiet):
                print(f"-- {part.__name__.replace('_', ' ')}", flush=True)
                part(page)
        except Deviation as deviation:
            page.picture("deviation")
            print([entry["message"] for entry in page.driver.get_log("browser")])
            sys.exit(f"deviation: {deviation}")
        finally:
            page.driver.quit()
    print(f"every check passed against {BASE_URL}")


if __name__ == "__main__":
    main()
