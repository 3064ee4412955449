"""bench_page_test.py PROGRAM RESULTS.json - the page of a benchmark shows what is in its file, in a browser.

Results are made from the example RESULTS.json: several variants, one that failed with markup in its message, and
older ones to compare with; then a sweep.
"""
import copy
import json
import os
import subprocess
import sys
import tempfile

from browser import Browser

program, example = sys.argv[1:3]
EVIL = "</script><script>window.evil = 1</script><b id=evil>"


def variants(document):
    """(name, ms, resident MiB): cpu+int8 and ort are on the front, eager and torch are beaten by others."""
    base = document["results"][0]
    for name, ms, mib in (("eager", 30, 120), ("cpu+int8", 12, 48), ("ort", 9, 160), ("torch", 25, 380)):
        item = copy.deepcopy(base)
        item.update(name=name, asked=name, batch_size=1, resident_peak_bytes=mib << 20)
        item["latency"].update(p50_s=ms / 1e3, p50_low_s=ms * 0.99e-3, p50_high_s=ms * 1.01e-3, p99_s=ms * 1.2e-3)
        yield item


def write(document, path):
    with open(path, "w") as file:
        json.dump(document, file)


def show(folder, document, *more):
    write(document, os.path.join(folder, "results.json"))
    page = os.path.join(folder, "page.html")
    ended = subprocess.run([program, "bench", os.path.join(folder, "results.json"), "--html", page, *more],
                           stdout=subprocess.DEVNULL, check=False)
    return page, ended.returncode


def check_results(browser, folder, document):
    old = copy.deepcopy(document)
    for key in ("p50_s", "p50_low_s", "p50_high_s"):
        old["results"][2]["latency"][key] /= 1.1
    write(old, os.path.join(folder, "old.json"))
    path, code = show(folder, document, "--compare", os.path.join(folder, "old.json"), "--fail-if-slower", "5%")
    assert code == 7, code
    page = browser.open(path)
    page.frame()
    assert not page.complaints(), page.complaints()
    assert page.evaluate("window.evil") is None and page.evaluate("document.querySelector('b#evil')") is None
    assert page.evaluate("rationBench.shown.front") == ["ort", "cpu+int8"]
    assert page.evaluate("document.querySelectorAll('#bars .variant').length") == 4
    assert page.evaluate("document.querySelectorAll('#bars .whisker').length") == 4
    assert "window.evil" in page.evaluate("document.querySelector('#bars .why').textContent")
    assert page.evaluate("document.querySelectorAll('#scatter .front-line').length") == 1
    # Sorted by the median, down and up; what has none stands last.
    first = "[...document.querySelectorAll('#table tbody tr.item')].map(row => row.cells[0].firstChild.textContent)"
    press = "[...document.querySelectorAll('#table th button')].find(b => b.textContent === 'median').click()"
    page.evaluate(press)
    assert page.evaluate(first) == ["ort", "cpu+int8", "torch", "eager", "cuda"], page.evaluate(first)
    page.evaluate(press)
    assert page.evaluate(first) == ["eager", "torch", "cpu+int8", "ort", "cuda"], page.evaluate(first)
    # A line opens: the command, and planned beside measured bytes.
    page.evaluate("document.querySelector('#table tbody tr.item').click()")
    opened = page.evaluate("document.querySelector('#table tr.more').textContent")
    assert "ration bench resnet18" in opened and "weights12 MiB12 MiB" in opened, opened
    assert "too slow" in page.evaluate("document.querySelector('#changes').textContent")
    # The other count of memory, and the other theme.
    page.evaluate("document.querySelectorAll('#memory-choice button')[1].click()")
    assert page.evaluate("rationBench.shown.front") == ["ort"]  # the ledger's bytes are all the same
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400  # tables scroll by themselves
    assert not page.complaints(), page.complaints()


def check_sweep(browser, folder, document):
    items = []
    for item in document["results"][:2]:
        for batch in (1, 2, 4):
            items.append(copy.deepcopy(item))
            items[-1].update(batch_size=batch)
    path, code = show(folder, dict(document, sweep="batch", results=items))
    assert code == 0, code
    page = browser.open(path, dark=True)
    page.frame()
    assert page.evaluate("document.querySelectorAll('#sweep-latency polyline').length") == 2
    assert page.evaluate("document.querySelectorAll('#sweep-throughput circle').length") == 6
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert not page.complaints(), page.complaints()


def main():
    with open(example) as file:
        document = json.load(file)
    failed = copy.deepcopy(document["results"][1])
    failed.update(name="cuda", asked="cuda", outcome="refused")
    failed["failure"]["message"] = EVIL
    document["results"] = list(variants(document)) + [failed]
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        check_results(browser, folder, document)
        check_sweep(browser, folder, document)


main()
