"""The page in a real browser, and the queries of Grafana's dashboard in a real Prometheus, while a program trains.

The browser is Chromium ($LCACHE_CHROMIUM, or one on PATH), driven by playwright; Prometheus is the one on PATH. As root, make test-tools installs both, and
if one is missing the test fails. A user without root, and a machine where the install was impossible, skip the tests that need it.
"""

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import realserver
from waits import until

pytestmark = [realserver.needs_binary, pytest.mark.any_io]

CHROMIUM = os.environ.get("LCACHE_CHROMIUM") or next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
PROMETHEUS = shutil.which("prometheus")
TOKEN = "marked-token-0123456789"
WAIT = 60  # seconds for anything to happen


def wait_until(page, expression, arg=None):
    """Waits for a JavaScript expression, or function of arg, to be true. Playwright's own wait evaluates it in the page if it is not true at once, which the
    page's Content-Security-Policy forbids."""
    until(lambda: page.evaluate(expression, arg), expression, WAIT)


# One rank that trains until its stdin ends, and reports its waits as lcache.torch does.
TRAINER = """
import os, select, sys, time
import lcache
print("ready", flush=True)
with lcache.connect(os.environ["LCACHE_SOCKET"]) as job:
    for epoch in range(10_000):
        before = time.perf_counter()
        for batch in job.epoch(epoch, rank=0):
            got = time.perf_counter()
            batch.release()
            if select.select([sys.stdin], [], [], 0.005)[0]:
                sys.exit()
            after = time.perf_counter()
            job.report(epoch, 0, loop_wait=got - before, loop=after - before)
            before = after
"""


class Run:
    """lcache run with the trainer, and the addresses that it prints."""

    def __init__(self, folder, *flags, **variables):
        tree = realserver.Folder(os.path.join(folder, "source"), [10_000] * 400)
        command = [realserver.BINARY, "run", "--source", tree.root, "--cache", os.path.join(folder, "cache"), "--recipe", "torch.distributed_sampler"]
        command += ["--batch-size", "8", "--epochs", "10000", *flags, "--", sys.executable, "-c", TRAINER]
        env = realserver.environment(XDG_RUNTIME_DIR=folder, LCACHE_TMPFS="1", PYTHONPATH=os.path.join(realserver.ROOT, "python"), **variables)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        self.metrics = self._line("metrics")
        self.page = self._line("page")

    def _line(self, name):
        for line in self.process.stderr:
            if line.startswith(name + " "):
                return line.split()[1]
        raise AssertionError(f"lcache run printed no {name}: exit code {self.process.wait(WAIT)}")

    def end(self):
        self.process.stdin.close()
        self.process.stdin = None
        out, errors = self.process.communicate(timeout=WAIT)
        assert self.process.returncode == 0, errors
        return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("monitor"))
    run = Run(folder, "--page")
    yield run
    assert "bottleneck" in run.end()


def no_tool(package):
    """Skips a test, or as root fails it, unless scripts/test-tools could not install the package: then the reason is in its file `missing`."""
    missing = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "lcache-test-tools", "missing")
    reasons = []
    if os.path.exists(missing):
        with open(missing, encoding="utf-8") as f:
            reasons = [line.strip() for line in f if line.startswith(package + ": ")]
    if os.getuid() == 0 and not reasons:
        pytest.fail(f"{package} is not installed: run make test-tools")
    pytest.skip(reasons[0] if reasons else f"no {package}: apt-get install {package}")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    if CHROMIUM is None:
        no_tool("chromium")
    with playwright.sync_playwright() as p:
        # The network is off: each request but those to this machine goes to a proxy that does not exist.
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--proxy-server=127.0.0.1:1", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1600])
def test_page(run, browser, tmp_path, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    faults, asked = [], []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(run.page)
    page.wait_for_selector(".chart canvas", timeout=WAIT * 1000)
    wait_until(page, "document.querySelector('.headline').textContent.includes('is the limit')")
    assert page.inner_text(".link") == "live"
    headline = page.inner_text(".headline")
    assert re.match(r"(The training loop|The disk|The source|Decoding) is the limit", headline)
    wait_until(page, r"/epoch \d+ · batch [\d,]+ \/ 50/.test(document.querySelector('.progress').innerText)")  # not between two epochs
    assert {"loop waited", "delivered", "samples a second"} <= set(page.locator(".tiles dt").all_inner_texts())
    titles = page.locator(".card h3").all_inner_texts()
    assert {"Ranks", "Epochs", "Devices", "Cache", "Events"} <= set(titles), titles
    # The epochs table begins with the latest epoch.
    first = page.inner_text("table:below(h3:text('Epochs')) tbody th")
    assert first.isdigit()
    # Nothing is wider than the screen, and the bottleneck is on the first screen, in large type.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator(".headline").bounding_box()
    assert box["y"] + box["height"] < 900
    assert float(page.evaluate("parseFloat(getComputedStyle(document.querySelector('.headline')).fontSize)")) >= 24
    # Text has the contrast that WCAG AA requires.
    for part, least in ((".headline", 4.5), (".progress", 4.5), (".tiles dt", 4.5), ("tbody td", 4.5), (".legend li", 4.5), (".events time", 4.5)):
        assert contrast(page, part) >= least, part
    # A keyboard reaches what scrolls; a screen reader gets the values of the charts.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "region"
    assert "delivered" in page.get_attribute(".chart >> nth=0", "aria-label")
    # The page updates without a reload.
    before = page.inner_text(".progress")
    wait_until(page, "old => document.querySelector('.progress').textContent !== old", before)
    page.screenshot(path=os.environ.get("LCACHE_SCREENSHOTS", str(tmp_path)) + f"/page-{width}-{scheme}.png", full_page=True)
    assert faults == []
    assert all(url.startswith(run.page) for url in asked), asked
    context.close()


def contrast(page, selector):
    """The contrast ratio of an element's text, as WCAG defines it."""
    return page.evaluate(
        """selector => {
            const parse = c => c.match(/[\\d.]+/g).map(Number);
            const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
            const light = c => c.slice(0, 3).reduce((sum, v, i) => sum + linear(v / 255) * [0.2126, 0.7152, 0.0722][i], 0);
            let e = document.querySelector(selector);
            const text = light(parse(getComputedStyle(e).color));
            let behind = [0, 0, 0, 0];
            for (; e && !(behind[3] ?? 1); e = e.parentElement) behind = parse(getComputedStyle(e).backgroundColor);
            const [a, b] = [text, light(behind)].sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05);
        }""",
        selector,
    )


def test_page_with_token(browser, tmp_path):
    run = Run(str(tmp_path), "--page", LCACHE_METRICS_TOKEN=TOKEN)
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(run.page, timeout=WAIT)
        ask = urllib.request.Request(run.page, headers={"Authorization": "Basic " + base64.b64encode(f":{TOKEN}".encode()).decode()})
        assert b"uPlot" in urllib.request.urlopen(ask, timeout=WAIT).read()
        context = browser.new_context(http_credentials={"username": "anybody", "password": TOKEN})
        page = context.new_page()
        page.goto(run.page)
        page.wait_for_selector(".headline", timeout=WAIT * 1000)  # the stream has the token, too
        assert page.inner_text(".link") == "live"
        context.close()
    finally:
        run.end()


def test_server_ends(browser, tmp_path):
    """A page whose server ends says so."""
    run = Run(str(tmp_path), "--page")
    context = browser.new_context()
    page = context.new_page()
    page.goto(run.page)
    page.wait_for_selector(".headline", timeout=WAIT * 1000)
    run.end()
    wait_until(page, "document.getElementById('link').textContent.includes('does not answer')")
    context.close()


@pytest.mark.parametrize("native", [False, True])
def test_dashboard(run, tmp_path, native):
    """Each query of the dashboard finds something, in a Prometheus with and without native histograms."""
    if PROMETHEUS is None:
        no_tool("prometheus")
    settings = tmp_path / "prometheus.yml"
    target = urllib.parse.urlparse(run.metrics).netloc
    settings.write_text(f"global: {{scrape_interval: 250ms}}\nscrape_configs:\n- job_name: lcache\n  static_configs: [{{targets: ['{target}']}}]\n")
    port = free_port()
    command = [PROMETHEUS, f"--config.file={settings}", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"]
    command += ["--enable-feature=native-histograms"] if native else []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with open(os.path.join(realserver.ROOT, "deploy", "grafana", "lcache.json"), encoding="utf-8") as f:
            panels = json.load(f)["panels"]
        queries = [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]
        assert len(queries) > 20
        until = time.monotonic() + WAIT
        for title, query in queries:
            query = query.replace("$__rate_interval", "5s").replace("$name", ".*")
            while not ask(port, query):
                assert time.monotonic() < until, f"{title}: no result of {query}"
                time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT)


def ask(port, query):
    """The result of a query; [] also while Prometheus starts."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=WAIT) as answer:
            found = json.load(answer)["data"]["result"]
    except (urllib.error.URLError, ConnectionError):
        return []
    return [series for series in found if series["value"][1] != "NaN"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
