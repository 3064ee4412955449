"""measure.py PAGE... - how long Chromium takes from the address to the first picture, and for a frame while panning.

Best of five openings in a fresh tab; frames are those of two seconds of panning at full width, in each of the three views.
"cpu" is the time that the page's own thread has computed, which is what counts on a busy machine.
"""
import pathlib
import sys

from browser import Browser, Page

PAN = """new Promise(done => {
    const r = rationTimeline, steps = [], end = r.data.end;
    let last = performance.now();
    r.setMode(%d);
    r.setRange(0, end * 0.8);
    const step = () => {
        steps.push(performance.now() - last);
        last = performance.now();
        r.setRange(r.view.t0 + end * 0.002, r.view.t1 + end * 0.002);
        if (steps.length < 100) requestAnimationFrame(step);
        else done(steps.slice(2).sort((a, b) => a - b));
    };
    requestAnimationFrame(step);
})"""


def cpu_seconds(page):
    metrics = page.call("Performance.getMetrics")["metrics"]
    return next(m["value"] for m in metrics if m["name"] == "ThreadTime")


def open_measured(browser, path):
    """As browser.open, without the domains that slow a page down."""
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    page = Page(browser, browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
    page.call("Page.enable")
    page.call("Performance.enable", timeDomain="threadTicks")
    page.call("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
    before = cpu_seconds(page)
    page.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
    browser.wait_for("Page.loadEventFired", page.session)
    page.frame()
    return page, page.evaluate("rationTimeline.timings.shown"), (cpu_seconds(page) - before) * 1000


def measure(browser, path):
    best = cpu = float("inf")
    for _ in range(5):
        page, shown, used = open_measured(browser, path)
        best, cpu = min(best, shown), min(cpu, used)
    print("%s: first picture after %.0f ms (cpu %.0f ms)" % (path, best, cpu))
    for mode, name in ((1, "memory"), (2, "addresses"), (3, "both")):
        before = cpu_seconds(page)
        steps = page.evaluate(PAN % mode)
        cpu = (cpu_seconds(page) - before) * 1000 / len(steps)
        print("  a frame of %s: median %.1f ms, nine of ten within %.1f ms (cpu %.1f ms)" % (
            name, steps[len(steps) // 2], steps[len(steps) * 9 // 10], cpu))


if __name__ == "__main__":
    with Browser() as chromium:
        for argument in sys.argv[1:]:
            measure(chromium, argument)
