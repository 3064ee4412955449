"""train_page_test.py PAGE - the page of a training in a browser: five charts of as many points as there were steps, numbers on
every axis that differ, phases whose plan equals the fact, a legend; nothing is loaded from anywhere, no script runs.
"""
import sys

from browser import Browser

with Browser() as browser:
    page = browser.open(sys.argv[1], 1200, 900)
    page.frame()
    charts = page.evaluate("""[...document.querySelectorAll("svg")].map(s => ({
        name: s.getAttribute("aria-label"),
        height: s.getBoundingClientRect().height,
        points: [...s.querySelectorAll("polyline.c")].map(p => p.points.numberOfItems),
        inside: [...s.querySelectorAll("polyline.c")].every(p => [...p.points].every(q => q.x >= 0 && q.y >= 0 &&
            q.x <= s.viewBox.baseVal.width && q.y <= s.viewBox.baseVal.height)),
        marks: [...s.querySelectorAll("text[text-anchor=end]")].map(t => t.textContent)}))""")
    assert [c["name"] for c in charts] == ["loss (dots: validation)", "learning rate", "gradient norm", "tokens a second",
                                           "MiB on the ledger"], charts
    for chart in charts:
        assert chart["height"] > 100 and chart["inside"], chart
        assert chart["points"][0] == 4, chart
        assert len(set(chart["marks"][:5])) == 5, chart
    rows = page.evaluate("[...document.querySelectorAll('table tr')].map(r => [...r.cells].map(c => c.textContent))")
    assert {r[0] for r in rows[1:]} >= {"load", "step", "evaluate", "save"}, rows
    assert all(r[2] == r[3] and r[4] == "equal" for r in rows[1:]), rows
    legend = page.evaluate("document.querySelector('table ~ p').textContent")
    assert "weights" in legend and "activations" in legend, legend
    assert page.evaluate("document.scripts.length + performance.getEntriesByType('resource').length") == 0
